"""Composition root of task_api: what it is made of and in which order it starts."""

from datetime import timedelta
from uuid import UUID

from servicekit.clock import SystemClock
from servicekit.grpc_client import Channel
from servicekit.grpc_server import AddServicer, GrpcServer
from servicekit.health import Health
from servicekit.http_server import HttpServer
from servicekit.lifecycle import App, Component, Loop
from servicekit.logs import get_logger
from servicekit.postgres import Postgres
from servicekit.redis import Redis
from sluicegate.operator.v1 import operator_pb2_grpc
from sluicegate.task.v1 import task_pb2_grpc
from sluicegate.worker.v1 import worker_pb2_grpc
from task_api.clients import TaskSlots
from task_api.domain.channels import Channels
from task_api.domain.claims import ClaimLimits, Claims
from task_api.domain.creation import Creation
from task_api.domain.low_water import LowWater
from task_api.domain.operations import Operations
from task_api.domain.signals import Signals
from task_api.domain.streams import Hub
from task_api.domain.tasks import Tasks
from task_api.domain.turns import Turns
from task_api.loops.load import LoadGauge
from task_api.loops.outbox import OutboxRelay
from task_api.loops.policies import PolicySeeder
from task_api.loops.promoter import Promoter
from task_api.loops.sweeper import Sweeper
from task_api.loops.turns import TurnSync
from task_api.routes.app import make_app
from task_api.routes.edge import Edge
from task_api.servicer.operators import OperatorServicer
from task_api.servicer.tasks import TaskServicer
from task_api.servicer.workers import WorkerServicer
from task_api.settings import Settings
from task_api.store.postgres import PostgresTasks
from task_api.store.postgres_channels import PostgresChannels
from task_api.store.postgres_claims import PostgresClaims
from task_api.store.postgres_events import PostgresEvents, PostgresOutbox
from task_api.store.postgres_operations import PostgresOperations
from task_api.store.postgres_turns import PostgresTurns
from task_api.store.redis import RedisNews, RedisWakes

_log = get_logger(__name__)

_LOAD_EVERY = timedelta(seconds=15)
_OUTBOX_EVERY = timedelta(milliseconds=500)
_TURNS_EVERY = timedelta(milliseconds=500)
_POLICIES_EVERY = timedelta(seconds=5)
_PARTITIONS_EVERY = timedelta(hours=1)


class _Intake:
    """Starts last and drains first: ends waiting claim calls and sends the readers of streams away. A Component."""

    name = "intake"

    def __init__(self, claims: Claims, hub: Hub) -> None:
        self._claims = claims
        self._hub = hub

    async def start(self) -> None:
        """Do nothing."""

    async def drain(self) -> None:
        """Hand out nothing more."""
        self._claims.stop_claiming()
        self._hub.close()

    async def stop(self) -> None:
        """Do nothing."""


def build(settings: Settings) -> App:
    """Put the service together; nothing connects yet."""
    clock = SystemClock()
    database = Postgres(settings.postgres, settings.service_name)
    redis = Redis(settings.redis)
    leases = Channel(settings.peers.lease_service, auth=settings.auth, name="lease_service", actor="task_api")
    ready: Signals[str] = Signals()
    text: Signals[UUID] = Signals()
    wakes = RedisWakes(redis, ready=ready, text=text)
    slots = TaskSlots(leases, slot_life=settings.claims.slot_life)
    channel_store = PostgresChannels(database)
    task_store = PostgresTasks(database)
    channels = Channels(channel_store, slots, wakes, clock=clock)
    turns, low_water = Turns(PostgresTurns(database)), LowWater(clock)
    tasks = Tasks(task_store, wakes, turns=turns, low_water=low_water)
    creation = Creation(task_store, channels, wakes, turns=turns, low_water=low_water, clock=clock)
    operations = Operations(PostgresOperations(database), channels, tasks, wakes, low_water)
    claims = Claims(
        PostgresClaims(database),
        slots,
        channels,
        wakes,
        turns=turns,
        low_water=low_water,
        ready=ready,
        clock=clock,
        limits=ClaimLimits(settings.claims.lease, settings.claims.poll),
        report=_report,
    )
    hub = Hub(PostgresEvents(database), signals=text, safety_seconds=settings.http.heartbeat.total_seconds())
    health = Health(clock=clock)
    health.add_check("postgres", database.health_check)
    health.add_check("lease_service", leases.health_check)
    relay = OutboxRelay(PostgresOutbox(database), RedisNews(redis))
    seeder = PolicySeeder(channel_store, slots, worker_limit=settings.claims.worker_limit)
    loops = [
        Loop("partitions", task_store.create_partitions, every=_PARTITIONS_EVERY, clock=clock),
        Loop("policies", seeder.run_once, every=_POLICIES_EVERY, clock=clock),
        Loop("sweeper", Sweeper(claims).run_once, every=settings.claims.sweep_every, clock=clock),
        Loop("promoter", Promoter(claims).run_once, every=settings.claims.promote_every, clock=clock),
        Loop("load", LoadGauge(channel_store).run_once, every=_LOAD_EVERY, clock=clock),
        Loop("turns", TurnSync(turns).run_once, every=_TURNS_EVERY, clock=clock),
        Loop("outbox", relay.run_once, every=_OUTBOX_EVERY, clock=clock),
    ]
    servicers: list[tuple[AddServicer, object]] = [
        (task_pb2_grpc.add_TaskServiceServicer_to_server, TaskServicer(tasks, creation, hub)),
        (worker_pb2_grpc.add_WorkerServiceServicer_to_server, WorkerServicer(claims)),
        (operator_pb2_grpc.add_OperatorServiceServicer_to_server, OperatorServicer(channels, operations)),
    ]
    edge = Edge(tasks, creation, channels, hub, health=health, auth=settings.auth, http=settings.http)
    http = HttpServer(
        make_app(edge),
        host=settings.http.host,
        port=settings.http.port,
        variable=f"{settings.env_prefix()}HTTP__PORT",
        drain_timeout=settings.http.drain,
    )
    components: list[Component] = [database, redis, wakes, leases, *loops]
    components += [GrpcServer(settings, servicers, health), http, _Intake(claims, hub)]
    return App(name=settings.service_name, components=components, health=health)


def _report(what: str, problem: str) -> None:
    _log.warning(what, problem=problem)
