"""What clients do with tasks: create, read, cancel, run again."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError, invalid_field
from servicekit.ids import uuid7
from task_api.domain.channels import Channels
from task_api.domain.json_text import JsonTextError, check_object, refuse_unstorable
from task_api.domain.model import MAX_JSON_CHARACTERS, Attempt, NewTask, Task, TaskState
from task_api.domain.ports import TaskStore, Wakes

_CANCEL_ROUNDS = 3
_DEFAULT_PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """What a client asks for; zeros and empty texts stand for defaults."""

    channel: str
    kind: str
    payload: str = ""
    payload_version: int = 0
    priority: int = 0
    idempotency_key: str = ""
    max_attempts: int = 0
    delay: timedelta = timedelta()
    deadline_at: datetime | None = None
    traceparent: str = ""


class Tasks:
    """The use-cases of ``TaskService``."""

    def __init__(self, store: TaskStore, channels: Channels, wakes: Wakes, *, clock: Clock) -> None:
        self._store = store
        self._channels = channels
        self._wakes = wakes
        self._clock = clock

    async def create(self, tenant: str, request: TaskRequest) -> tuple[Task, bool]:
        """Store a task; answer it, and whether it is new.

        Raises:
            ServiceError: INVALID_FIELD, NOT_FOUND (no such channel), BACKLOG_FULL, KEY_REUSED.
        """
        policy = await self._channels.get(request.channel)
        task = self._check(tenant, request, policy.max_attempts)
        if task.idempotency_key and (found := await self._earlier(task)) is not None:
            return found, False
        await self._channels.admit(policy)
        stored = await self._store.create(task)
        if stored is None:
            found = await self._earlier(task)
            if found is None:
                raise ServiceError(Reason.INTERNAL, "the idempotency key names no task")
            return found, False
        if not task.delay:
            self._wakes.ready([task.channel])
        return stored, True

    async def get(self, tenant: str, task_id: UUID) -> Task:
        """Return a task; raises ServiceError NOT_FOUND, also for another tenant's."""
        task = await self._store.get(task_id, tenant)
        if task is None:
            raise not_found(str(task_id))
        return task

    async def list(
        self, tenant: str, *, channel: str, state: TaskState | None, before: UUID | None, limit: int
    ) -> Sequence[Task]:
        """Return a page of tasks, newest first; a limit of 0 means 50."""
        return await self._store.list(
            tenant, channel=channel, state=state, before=before, limit=limit or _DEFAULT_PAGE
        )

    async def attempts(self, tenant: str, task_id: UUID) -> Sequence[Attempt]:
        """Return the ended attempts of a task; raises ServiceError NOT_FOUND."""
        await self.get(tenant, task_id)
        return await self._store.attempts(task_id, tenant)

    async def cancel(self, tenant: str, task_id: UUID, reason: str) -> Task:
        """End a waiting task at once and ask a running one to stop; an ended one stays as it is.

        Raises:
            ServiceError: NOT_FOUND, INVALID_FIELD.
        """
        _storable("reason", reason)
        for _ in range(_CANCEL_ROUNDS):  # a task may move between waiting and running meanwhile
            if await self._store.cancel_waiting(task_id, tenant, reason):
                self._wakes.text([task_id])
                break
            if await self._store.cancel_running(task_id, tenant, reason):
                break
            task = await self.get(tenant, task_id)
            if task.finished_at is not None:
                return task
        return await self.get(tenant, task_id)

    async def retry(self, tenant: str, task_id: UUID) -> Task:
        """Run a failed or cancelled task again; raises ServiceError NOT_FOUND or WRONG_STATE."""
        channel = await self._store.retry(task_id, tenant)
        task = await self.get(tenant, task_id)
        if channel is None:
            raise ServiceError(
                Reason.WRONG_STATE,
                f"the task is {task.state.value}: only failed and cancelled tasks whose deadline has not passed "
                "can be run again",
                metadata={"state": task.state.value},
            )
        self._wakes.ready([channel])
        return task

    def _check(self, tenant: str, request: TaskRequest, default_attempts: int) -> NewTask:
        now = self._clock.now()
        for name, text in (("idempotency_key", request.idempotency_key), ("kind", request.kind)):
            _storable(name, text)
        if request.delay < timedelta():
            raise invalid_field("delay_ms", "must not be negative")
        if request.deadline_at is not None and request.deadline_at <= now + request.delay:
            raise invalid_field("deadline_at", "must be later than the earliest start")
        try:
            payload = check_object(request.payload, most_characters=MAX_JSON_CHARACTERS)
        except JsonTextError as error:
            raise invalid_field("payload_json", str(error)) from None
        return NewTask(
            task_id=uuid7(now),
            tenant=tenant,
            channel=request.channel,
            kind=request.kind,
            payload=payload,
            payload_version=request.payload_version or 1,
            priority=request.priority,
            max_attempts=request.max_attempts or default_attempts,
            idempotency_key=request.idempotency_key or None,
            request_hash=_request_hash(request, payload),
            delay=request.delay,
            deadline_at=request.deadline_at,
            traceparent=request.traceparent,
        )

    async def _earlier(self, task: NewTask) -> Task | None:
        found = await self._store.find_key(task.tenant, task.idempotency_key or "")
        if found is None:
            return None
        task_id, request_hash = found
        if request_hash != task.request_hash:
            raise ServiceError(
                Reason.KEY_REUSED,
                "the idempotency key was used for another request",
                metadata={"task_id": str(task_id)},
            )
        return await self.get(task.tenant, task_id)


def not_found(task_id: str) -> ServiceError:
    """Describe a task that does not exist for this caller."""
    return ServiceError(Reason.NOT_FOUND, f"there is no task {task_id}", metadata={"task_id": task_id})


def parse_task_id(text: str) -> UUID:
    """Return the id in a text; what is no id belongs to no task: raises ServiceError NOT_FOUND."""
    try:
        return UUID(text)
    except ValueError:
        raise not_found(text[:64]) from None


def _storable(name: str, text: str) -> None:
    try:
        refuse_unstorable(text)
    except JsonTextError as error:
        raise invalid_field(name, str(error)) from None


def _request_hash(request: TaskRequest, payload: str) -> bytes:
    parts = (
        request.channel,
        request.kind,
        payload,
        str(request.payload_version or 1),
        str(request.priority),
        str(request.max_attempts),
        str(request.delay),
    )
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
