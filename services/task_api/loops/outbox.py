"""Relays news of ended tasks."""

from task_api.store.postgres_events import PostgresOutbox
from task_api.store.redis import RedisNews

BATCH = 500


class OutboxRelay:
    """One round relays at most 500 rows; a row is deleted once it is sent, so it may be sent twice and never lost."""

    def __init__(self, outbox: PostgresOutbox, news: RedisNews) -> None:
        self._outbox = outbox
        self._news = news

    async def run_once(self) -> bool:
        """Relay; answer whether more may be waiting."""
        return await self._outbox.relay(BATCH, self._news.send) == BATCH
