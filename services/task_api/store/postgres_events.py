"""Text events and the outbox in PostgreSQL."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from servicekit.postgres import Postgres, load_sql
from task_api.domain.streams import Cursor, Event, LastEvent


class PostgresEvents:
    """The table ``task_event``, read only."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    async def read(self, task_id: UUID, after: Cursor, limit: int) -> Sequence[Event]:
        """Return the events after a cursor, in order."""
        rows = await self._database.pool.fetch(load_sql(__name__, "read_events"), task_id, *after, limit)
        return [Event(Cursor(row["epoch"], row["seq"]), row["kind"], row["data"]) for row in rows]

    async def last(self, task_id: UUID, tenant: str) -> LastEvent | None:
        """Return where a task's events end; None for an unknown or another tenant's task."""
        row = await self._database.pool.fetchrow(load_sql(__name__, "last_event"), task_id, tenant)
        return LastEvent(Cursor(row["epoch"], row["seq"]), row["terminal"]) if row else None


class PostgresOutbox:
    """The table ``task_outbox_batch``, and ``task_outbox``, which an older version fills."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    async def relay(self, limit: int, send: Callable[[Sequence[dict[str, str]]], Awaitable[None]]) -> int:
        """Hand the oldest rows to ``send`` and delete them when it succeeds; answer how many."""
        async with self._database.transaction() as connection:
            rows = await connection.fetch(load_sql(__name__, "take_outbox"), limit)
            if rows:
                await send([{name: str(value) for name, value in row.items()} for row in rows])
        return len(rows)
