"""Publishes events that committed with their cause."""

from datetime import timedelta

from ingest_service.publisher import Outgoing
from ingest_service.store.postgres_upkeep import OutboxStore
from servicekit.clock import Clock

_MOST_DELETED = 1_000


class OutboxRelay:
    """Takes events in order, publishes them and marks them; an event may be published twice, never not at all."""

    def __init__(
        self, store: OutboxStore, outgoing: Outgoing, clock: Clock, *, batch: int, kept: timedelta
    ) -> None:
        self._store = store
        self._outgoing = outgoing
        self._clock = clock
        self._batch = batch
        self._kept = kept

    async def run_once(self) -> bool:
        """Publish a few events; True when more may wait. Raises ServiceError or what the driver raises."""
        async with self._store.take(self._batch) as taken:
            if taken.rows:
                await self._outgoing.publish_events(taken.rows)
                await taken.mark_published(self._clock.now())
        return len(taken.rows) == self._batch

    async def forget_once(self) -> bool:
        """Delete events that were published long ago; True when more may wait."""
        before = self._clock.now() - self._kept
        return await self._store.delete_published(before=before, limit=_MOST_DELETED) == _MOST_DELETED
