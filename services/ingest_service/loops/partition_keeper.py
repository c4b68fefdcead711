"""Makes the inbox's days ahead of time and drops the forgotten ones."""

from datetime import timedelta

from ingest_service.store.postgres_upkeep import PartitionStore
from servicekit.clock import Clock
from servicekit.logs import get_logger

_log = get_logger(__name__)
_MARGIN = timedelta(days=1)
"""A day is dropped only when nothing that old has been accepted for a whole day."""


class PartitionKeeper:
    """Keeps one partition for each day of the accepted window and a few days ahead."""

    def __init__(
        self, store: PartitionStore, clock: Clock, *, remembered: timedelta, ahead_days: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._remembered = remembered
        self._ahead_days = ahead_days

    async def run_once(self) -> None:
        """Create and drop; raises what the driver raises."""
        today = self._clock.now().date()
        day = today - self._remembered
        while day <= today + timedelta(days=self._ahead_days):
            if await self._store.create(day):
                _log.info("inbox partition created", day=day.isoformat())
            day += timedelta(days=1)
        for name in await self._store.drop_before(today - self._remembered - _MARGIN):
            _log.info("inbox partition dropped", partition=name)
