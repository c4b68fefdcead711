"""The outbox and the inbox's partitions: what the loops work on."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from typing import Any

from servicekit.postgres import Connection, Postgres, load_sql

_PACKAGE = "ingest_service"
_PREFIX = "ingest_inbox_"


class OutboxStore:
    """Events that wait to be published. Methods raise what the driver raises."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    @asynccontextmanager
    async def take(self, limit: int) -> AsyncIterator["OutboxBatch"]:
        """Lend a few waiting events; those marked as published are, when the block ends without an error."""
        async with self._postgres.transaction() as connection:
            rows = await connection.fetch(_sql("take_outbox"), limit)
            yield OutboxBatch(connection, [dict(row) for row in rows])

    async def delete_published(self, *, before: datetime, limit: int) -> int:
        """Forget events published before an instant; return how many."""
        return int(await self._postgres.pool.fetchval(_sql("delete_published"), before, limit))


class OutboxBatch:
    """Events that this transaction holds."""

    def __init__(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        self._connection = connection
        self.rows = rows

    async def mark_published(self, now: datetime) -> None:
        """Say that all of them were published."""
        ids = [row["outbox_id"] for row in self.rows]
        await self._connection.execute(_sql("mark_published"), ids, now)


class PartitionStore:
    """The inbox's partitions, one per UTC day. Methods raise what the driver raises."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def create(self, day: date) -> bool:
        """Make sure that a day has its partition; return whether it was created."""
        return bool(await self._postgres.pool.fetchval(_sql("create_partition"), day))

    async def drop_before(self, day: date) -> list[str]:
        """Drop the partitions of all days before one, without blocking inserts; return their names."""
        first_kept = f"{_PREFIX}{day:%Y_%m_%d}"
        pool = self._postgres.pool
        for row in await pool.fetch(_sql("list_partitions")):
            if row["name"] < first_kept:
                detach = "finalize_detach" if row["detach_pending"] else "detach_partition"
                await pool.execute(_sql(detach).format(name=_quoted(row["name"])))
        names = [row["name"] for row in await pool.fetch(_sql("list_detached_partitions"))]
        dropped = [name for name in names if name < first_kept]
        for name in dropped:
            await pool.execute(_sql("drop_partition").format(name=_quoted(name)))
        return dropped


def _sql(name: str) -> str:
    return load_sql(_PACKAGE, name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
