"""The typed registry of metrics: every name, what it counts and its labels stand here and nowhere else."""

import errno
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from threading import Thread
from typing import Any

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from servicekit.errors import Reason, ServiceError

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SLOW = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric: its name on ``/metrics``, what it says, its labels, and its buckets if it is a histogram."""

    name: str
    documentation: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = _FAST


class Metric(Enum):
    """Every metric of the system."""

    RPC_HANDLED = Definition("sluicegate_rpc_handled_total", "Calls answered.", ("method", "code"))
    RPC_SECONDS = Definition("sluicegate_rpc_seconds", "Time to answer a call.", ("method",))
    RPC_IN_FLIGHT = Definition("sluicegate_rpc_in_flight", "Calls being answered now.")
    LOOP_ROUNDS = Definition("sluicegate_loop_rounds_total", "Rounds of timed roles.", ("loop", "outcome"))
    LOOP_SECONDS = Definition("sluicegate_loop_round_seconds", "Time of one round.", ("loop",))
    DEPENDENCY_UP = Definition("sluicegate_dependency_up", "1 while a dependency works.", ("dependency",))
    BATCH_ITEMS = Definition("sluicegate_batch_items", "Items of one flush.", ("batch",), _SIZES)
    BATCH_SECONDS = Definition("sluicegate_batch_flush_seconds", "Time of one flush.", ("batch",))
    BATCH_WAITING = Definition("sluicegate_batch_waiting", "Items waiting for a flush.", ("batch",))
    BREAKER_OPEN = Definition("sluicegate_breaker_open", "1 while a breaker is open.", ("breaker",))
    POOL_WAIT_SECONDS = Definition("sluicegate_pool_wait_seconds", "Time to get a connection.", ("pool",))
    LANE_WAIT_SECONDS = Definition("sluicegate_lane_wait_seconds", "Time in front of a lane.", ("lane",))
    LANE_SECONDS = Definition("sluicegate_lane_seconds", "Time of one transaction of a lane.", ("lane",))
    SLOTS_USED = Definition("sluicegate_slots_used", "Units held.", ("pool", "scope"))
    SLOTS_CAPACITY = Definition("sluicegate_slots_capacity", "Units allowed.", ("pool", "scope"))
    SLOTS_WAITING = Definition("sluicegate_slots_waiting", "Requests queued for units.", ("pool", "scope"))
    SLOT_REQUESTS = Definition(
        "sluicegate_slot_requests_total", "Requests for slots.", ("operation", "outcome")
    )
    SLOTS_REAPED = Definition("sluicegate_slots_reaped_total", "Leases removed because they expired.")
    SLOT_WAIT_SECONDS = Definition("sluicegate_slot_wait_seconds", "From asking for a slot to the grant.")
    SLOT_HOLD_SECONDS = Definition(
        "sluicegate_slot_hold_seconds", "From a grant to its release.", ("pool",), _SLOW
    )
    SLOTS_REFUSED = Definition(
        "sluicegate_slots_refused_total", "Refused for want of units.", ("pool", "scope")
    )
    SLOTS_LOST = Definition("sluicegate_slots_lost_total", "Renewals of a lease that had ended.", ("pool",))
    SLOTS_RESTORED = Definition(
        "sluicegate_slots_restored_total",
        "Leases that came back with a ticket after Redis had lost them.",
        ("pool",),
    )
    SLOT_LATE_RELEASES = Definition(
        "sluicegate_slot_late_releases_total", "Releases of a lease that had expired.", ("pool",)
    )
    SCRIPT_ERRORS = Definition("sluicegate_script_errors_total", "Scripts that Redis refused.", ("kind",))
    REDIS_CLOCK_STEPS = Definition(
        "sluicegate_redis_clock_steps_total", "Jumps of the clock of Redis against this machine's."
    )
    POLLS = Definition("sluicegate_polls_total", "Polls of cards.", ("account", "kind", "outcome"))
    GATEWAY_SECONDS = Definition("sluicegate_gateway_seconds", "Time of a gateway call.", ("account", "kind"))
    POLL_LATENESS_SECONDS = Definition("sluicegate_poll_lateness_seconds", "How late polls start.", (), _SLOW)
    PUBLISHED = Definition("sluicegate_published_total", "Messages published.", ("topic", "outcome"))
    CONSUMED = Definition("sluicegate_consumed_total", "Messages handled.", ("topic", "outcome"))
    COVERAGE_GAPS = Definition(
        "sluicegate_coverage_gaps_total",
        "Cards handed on but not applied within two intervals.",
        ("account",),
    )
    BACKLOG_MESSAGES = Definition("sluicegate_backlog_messages", "Messages waiting.", ("topic",))
    BACKLOG_AGE_SECONDS = Definition(
        "sluicegate_backlog_age_seconds", "Age of what is handled now.", ("topic",)
    )
    OBSERVATIONS = Definition("sluicegate_observations_total", "Observations applied.", ("kind", "outcome"))
    OBSERVATION_AGE_SECONDS = Definition(
        "sluicegate_observation_age_seconds", "From observed to applied.", ("kind",), _SLOW
    )
    QUARANTINED = Definition(
        "sluicegate_quarantined_total", "What could not be stored.", ("origin", "reason")
    )
    COLLECTION_ROWS = Definition("sluicegate_collection_rows_total", "Collection records.", ("outcome",))
    TASKS_CREATED = Definition("sluicegate_tasks_created_total", "Tasks stored.", ("channel",))
    TASKS_CLAIMED = Definition("sluicegate_tasks_claimed_total", "Claims granted.", ("channel",))
    TASK_ATTEMPTS = Definition("sluicegate_task_attempts_total", "Attempts ended.", ("channel", "outcome"))
    TASKS_QUEUED = Definition("sluicegate_tasks_queued", "Tasks waiting.", ("channel",))
    TASK_WAIT_SECONDS = Definition(
        "sluicegate_task_wait_seconds", "From due to claimed.", ("channel",), _SLOW
    )
    SSE_CONNECTIONS = Definition("sluicegate_sse_connections", "Open event streams.")
    SSE_EVENTS = Definition("sluicegate_sse_events_total", "Events sent to browsers.")
    SSE_CUTS = Definition("sluicegate_sse_cuts_total", "Event streams ended by the server.", ("reason",))
    CACHE_LOOKUPS = Definition("sluicegate_cache_lookups_total", "Cache lookups.", ("cache", "outcome"))
    EXPORT_ROWS = Definition("sluicegate_export_rows_total", "Rows written by exports.")


@cache
def counter(metric: Metric) -> Counter:
    """Return the process's counter of that name."""
    return Counter(metric.value.name, metric.value.documentation, metric.value.labels)


@cache
def gauge(metric: Metric) -> Gauge:
    """Return the process's gauge of that name."""
    return Gauge(metric.value.name, metric.value.documentation, metric.value.labels)


@cache
def histogram(metric: Metric) -> Histogram:
    """Return the process's histogram of that name."""
    value = metric.value
    return Histogram(value.name, value.documentation, value.labels, buckets=value.buckets)


class _CacheCounts(Collector):
    """Reads the counts of caches when somebody asks for them: a lookup costs the cache no metric."""

    def __init__(self) -> None:
        self.sources: dict[str, Callable[[], Mapping[str, int]]] = {}

    def describe(self) -> Iterable[CounterMetricFamily]:
        return [self._family()]

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = self._family()
        for name, read in list(self.sources.items()):
            for outcome, count in read().items():
                family.add_metric([name, outcome], count)
        yield family

    def _family(self) -> CounterMetricFamily:
        value = Metric.CACHE_LOOKUPS.value
        return CounterMetricFamily(value.name, value.documentation, labels=value.labels)


@cache
def _cache_counts() -> _CacheCounts:
    counts = _CacheCounts()
    REGISTRY.register(counts)
    return counts


def export_cache(name: str, read: Callable[[], Mapping[str, int]]) -> None:
    """Show a cache's counts by outcome as CACHE_LOOKUPS; a second cache of that name takes the first one's place."""
    _cache_counts().sources[name] = read


class MetricsServer:
    """Serves ``/metrics`` over HTTP from a thread of its own. A Component."""

    name = "metrics"

    def __init__(self, host: str, port: int, *, variable: str = "METRICS_PORT") -> None:
        self._host = host
        self._port = port
        self._variable = variable
        self._server: Any = None
        self._thread: Thread | None = None

    @property
    def port(self) -> int:
        """The port in use; the configured one before ``start``."""
        return self._port if self._server is None else int(self._server.server_port)

    async def start(self) -> None:
        """Listen; raises ServiceError WRONG_STATE when the port is taken."""
        try:
            self._server, self._thread = start_http_server(self._port, self._host)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise ServiceError(
                Reason.WRONG_STATE,
                f"port {self._port} on {self._host} is taken: stop what uses it or set {self._variable}",
            ) from error

    async def drain(self) -> None:
        """Do nothing: metrics are wanted until the end."""

    async def stop(self) -> None:
        """Stop listening."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
