"""task_api's stores on a real database, without the rest of the service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from servicekit.ids import new_token, uuid7
from servicekit.postgres import Postgres
from servicekit.settings import PostgresSettings
from servicekit.values import SecretUrl
from task_api.domain.low_water import BEGINNING
from task_api.domain.model import Claimed, ClaimRequest, DueTask, NewTask, Slot, Task, Unstored
from task_api.domain.turns import Pair, Turns
from task_api.store.postgres import PostgresTasks
from task_api.store.postgres_channels import PostgresChannels
from task_api.store.postgres_claims import PostgresClaims
from task_api.store.postgres_events import PostgresEvents
from task_api.store.postgres_turns import PostgresTurns

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
    turns: Turns

    async def create(self, **changes: Any) -> UUID:
        """Store a task."""
        [stored] = await self.create_all([new_task(**changes)])
        assert isinstance(stored, Task)
        assert stored == await self.tasks.get(stored.task_id, stored.tenant)
        return stored.task_id

    async def create_all(self, tasks: Sequence[NewTask]) -> Sequence[Task | Unstored]:
        """Store tasks by one statement, each at its fair place."""
        places = await self.turns.place([(Pair(task.channel, task.tenant), task.priority) for task in tasks])
        placed = [replace(task, run_order=place) for task, place in zip(tasks, places, strict=True)]
        return await self.tasks.create(placed)

    async def place(self, due: Sequence[DueTask]) -> Sequence[int]:
        """Give due tasks their fair places."""
        return await self.turns.place([(Pair(task.channel, task.tenant), task.priority) for task in due])

    async def retry(self, task_id: UUID, tenant: str) -> str | Unstored | None:
        """Run a task again."""
        [place] = await self.turns.place([(Pair("c", tenant), 0)])
        return await self.tasks.retry(task_id, tenant, place)

    async def claim(self, count: int = 1, *, lease: timedelta = LEASE, **changes: Any) -> list[Claimed]:
        """Claim up to ``count`` tasks."""
        channel = changes.pop("channel", "c")
        capabilities = changes.pop("capabilities", {"k": 1})
        request = ClaimRequest(changes.pop("worker", "w"), (channel,), capabilities, count)
        slots = [Slot(new_token(), number) for number in range(count)]
        claimed = await self.claims.claim(
            channel, request, new_token(), slots=slots, lease=lease, start=BEGINNING
        )
        for item in claimed:
            self.turns.reached(channel, item.run_order)
        return list(claimed)

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
            " task_export, task_outbox, task_outbox_batch, task_audit, channel_mark, channel_turn, task_tenant, quota,"
            " ledger_entry, route RESTART IDENTITY"
        )
        self.turns = Turns(PostgresTurns(self.database))

    async def snapshot(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return everything that a write could change."""
        tables = (
            "task_ready",
            "task_deferred",
            "task_lease",
            "task_outcome",
            "task_event",
            "task_export",
            "task_outbox_batch",
            "ledger_entry",
            "quota",
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
            Turns(PostgresTurns(database)),
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
