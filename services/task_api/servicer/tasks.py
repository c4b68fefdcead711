"""``TaskService``: for clients."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

from opentelemetry import trace

from servicekit import telemetry
from servicekit.errors import Reason, ServiceError, invalid_field
from sluicegate.task.v1 import task_pb2, task_pb2_grpc
from task_api.domain.creation import Creation, Outcome, TaskRequest
from task_api.domain.model import Task, TaskState
from task_api.domain.streams import BEGINNING, Event, Hub, parse_cursor
from task_api.domain.tasks import Tasks, not_found, parse_task_id
from task_api.servicer.wire import instant, page_task, tenant, timestamp

_MILLISECOND = timedelta(milliseconds=1)
_WATCH_SECONDS = 3600.0
_DEFAULT_TASK_PAGE = 50
_STATES = {
    TaskState.READY: task_pb2.TASK_STATE_READY,
    TaskState.DEFERRED: task_pb2.TASK_STATE_DEFERRED,
    TaskState.RUNNING: task_pb2.TASK_STATE_RUNNING,
    TaskState.SUCCEEDED: task_pb2.TASK_STATE_SUCCEEDED,
    TaskState.FAILED: task_pb2.TASK_STATE_FAILED,
    TaskState.CANCELLED: task_pb2.TASK_STATE_CANCELLED,
}
_STATE_OF = {number: state for state, number in _STATES.items()}


class TaskServicer(task_pb2_grpc.TaskServiceServicer):
    """``TaskService``, for clients."""

    def __init__(self, tasks: Tasks, creation: Creation, hub: Hub) -> None:
        self._tasks = tasks
        self._creation = creation
        self._hub = hub

    async def CreateTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        created = await self._creation.create(tenant(), task_request(request))
        telemetry.set_attributes(
            trace.get_current_span(), task_id=str(created.task.task_id), channel=created.task.channel
        )
        return task_pb2.CreateTaskResponse(task=_task(created.task), created=created.new)

    async def CreateTasks(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        outcomes = await self._creation.create_many(tenant(), [task_request(item) for item in request.tasks])
        return task_pb2.CreateTasksResponse(results=map(_created, outcomes))

    async def GetTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        task = await self._tasks.get(tenant(), parse_task_id(request.task_id))
        return task_pb2.GetTaskResponse(task=_task(task))

    async def ListTasks(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        limit = request.page_size or _DEFAULT_TASK_PAGE
        tasks = await self._tasks.list(
            tenant(),
            channel=request.channel,
            state=_STATE_OF.get(request.state),
            before=page_task(request.page_token),
            limit=limit,
        )
        more = str(tasks[-1].task_id) if len(tasks) == limit else ""
        return task_pb2.ListTasksResponse(tasks=map(_task, tasks), next_page_token=more)

    async def CancelTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        task = await self._tasks.cancel(tenant(), parse_task_id(request.task_id), request.reason)
        return task_pb2.CancelTaskResponse(task=_task(task))

    async def RetryTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        task = await self._tasks.retry(tenant(), parse_task_id(request.task_id))
        return task_pb2.RetryTaskResponse(task=_task(task))

    async def WatchTask(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, D102
        del context
        task_id = parse_task_id(request.task_id)
        after = parse_cursor(request.after) if request.after else BEGINNING
        if after is None:
            raise invalid_field("after", 'must be "epoch.seq"')
        last = await self._hub.last(task_id, tenant())
        if last is None:
            raise not_found(request.task_id)
        if last == (after, True):
            return
        async with self._hub.follow(task_id, tenant(), last, min(after, last.cursor)) as reader:
            while not reader.ended:
                events = await reader.pull(_WATCH_SECONDS)
                for event in events:
                    for message in _watched(event):
                        yield message
                if self._hub.closing and not reader.ended:
                    raise ServiceError(
                        Reason.DEPENDENCY_AWAY, "this server stops: watch again from the last cursor"
                    )

    async def ListAttempts(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        attempts = await self._tasks.attempts(tenant(), parse_task_id(request.task_id))
        return task_pb2.ListAttemptsResponse(
            attempts=[
                task_pb2.Attempt(
                    epoch=item.epoch,
                    worker=item.worker,
                    outcome=item.outcome,
                    error_class=item.error_class,
                    error=item.error,
                    started_at=timestamp(item.started_at),
                    finished_at=timestamp(item.finished_at),
                )
                for item in attempts
            ]
        )


def task_request(request: Any) -> TaskRequest:
    """Read what a client asks for; raises ServiceError INVALID_FIELD."""
    return TaskRequest(
        channel=request.channel,
        kind=request.kind,
        payload=request.payload_json,
        payload_version=request.payload_version,
        priority=request.priority,
        idempotency_key=request.idempotency_key,
        max_attempts=request.max_attempts,
        delay=request.delay_ms * _MILLISECOND,
        deadline_at=instant(request, "deadline_at"),
        traceparent=telemetry.inject(),
        cost=request.cost,
        model=request.model,
    )


def _created(outcome: Outcome) -> Any:
    if isinstance(outcome, ServiceError):
        refusal = task_pb2.Refusal(
            reason=outcome.reason.value,
            message=outcome.message,
            retry_after_ms=(outcome.retry_after or timedelta()) // _MILLISECOND,
            metadata=outcome.metadata,
        )
        return task_pb2.CreateTaskResult(refusal=refusal)
    return task_pb2.CreateTaskResult(task=_task(outcome.task), created=outcome.new)


def _watched(event: Event) -> Iterator[Any]:
    cursor = str(event.cursor)
    if event.restarts:
        yield task_pb2.WatchTaskResponse(cursor=cursor, kind="reset", data='{"reason":"new_attempt"}')
    yield task_pb2.WatchTaskResponse(cursor=cursor, kind=event.kind, data=event.data)


def _task(task: Task) -> Any:
    return task_pb2.Task(
        task_id=str(task.task_id),
        tenant=task.tenant,
        channel=task.channel,
        kind=task.kind,
        payload_json=task.payload,
        payload_version=task.payload_version,
        state=_STATES[task.state],
        attempt_count=task.attempt_count,
        max_attempts=task.max_attempts,
        result_json=task.result,
        error=task.error,
        progress_percent=task.progress_percent,
        created_at=timestamp(task.created_at),
        started_at=timestamp(task.started_at),
        finished_at=timestamp(task.finished_at),
        due_at=timestamp(task.due_at),
        deadline_at=timestamp(task.deadline_at),
        cancel_requested=task.cancel_requested,
        priority=task.priority,
        worker=task.worker,
        cost=task.cost,
    )
