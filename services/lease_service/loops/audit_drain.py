"""Moves audit events from Redis into PostgreSQL, each once in effect, and forgets old ones."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from lease_service.domain.model import AuditEvent
from servicekit.clock import Clock

_PURGE_EVERY_SECONDS = 600.0
_PURGE_ROWS = 5_000
NO_EVENT = "0-0"
"""Before every event: trimming up to it only removes a stream that is empty."""


class AuditSource(Protocol):
    """Where events wait."""

    async def pools_with_audit(self, pools: Sequence[str]) -> list[str]:
        """Return those pools that have events."""
        ...

    async def read_audit(self, pool: str, most: int) -> list[AuditEvent]:
        """Return the oldest events of a pool."""
        ...

    async def trim_audit(self, pool: str, last_id: str) -> int:
        """Forget events up to an id, and the stream once it is empty; returns how many are left."""
        ...


class AuditTarget(Protocol):
    """Where events are kept."""

    async def pools(self) -> list[str]:
        """Return the names of all pools."""
        ...

    async def put_audit(self, events: Sequence[AuditEvent]) -> None:
        """Store events; those that are stored already are left as they are."""
        ...

    async def purge_audit(self, before: datetime, most: int) -> int:
        """Delete old events; returns how many."""
        ...


class AuditDrain:
    """Stores first and forgets afterwards: a crash in between repeats a batch, and repeated events are ignored.

    Args:
        source: where events wait.
        target: where events are kept.
        batch: most events of one INSERT.
        retention: how long events are kept.
        clock: tells what is old.
    """

    def __init__(
        self, source: AuditSource, target: AuditTarget, *, batch: int, retention: timedelta, clock: Clock
    ) -> None:
        self._source = source
        self._target = target
        self._batch = batch
        self._retention = retention
        self._clock = clock
        self._purge_at = clock.monotonic()

    async def run_once(self) -> bool:
        """Drain every pool once; returns whether a pool has more."""
        more = False
        for pool in await self._source.pools_with_audit(await self._target.pools()):
            more = await self._drain(pool) or more
        await self._purge()
        return more

    async def _drain(self, pool: str) -> bool:
        events = await self._source.read_audit(pool, self._batch)
        if not events:
            await self._source.trim_audit(pool, NO_EVENT)
            return False
        await self._target.put_audit(events)
        await self._source.trim_audit(pool, events[-1].event_id)
        return len(events) == self._batch

    async def _purge(self) -> None:
        if self._clock.monotonic() < self._purge_at:
            return
        deleted = await self._target.purge_audit(self._clock.now() - self._retention, _PURGE_ROWS)
        if deleted < _PURGE_ROWS:
            self._purge_at = self._clock.monotonic() + _PURGE_EVERY_SECONDS
