"""Creating tasks: checked, admitted, given a place in the fair order, and stored with their reservation."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError, invalid_field
from servicekit.ids import uuid7
from task_api.domain.channels import Channels
from task_api.domain.json_text import JsonTextError, check_object, refuse_unstorable
from task_api.domain.low_water import LowWater
from task_api.domain.model import MAX_JSON_CHARACTERS, ChannelPolicy, NewTask, Task, Unstored
from task_api.domain.ports import TaskStore, Wakes
from task_api.domain.turns import Pair, Turns

_QUOTA_RETRY = timedelta(seconds=10)


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
    cost: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Created:
    """A stored task, and whether it is new or an idempotency key's earlier one."""

    task: Task
    new: bool


Outcome: TypeAlias = Created | ServiceError
"""How the creation of one task ended."""


class Creation:
    """Creates tasks; each of many stands for itself."""

    def __init__(
        self,
        store: TaskStore,
        channels: Channels,
        wakes: Wakes,
        *,
        turns: Turns,
        low_water: LowWater,
        clock: Clock,
    ) -> None:
        self._store = store
        self._channels = channels
        self._wakes = wakes
        self._turns = turns
        self._low_water = low_water
        self._clock = clock

    async def create(self, tenant: str, request: TaskRequest) -> Created:
        """Store a task; answer it, and whether it is new.

        Raises:
            ServiceError: INVALID_FIELD, NOT_FOUND (no such channel or route), BACKLOG_FULL, QUOTA_EXHAUSTED,
                KEY_REUSED.
        """
        [outcome] = await self.create_many(tenant, [request])
        if isinstance(outcome, ServiceError):
            raise outcome
        return outcome

    async def create_many(self, tenant: str, requests: Sequence[TaskRequest]) -> list[Outcome]:
        """Store tasks by one statement; answer how each went, in order. Raises only when nothing could be tried."""
        outcomes: dict[int, Outcome] = {}
        tasks = await self._checked(tenant, requests, outcomes)
        await self._answer_keys(tasks, outcomes)
        admitted: list[str] = []
        try:
            await self._admit(tasks, outcomes, admitted)
            await self._store_all(tasks, outcomes)
        finally:
            self._channels.settled(admitted)
        return [outcomes[index] for index in range(len(requests))]

    async def _checked(
        self, tenant: str, requests: Sequence[TaskRequest], outcomes: dict[int, Outcome]
    ) -> dict[int, NewTask]:
        tasks = {}
        for index, request in enumerate(requests):
            try:
                policy = await self._policy(request)
                tasks[index] = self._check(tenant, replace(request, channel=policy.name), policy.max_attempts)
            except ServiceError as error:
                if error.reason not in (Reason.INVALID_FIELD, Reason.NOT_FOUND):
                    raise
                outcomes[index] = error
        return tasks

    async def _policy(self, request: TaskRequest) -> ChannelPolicy:
        if not request.model:
            if not request.channel:
                raise invalid_field("channel", "is required where no model is named")
            return await self._channels.get(request.channel)
        if request.channel:
            raise invalid_field("model", "must be left out where a channel is named")
        return await self._channels.routed(request.model)

    async def _answer_keys(self, tasks: dict[int, NewTask], outcomes: dict[int, Outcome]) -> None:
        """Answer the tasks whose keys are known, and leave the others."""
        keyed = {index: task for index, task in tasks.items() if task.idempotency_key}
        if not keyed:
            return
        found = await self._store.find_keys(
            [(task.tenant, task.idempotency_key or "") for task in keyed.values()]
        )
        for index, task in keyed.items():
            earlier = found.get((task.tenant, task.idempotency_key or ""))
            if earlier is None:
                continue
            del tasks[index]
            task_id, request_hash = earlier
            stored = (
                await self._store.get(task_id, task.tenant) if request_hash == task.request_hash else None
            )
            outcomes[index] = Created(stored, new=False) if stored else _reused(str(task_id))

    async def _admit(
        self, tasks: dict[int, NewTask], outcomes: dict[int, Outcome], admitted: list[str]
    ) -> None:
        full: dict[str, ServiceError] = {}
        for index, task in list(tasks.items()):
            if task.channel not in full:
                try:
                    await self._channels.admit(await self._channels.get(task.channel))
                    admitted.append(task.channel)
                    continue
                except ServiceError as error:
                    if error.reason is not Reason.BACKLOG_FULL:
                        raise
                    full[task.channel] = error
            outcomes[index] = full[task.channel]
            del tasks[index]

    async def _store_all(self, tasks: dict[int, NewTask], outcomes: dict[int, Outcome]) -> None:
        if not tasks:
            return
        now = [index for index, task in tasks.items() if not task.delay]
        orders = await self._turns.place(
            [(Pair(tasks[index].channel, tasks[index].tenant), tasks[index].priority) for index in now]
        )
        for index, run_order in zip(now, orders, strict=True):
            tasks[index] = replace(tasks[index], run_order=run_order)
        stored = await self._store.create(list(tasks.values()))
        taken = {}
        for (index, task), answer in zip(tasks.items(), stored, strict=True):
            if isinstance(answer, Task):
                outcomes[index] = Created(answer, new=True)
            elif answer is Unstored.OVER_QUOTA:
                outcomes[index] = over_quota(task.tenant)
            else:
                taken[index] = task
        self._tell([task for index, task in tasks.items() if index in now and index not in taken])
        await self._answer_keys(taken, outcomes)
        for index in taken:
            outcomes[index] = ServiceError(Reason.INTERNAL, "the idempotency key names no task")

    def _tell(self, tasks: Sequence[NewTask]) -> None:
        for task in tasks:
            self._low_water.came(task.channel, task.run_order)
        self._wakes.ready(list(dict.fromkeys(task.channel for task in tasks)))

    def _check(self, tenant: str, request: TaskRequest, default_attempts: int) -> NewTask:
        now = self._clock.now()
        for name, text in (("idempotency_key", request.idempotency_key), ("kind", request.kind)):
            refuse_unstorable_field(name, text)
        if request.delay < timedelta():
            raise invalid_field("delay_ms", "must not be negative")
        if request.cost < 0:
            raise invalid_field("cost", "must not be negative")
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
            cost=request.cost,
        )


def over_quota(tenant: str) -> ServiceError:
    """Describe a task that a tenant's quota can't bear."""
    return ServiceError(
        Reason.QUOTA_EXHAUSTED,
        f"the quota of {tenant} does not bear this task; nothing was stored",
        retry_after=_QUOTA_RETRY,
        metadata={"tenant": tenant},
    )


def refuse_unstorable_field(name: str, text: str) -> None:
    """Raise ServiceError INVALID_FIELD when a field holds NUL or a lone surrogate."""
    try:
        refuse_unstorable(text)
    except JsonTextError as error:
        raise invalid_field(name, str(error)) from None


def _reused(task_id: str) -> ServiceError:
    return ServiceError(
        Reason.KEY_REUSED,
        "the idempotency key was used for another request",
        metadata={"task_id": task_id},
    )


def _request_hash(request: TaskRequest, payload: str) -> bytes:
    parts = [
        request.model or request.channel,
        request.kind,
        payload,
        str(request.payload_version or 1),
        str(request.priority),
        str(request.max_attempts),
        str(request.delay),
    ]
    if request.cost:
        parts.append(str(request.cost))
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
