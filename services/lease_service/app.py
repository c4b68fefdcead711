"""Composition root of the lease service: what it is made of and in which order it starts."""

from lease_service.domain.policy_cache import PolicyCache
from lease_service.domain.pools import Pools
from lease_service.domain.session import Sessions
from lease_service.domain.slots import Slots
from lease_service.domain.tickets import Tickets
from lease_service.domain.waiting_room import WaitingRoom
from lease_service.loops.audit_drain import AuditDrain
from lease_service.loops.dispatcher import Dispatcher
from lease_service.loops.reaper import Reaper
from lease_service.servicer import LeaseServicer
from lease_service.settings import Settings
from lease_service.store.keys import EVERYBODY
from lease_service.store.postgres import PostgresPolicies
from lease_service.store.postgres_ticket_key import TicketKey
from lease_service.store.redis import RedisSlots
from lease_service.store.redis_identity import identify, trust
from lease_service.store.redis_wake_ups import WakeUps
from servicekit.clock import SystemClock
from servicekit.failures import describe
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.lifecycle import App, Loop
from servicekit.logs import get_logger
from servicekit.postgres import Postgres
from servicekit.redis import Redis
from sluicegate.lease.v1 import lease_pb2_grpc

_log = get_logger(__name__)


def build(settings: Settings) -> App:
    """Put the service together; nothing connects yet."""
    clock = SystemClock()
    database = Postgres(settings.postgres, settings.service_name)
    server = Redis(settings.redis, greet=identify if settings.slots.relearn_after_restart else trust)
    tickets = Tickets()
    leases = RedisSlots(server, tickets=tickets, confirm_within=settings.slots.confirm_within)
    policies = PostgresPolicies(database)
    cache = PolicyCache(policies.read, ttl=settings.slots.policy_ttl.total_seconds(), clock=clock)
    slots = Slots(leases, policies, cache)
    waiting = WaitingRoom(slots)
    sessions = Sessions()
    dispatcher = Dispatcher(leases, waiting, cache, clock=clock)
    dispatching = Loop("dispatcher", dispatcher.run_once, every=settings.slots.dispatch_every, clock=clock)

    def on_token(pool: str, token: str, more: bool) -> None:  # noqa: FBT001 - a callback
        waiting.call(pool, token)
        sessions.look(pool, token)
        if more:
            dispatcher.look_soon(pool)
            dispatching.wake()

    pools = Pools(leases, policies, cache, push_failed=_push_failed, clock=clock)
    health = Health(clock=clock)
    health.add_check("redis", leases.health_check)
    health.add_check("postgres", database.health_check)
    limits = settings.slots
    reaper = Reaper(
        leases,
        policies,
        clock=clock,
        recount_every=limits.recount_every.total_seconds(),
        recount_most=limits.recount_most,
    )
    audit = AuditDrain(
        leases, policies, batch=limits.audit_batch, retention=limits.audit_retention, clock=clock
    )
    return App(
        name=settings.service_name,
        components=[
            database,
            TicketKey(tickets, database, settings.slots.ticket_key),
            server,
            leases,
            Loop("audit_drain", audit.run_once, every=limits.audit_every, clock=clock),
            Loop("reaper", reaper.run_once, every=limits.reap_every, clock=clock),
            slots,
            WakeUps(server, [leases.channel, EVERYBODY], on_token=on_token, on_gap=waiting.call_all),
            dispatching,
            GrpcServer(
                settings,
                [
                    (
                        lease_pb2_grpc.add_LeaseServiceServicer_to_server,
                        LeaseServicer(slots, waiting, sessions, pools),
                    )
                ],
                health,
            ),
            waiting,
            sessions,
        ],
        health=health,
    )


def _push_failed(pool: str, error: Exception) -> None:
    _log.warning("a policy is stored but was not pushed to Redis", pool=pool, problem=describe(error))
