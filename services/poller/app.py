"""Composition root of poller: what it is made of and in which order it starts."""

import os
import socket

from poller.clients import CollectionClient, GatewayPool, IngestClient
from poller.domain.facts import FactReader
from poller.domain.mode import ModeCache
from poller.domain.model import Mode
from poller.domain.step import Stepper
from poller.loops.backlog import BacklogWatch, ingest_backlog
from poller.loops.dispatch import Tools
from poller.loops.fleet import Fleet, ScheduleSync
from poller.publisher import MessageDelivery, PollTracing
from poller.servicer import PollerServicer
from poller.settings import Settings
from poller.store.postgres import PostgresSettingsStore
from poller.store.redis import RedisFacts, RedisRoles, RedisSchedule
from servicekit.clock import SystemClock
from servicekit.failures import describe
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.ids import new_token
from servicekit.lifecycle import App, Loop
from servicekit.logs import get_logger
from servicekit.nsq import NsqAdmin, Publisher
from servicekit.postgres import Postgres
from servicekit.redis import Redis
from sluicegate.poller.v1 import poller_pb2_grpc
from sluicegate_client.slots import Slots

_log = get_logger(__name__)


def build(settings: Settings) -> App:
    """Put the service together; nothing connects yet."""
    clock = SystemClock()
    owner = f"poller@{socket.gethostname()}:{os.getpid()}:{new_token()[:6]}"
    database = Postgres(settings.postgres, settings.service_name)
    server = Redis(settings.redis)
    publisher = Publisher(settings.nsq, clock)
    admin = NsqAdmin(settings.nsq)
    ingest = IngestClient(settings.peers.ingest_service, settings.auth, settings.sync.page_size)
    collection = CollectionClient(settings.peers.collection_writer, settings.auth)
    slots = Slots(settings.peers.lease_service, owner=owner, auth=settings.auth)
    gateways = GatewayPool(
        settings.credentials,
        clock,
        timeout=settings.step.gateway_timeout,
        connections=settings.step.connections,
    )
    schedule = RedisSchedule(server, claim_lease=settings.step.claim_lease, downtime=settings.step.downtime)
    roles = RedisRoles(server, owner)
    stored = PostgresSettingsStore(database)
    mode = ModeCache(lambda: _stored_mode(stored), clock, _mode_unknown)
    delivery = MessageDelivery(publisher, ingest, collection, mode=mode, clock=clock)
    facts = FactReader(RedisFacts(server), ingest, _facts_unknown)
    tools = Tools(
        schedule=schedule,
        slots=slots,
        stepper=Stepper(delivery, PollTracing(), clock),
        facts=facts,
        pause=roles,
        gateways=gateways,
        settings=settings.step,
        clock=clock,
    )
    fleet = Fleet(ingest, roles, tools, settings.sync.accounts_every)
    sync = ScheduleSync(
        ingest,
        schedule,
        roles,
        ingest_backlog=lambda: ingest_backlog(admin),
        settings=settings.sync,
        clock=clock,
    )
    watch = BacklogWatch(admin, roles, settings.backlog)
    health = Health(clock=clock)
    health.add_check("redis", server.health_check)
    health.add_check("postgres", database.health_check)
    servicer = PollerServicer(
        settings=stored,
        mode=mode,
        fleet=fleet,
        facts=facts,
        delivery=delivery,
        schedule=schedule,
        roles=roles,
        admin=admin,
    )
    return App(
        name=settings.service_name,
        components=[
            database,
            server,
            publisher,
            ingest,
            collection,
            slots,
            gateways,
            GrpcServer(settings, [(poller_pb2_grpc.add_PollerServiceServicer_to_server, servicer)], health),
            fleet,
            Loop("accounts", fleet.run_once, every=settings.sync.accounts_every, clock=clock),
            Loop("schedule_sync", sync.run_once, every=settings.sync.cards_every, clock=clock),
            Loop("backlog", watch.run_once, every=settings.backlog.every, clock=clock),
        ],
        health=health,
    )


async def _stored_mode(stored: PostgresSettingsStore) -> Mode:
    return (await stored.mode()).mode


def _mode_unknown(error: Exception) -> None:
    _log.warning("the ingest mode can't be read; the last one stays in force", problem=describe(error))


def _facts_unknown(error: Exception) -> None:
    _log.warning("card facts can't be read; those cards are tried again soon", problem=describe(error))
