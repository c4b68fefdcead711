"""Composition root of ingest_service: what it is made of and in which order it starts."""

from ingest_service.clients import CollectionClient, PolicyClient
from ingest_service.consumer import IngestConsumer, observation_of
from ingest_service.domain.administration import Accounts, Cards
from ingest_service.domain.applying import Applier
from ingest_service.domain.deciding import Window
from ingest_service.domain.lanes import Lanes
from ingest_service.domain.observations import Observation
from ingest_service.domain.settling import Settler
from ingest_service.loops.outbox_relay import OutboxRelay
from ingest_service.loops.partition_keeper import PartitionKeeper
from ingest_service.loops.policy_sender import PolicySender
from ingest_service.loops.retry_ladder import RetryLadder
from ingest_service.publisher import Aftermath, Outgoing, batch_scope
from ingest_service.servicer import IngestServicer
from ingest_service.settings import Settings
from ingest_service.store.postgres_apply import PostgresApplyStore
from ingest_service.store.postgres_fleet import PostgresFleetStore
from ingest_service.store.postgres_parking import ParkingStore
from ingest_service.store.postgres_session import prepare_session
from ingest_service.store.postgres_upkeep import OutboxStore, PartitionStore
from ingest_service.store.redis import Caches
from servicekit.breaker import Breaker
from servicekit.clock import SystemClock
from servicekit.grpc_client import Channel
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.lifecycle import App, Loop
from servicekit.logs import get_logger
from servicekit.nsq import Publisher
from servicekit.postgres import Postgres
from servicekit.redis import Redis
from sluicegate.ingest.v1 import ingest_pb2_grpc
from sluicegate_client.messages import ObservationMessage

_log = get_logger(__name__)


def build(settings: Settings) -> App:
    """Put the service together; nothing connects yet."""
    clock = SystemClock()
    limits, timing = settings.ingest, settings.loops
    _check_budget(settings)
    database = Postgres(settings.postgres, settings.service_name, init=prepare_session)
    redis = Redis(settings.redis)
    publisher = Publisher(settings.nsq, clock)
    lease_channel = Channel(settings.peers.lease_service, auth=settings.auth, name="lease_service")
    collection_channel = Channel(
        settings.peers.collection_writer,
        auth=settings.auth,
        name="collection_writer",
        idempotent=("WriteRecords", "GetRecord"),
    )
    caches = Caches(redis)
    parking = ParkingStore(database)
    fleet = PostgresFleetStore(database)
    collection = CollectionClient(collection_channel)
    outgoing = Outgoing(publisher)
    aftermath = Aftermath(publisher, collection, caches, clock)
    settler = Settler(parking, clock)
    accounts = Accounts(fleet, PolicyClient(lease_channel), clock)

    async def probe() -> bool:
        return bool(await database.health_check()) and await aftermath.probe()

    def pause() -> None:
        consumer.pause()

    def resume() -> None:
        consumer.resume()

    breaker = Breaker(probe, pause, resume, clock, name="ingest")
    window = Window(remembered=limits.remembered, ahead=limits.ahead)
    lanes = Lanes(
        Applier(PostgresApplyStore(database), aftermath, clock=clock, window=window),
        breaker,
        count=limits.lanes,
        most_waiting=limits.most_waiting,
        scope=batch_scope,
    )
    consumer = IngestConsumer(
        settings.nsq,
        concurrency=limits.concurrency,
        lanes=lanes,
        settler=settler,
        caches=caches,
        breaker=breaker,
        clock=clock,
    )
    relay = OutboxRelay(
        OutboxStore(database), outgoing, clock, batch=timing.outbox_batch, kept=timing.outbox_kept
    )
    ladder = RetryLadder(parking, lanes, settler, decode=_decode, clock=clock, batch=timing.retry_batch)
    keeper = PartitionKeeper(
        PartitionStore(database), clock, remembered=limits.remembered, ahead_days=timing.partitions_ahead_days
    )
    servicer = IngestServicer(
        lanes=lanes,
        settler=settler,
        accounts=accounts,
        cards=Cards(fleet, caches, clock),
        fleet=fleet,
        parking=parking,
        outgoing=outgoing,
        collection=collection,
        clock=clock,
    )
    health = Health(clock=clock)
    health.add_check("postgres", database.health_check)
    health.add_check("redis", redis.health_check)
    return App(
        name=settings.service_name,
        components=[
            database,
            redis,
            publisher,
            lease_channel,
            collection_channel,
            breaker,
            lanes,
            Loop("partitions", keeper.run_once, every=timing.partitions_every, clock=clock),
            Loop("outbox", relay.run_once, every=timing.outbox_every, clock=clock),
            Loop("outbox_upkeep", relay.forget_once, every=timing.partitions_every, clock=clock),
            Loop("policies", PolicySender(accounts).run_once, every=timing.policies_every, clock=clock),
            Loop("retries", ladder.run_once, every=timing.retry_every, clock=clock),
            GrpcServer(settings, [(ingest_pb2_grpc.add_IngestServiceServicer_to_server, servicer)], health),
            consumer,
        ],
        health=health,
    )


def _check_budget(settings: Settings) -> None:
    limits = settings.ingest
    if limits.over_budget:
        _log.error(
            "ingest.concurrency asks for more connections than the database has to give: lower it, or raise "
            "max_connections",
            concurrency=limits.concurrency,
            max_connections=limits.max_connections,
            reserve=limits.reserve,
        )


def _decode(body: bytes) -> Observation:
    return observation_of(ObservationMessage.decode(body))
