"""What the metrics say about slots, from the answers of the scripts; whoever calls a script is counted."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from lease_service.domain.model import AcquireResult, Outcome, ReleaseResult, Renewal, RenewResult
from servicekit.telemetry import Metric, counter, histogram

_NO_ROOM = (Outcome.FULL, Outcome.TOO_WIDE)


def note_acquired(pool: str, result: AcquireResult) -> None:
    """Count what was refused for want of units."""
    if result.limiting_scope:
        refused = sum(attempt.outcome in _NO_ROOM for attempt in result.attempts)
        if refused:
            _counter(Metric.SLOTS_REFUSED, pool, result.limiting_scope).inc(refused)


def note_renewed(pool: str, results: Sequence[RenewResult]) -> None:
    """Count leases that had ended."""
    for result in results:
        if result.outcome is Renewal.LOST:
            _counter(Metric.SLOTS_LOST, pool).inc()


def note_restored(pool: str, results: Sequence[RenewResult]) -> None:
    """Count leases that came back with a ticket."""
    restored = sum(result.outcome is not Renewal.LOST for result in results)
    if restored:
        _counter(Metric.SLOTS_RESTORED, pool).inc(restored)


def note_released(pool: str, results: Sequence[ReleaseResult]) -> None:
    """Measure how long leases were held, and count releases that came after the expiry."""
    for result in results:
        if result.freed:
            _held(pool).observe(result.held_ms / 1000)
        elif result.late:
            _counter(Metric.SLOT_LATE_RELEASES, pool).inc()


@cache
def _counter(metric: Metric, *labels: str) -> Any:
    return counter(metric).labels(*labels)


@cache
def _held(pool: str) -> Any:
    return histogram(Metric.SLOT_HOLD_SECONDS).labels(pool)
