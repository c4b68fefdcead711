"""task_api's stores on a real database, without the rest of the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from servicekit.ids import new_token, uuid7
from servicekit.postgres import Postgres
from servicekit.settings import PostgresSettings
from servicekit.values import SecretUrl
from task_api.domain.model import Claimed, ClaimRequest, NewTask, Slot
from task_api.store.postgres import PostgresTasks
from task_api.store.postgres_channels import PostgresChannels
from task_api.store.postgres_claims import PostgresClaims
from task_api.store.postgres_events import PostgresEvents

LEASE = timedelta(seconds=30)


def new_task(**changes: Any) -> NewTask:
    """Make a checked task."""
    values: dict[str, Any] = {
        "task_id": uuid7(datetime.now(UTC)),
        "tenant": "t",
        "channel": "c",
        "kind": "k",
        "payload": "{}",
        "payload_version": 1,
        "priority": 0,
        "max_attempts": 3,
        "idempotency_key": None,
        "request_hash": b"",
        "delay": timedelta(),
        "deadline_at": None,
        "traceparent": "",
    }
    return NewTask(**{**values, **changes})


@dataclass
class Stores:
    """Every store of task_api and a pool to look with."""

    database: Postgres
    tasks: PostgresTasks
    claims: PostgresClaims
    channels: PostgresChannels
    events: PostgresEvents

    async def create(self, **changes: Any) -> UUID:
        """Store a task."""
        task = new_task(**changes)
        stored = await self.tasks.create(task)
        assert stored is not None
        assert stored == await self.tasks.get(task.task_id, task.tenant)
        return stored.task_id

    async def claim(self, count: int = 1, *, lease: timedelta = LEASE, **changes: Any) -> list[Claimed]:
        """Claim up to ``count`` tasks."""
        channel = changes.pop("channel", "c")
        capabilities = changes.pop("capabilities", {"k": 1})
        request = ClaimRequest(changes.pop("worker", "w"), (channel,), capabilities, count)
        slots = [Slot(new_token(), number) for number in range(count)]
        return list(await self.claims.claim(channel, request, new_token(), slots, lease))

    async def expire(self, task_id: UUID) -> None:
        """Let a claim run out now."""
        await self.execute(
            "UPDATE task_lease SET lease_until = now() - interval '1 s' WHERE task_id = $1", task_id
        )

    async def execute(self, statement: str, *arguments: Any) -> None:
        """Run a statement."""
        await self.database.pool.execute(statement, *arguments)

    async def rows(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Return a statement's rows as tuples."""
        return [tuple(row) for row in await self.database.pool.fetch(statement, *arguments)]

    async def empty(self) -> None:
        """Remove everything."""
        await self.execute(
            "TRUNCATE channel, task, task_ready, task_deferred, task_lease, task_outcome, task_event, task_key,"
            " task_export, task_outbox, task_audit RESTART IDENTITY"
        )

    async def snapshot(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return everything that a write could change."""
        tables = (
            "task_ready",
            "task_deferred",
            "task_lease",
            "task_outcome",
            "task_event",
            "task_export",
            "task_outbox",
        )
        return {table: await self.rows(f"SELECT * FROM {table} ORDER BY 1, 2, 3") for table in tables}  # noqa: S608


@asynccontextmanager
async def open_stores(dsn: str, **settings: Any) -> AsyncIterator[Stores]:
    """Connect the stores."""
    database = Postgres(PostgresSettings(dsn=SecretUrl(dsn), max_size=12, **settings), "test")
    await database.start()
    try:
        yield Stores(
            database,
            PostgresTasks(database),
            PostgresClaims(database),
            PostgresChannels(database),
            PostgresEvents(database),
        )
    finally:
        await database.stop()


async def plan(connection: Any, statement: str, *arguments: Any) -> str:
    """Return a statement's plan as it would run for these arguments, without running it for good."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        rows = await connection.fetch(
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) " + statement, *arguments
        )
    finally:
        await transaction.rollback()
    return "\n".join(row[0] for row in rows)
