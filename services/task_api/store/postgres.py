"""Tasks in PostgreSQL: create, read, cancel, run again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from servicekit.coalescing import Coalescer
from servicekit.metrics import Metric, counter
from servicekit.postgres import Postgres, load_sql
from task_api.domain.model import Attempt, NewTask, Task, TaskState, Unstored

_MOST_CREATED = 200
_LANES = 2
_MILLISECOND = timedelta(milliseconds=1)


class PostgresTasks:
    """The tables ``task*``, for clients. Concurrent creations share statements."""

    def __init__(self, database: Postgres) -> None:
        self._database = database
        self._creating: Coalescer[NewTask, Task | Unstored] = Coalescer(
            self._create, max_items=_MOST_CREATED, lanes=_LANES
        )

    async def create(self, tasks: Sequence[NewTask]) -> Sequence[Task | Unstored]:
        """Store tasks by one statement; answer each as stored, or why it is not."""
        return await self._creating.submit(tasks)

    async def find_keys(
        self, keys: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], tuple[UUID, bytes]]:
        """Return the tasks of idempotency keys, given as (tenant, key), and the hashes of their requests."""
        rows = await self._database.pool.fetch(
            _sql("find_keys"), [tenant for tenant, _ in keys], [key for _, key in keys]
        )
        return {
            (row["tenant"], row["idempotency_key"]): (row["task_id"], bytes(row["request_hash"]))
            for row in rows
        }

    async def exists(self, task_id: UUID) -> bool:
        """Tell whether there is a task, whoever's it is."""
        return bool(await self._database.pool.fetchval(_sql("task_exists"), task_id))

    async def get(self, task_id: UUID, tenant: str) -> Task | None:
        """Return a task of this tenant."""
        row = await self._database.pool.fetchrow(_sql("get_task"), task_id, tenant)
        return _task(row) if row else None

    async def list(
        self, tenant: str, *, channel: str, state: TaskState | None, before: UUID | None, limit: int
    ) -> Sequence[Task]:
        """Return tasks, newest first."""
        rows = await self._database.pool.fetch(
            _sql("list_tasks"), tenant, channel, state.value if state else "", before, limit
        )
        return [_task(row) for row in rows]

    async def attempts(self, task_id: UUID, tenant: str) -> Sequence[Attempt]:
        """Return the ended attempts in order."""
        rows = await self._database.pool.fetch(_sql("list_attempts"), task_id, tenant)
        return [
            Attempt(
                epoch=row["epoch"],
                worker=row["worker"] or "",
                outcome=row["outcome"],
                error_class=row["error_class"] or "",
                error=row["error"] or "",
                started_at=row["started_at"],
                finished_at=row["finished_at"],
            )
            for row in rows
        ]

    async def cancel_waiting(self, task_id: UUID, tenant: str, reason: str) -> bool:
        """End a task that waits; False when it does not."""
        return await self._database.pool.fetchval(_sql("cancel_waiting"), task_id, tenant, reason) is not None

    async def cancel_running(self, task_id: UUID, tenant: str, reason: str) -> bool:
        """Ask a running task to stop; False when it does not run."""
        return await self._database.pool.fetchval(_sql("cancel_running"), task_id, tenant, reason) is not None

    async def retry(self, task_id: UUID, tenant: str, run_order: int) -> str | Unstored | None:
        """Let an ended task wait again; answer its channel, OVER_QUOTA, or None when it can't be run again."""
        row = await self._database.pool.fetchrow(_sql("retry_task"), task_id, tenant, run_order)
        if row is None:
            return None
        return Unstored.OVER_QUOTA if row["refused"] else str(row["channel"])

    async def create_partitions(self) -> int:
        """Make the partitions of the next months; answer how many were missing."""
        return int(await self._database.pool.fetchval(_sql("create_partitions")))

    async def _create(self, tasks: Sequence[NewTask]) -> Sequence[Task | Unstored]:
        rows = await self._database.pool.fetch(
            _sql("create_tasks"),
            [task.task_id for task in tasks],
            [task.tenant for task in tasks],
            [task.channel for task in tasks],
            [task.kind for task in tasks],
            [task.payload for task in tasks],
            [task.payload_version for task in tasks],
            [task.priority for task in tasks],
            [task.max_attempts for task in tasks],
            [task.idempotency_key for task in tasks],
            [task.request_hash for task in tasks],
            [task.delay // _MILLISECOND for task in tasks],
            [task.deadline_at for task in tasks],
            [task.traceparent for task in tasks],
            [task.run_order for task in tasks],
            [task.cost for task in tasks],
        )
        stored = {row["id"]: row for row in rows if not row["refused"]}
        refused = {row["id"] for row in rows if row["refused"]}
        for channel, count in Counter(task.channel for task in tasks if task.task_id in stored).items():
            counter(Metric.TASKS_CREATED).labels(channel).inc(count)
        return [
            _stored(task, stored[task.task_id])
            if task.task_id in stored
            else (Unstored.OVER_QUOTA if task.task_id in refused else Unstored.KEY_TAKEN)
            for task in tasks
        ]


def _sql(name: str) -> str:
    return load_sql(__name__, name)


def _stored(task: NewTask, row: Any) -> Task:
    return Task(
        task_id=task.task_id,
        tenant=task.tenant,
        channel=task.channel,
        kind=task.kind,
        payload=task.payload,
        payload_version=task.payload_version,
        priority=task.priority,
        max_attempts=task.max_attempts,
        created_at=row["created_at"],
        state=TaskState.DEFERRED if row["due_at"] else TaskState.READY,
        deadline_at=task.deadline_at,
        due_at=row["due_at"],
        cost=task.cost,
    )


def _task(row: Any) -> Task:
    return Task(
        task_id=row["id"],
        tenant=row["tenant"],
        channel=row["channel"],
        kind=row["kind"],
        payload=row["payload"],
        payload_version=row["payload_version"],
        priority=row["priority"],
        max_attempts=row["max_attempts"],
        created_at=row["created_at"],
        state=TaskState(row["state"]),
        deadline_at=row["deadline_at"],
        due_at=row["due_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        attempt_count=row["attempt_count"],
        result=row["result"] or "",
        error=row["error"] or "",
        progress_percent=row["progress_percent"],
        cancel_requested=row["cancel_requested"],
        worker=row["worker"],
        cost=row["cost"],
    )
