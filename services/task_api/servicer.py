"""The gRPC edge: proto to domain, call, domain to proto. Field bounds are checked before a servicer is called."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp
from opentelemetry import trace

from servicekit import principal, telemetry
from servicekit.errors import Reason, ServiceError, invalid_field
from sluicegate.operator.v1 import operator_pb2, operator_pb2_grpc
from sluicegate.task.v1 import task_pb2, task_pb2_grpc
from sluicegate.worker.v1 import worker_pb2, worker_pb2_grpc
from task_api.domain.channels import Channels
from task_api.domain.claims import Claims
from task_api.domain.model import (
    AuditRow,
    Channel,
    ChannelPolicy,
    Claimed,
    ClaimKey,
    ClaimRequest,
    Completion,
    Export,
    Failure,
    ProgressReport,
    Task,
    TaskState,
    TextPiece,
    WriteOutcome,
    WriteResult,
)
from task_api.domain.streams import BEGINNING, Event, Hub, parse_cursor
from task_api.domain.tasks import TaskRequest, Tasks, not_found, parse_task_id

_MILLISECOND = timedelta(milliseconds=1)
_WATCH_SECONDS = 3600.0
_NO_TASK = UUID(int=0)
_DEFAULT_TASK_PAGE = 50
_DEFAULT_AUDIT_PAGE = 100
_STATES = {
    TaskState.READY: task_pb2.TASK_STATE_READY,
    TaskState.DEFERRED: task_pb2.TASK_STATE_DEFERRED,
    TaskState.RUNNING: task_pb2.TASK_STATE_RUNNING,
    TaskState.SUCCEEDED: task_pb2.TASK_STATE_SUCCEEDED,
    TaskState.FAILED: task_pb2.TASK_STATE_FAILED,
    TaskState.CANCELLED: task_pb2.TASK_STATE_CANCELLED,
}
_STATE_OF = {number: state for state, number in _STATES.items()}
_OUTCOMES = {
    WriteOutcome.OK: worker_pb2.WRITE_OUTCOME_OK,
    WriteOutcome.CLAIM_LOST: worker_pb2.WRITE_OUTCOME_CLAIM_LOST,
    WriteOutcome.REFUSED: worker_pb2.WRITE_OUTCOME_REFUSED,
}


class TaskServicer(task_pb2_grpc.TaskServiceServicer):
    """``TaskService``, for clients."""

    def __init__(self, tasks: Tasks, hub: Hub) -> None:
        self._tasks = tasks
        self._hub = hub

    async def CreateTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        task, created = await self._tasks.create(
            _tenant(),
            TaskRequest(
                channel=request.channel,
                kind=request.kind,
                payload=request.payload_json,
                payload_version=request.payload_version,
                priority=request.priority,
                idempotency_key=request.idempotency_key,
                max_attempts=request.max_attempts,
                delay=request.delay_ms * _MILLISECOND,
                deadline_at=_instant(request, "deadline_at"),
                traceparent=telemetry.inject(),
            ),
        )
        telemetry.set_attributes(trace.get_current_span(), task_id=str(task.task_id), channel=task.channel)
        return task_pb2.CreateTaskResponse(task=_task(task), created=created)

    async def GetTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        task = await self._tasks.get(_tenant(), parse_task_id(request.task_id))
        return task_pb2.GetTaskResponse(task=_task(task))

    async def ListTasks(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        limit = request.page_size or _DEFAULT_TASK_PAGE
        tasks = await self._tasks.list(
            _tenant(),
            channel=request.channel,
            state=_STATE_OF.get(request.state),
            before=_page_task(request.page_token),
            limit=limit,
        )
        more = str(tasks[-1].task_id) if len(tasks) == limit else ""
        return task_pb2.ListTasksResponse(tasks=map(_task, tasks), next_page_token=more)

    async def CancelTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        task = await self._tasks.cancel(_tenant(), parse_task_id(request.task_id), request.reason)
        return task_pb2.CancelTaskResponse(task=_task(task))

    async def RetryTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        task = await self._tasks.retry(_tenant(), parse_task_id(request.task_id))
        return task_pb2.RetryTaskResponse(task=_task(task))

    async def WatchTask(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, D102
        del context
        task_id = parse_task_id(request.task_id)
        after = parse_cursor(request.after) if request.after else BEGINNING
        if after is None:
            raise invalid_field("after", 'must be "epoch.seq"')
        last = await self._hub.last(task_id, _tenant())
        if last is None:
            raise not_found(request.task_id)
        if last == (after, True):
            return
        async with self._hub.follow(task_id, _tenant(), last, min(after, last.cursor)) as reader:
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
        attempts = await self._tasks.attempts(_tenant(), parse_task_id(request.task_id))
        return task_pb2.ListAttemptsResponse(
            attempts=[
                task_pb2.Attempt(
                    epoch=item.epoch,
                    worker=item.worker,
                    outcome=item.outcome,
                    error_class=item.error_class,
                    error=item.error,
                    started_at=_timestamp(item.started_at),
                    finished_at=_timestamp(item.finished_at),
                )
                for item in attempts
            ]
        )


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """``WorkerService``, for workers in any language."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    async def ClaimTasks(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        claim = ClaimRequest(
            request.worker,
            tuple(dict.fromkeys(request.channels)),
            {item.kind: item.max_payload_version for item in request.capabilities},
            request.max_tasks,
        )
        claimed = await self._claims.claim(claim, request.wait_ms * _MILLISECOND)
        return worker_pb2.ClaimTasksResponse(tasks=map(_claimed, claimed))

    async def RenewClaims(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        renewals = await self._claims.renew([_key(claim) for claim in request.claims])
        return worker_pb2.RenewClaimsResponse(
            results=[
                worker_pb2.RenewClaimResult(
                    task_id=claim.task_id,
                    outcome=_OUTCOMES[WriteOutcome.OK if renewal.held else WriteOutcome.CLAIM_LOST],
                    remaining_ms=renewal.remaining // _MILLISECOND,
                    cancel_requested=renewal.cancel_requested,
                )
                for claim, renewal in zip(request.claims, renewals, strict=True)
            ]
        )

    async def AppendText(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        pieces = [TextPiece(_key(piece.claim), piece.seq, piece.text) for piece in request.pieces]
        results = await self._claims.append_text(pieces)
        return worker_pb2.AppendTextResponse(results=_results(request.pieces, results))

    async def ReportProgress(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        reports = [ProgressReport(_key(item.claim), item.percent, item.message) for item in request.reports]
        results = await self._claims.report_progress(reports)
        return worker_pb2.ReportProgressResponse(results=_results(request.reports, results))

    async def CompleteTasks(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        results = await self._claims.complete([_completion(item) for item in request.completions])
        return worker_pb2.CompleteTasksResponse(results=_results(request.completions, results))

    async def FailTasks(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        failures = [
            Failure(_key(item.claim), item.error_class, item.error, item.retry_after_ms * _MILLISECOND)
            for item in request.failures
        ]
        results = await self._claims.fail(failures)
        return worker_pb2.FailTasksResponse(results=_results(request.failures, results))

    async def ReleaseClaims(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        results = await self._claims.release([_key(claim) for claim in request.claims])
        return worker_pb2.ReleaseClaimsResponse(results=map(_result, request.claims, results))


class OperatorServicer(operator_pb2_grpc.OperatorServiceServicer):
    """``OperatorService``, for people who run it."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    async def SaveChannel(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        policy = ChannelPolicy(
            name=request.channel.name,
            concurrency=request.channel.concurrency,
            max_backlog=request.channel.max_backlog,
            max_attempts=request.channel.max_attempts,
            paused=request.channel.paused,
        )
        saved = await self._channels.save(policy, actor=request.actor, reason=request.reason)
        return operator_pb2.SaveChannelResponse(channel=_channel(Channel(saved)))

    async def ListChannels(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del request, context
        return operator_pb2.ListChannelsResponse(channels=map(_channel, await self._channels.list()))

    async def PauseChannel(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        saved = await self._channels.pause(
            request.name, paused=True, actor=request.actor, reason=request.reason
        )
        return operator_pb2.PauseChannelResponse(channel=_channel(Channel(saved)))

    async def ResumeChannel(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        saved = await self._channels.pause(
            request.name, paused=False, actor=request.actor, reason=request.reason
        )
        return operator_pb2.ResumeChannelResponse(channel=_channel(Channel(saved)))

    async def ListAudit(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        limit = request.page_size or _DEFAULT_AUDIT_PAGE
        rows = await self._channels.audit(before=_page_number(request.page_token), limit=limit)
        more = str(rows[-1].audit_id) if len(rows) == limit else ""
        return operator_pb2.ListAuditResponse(rows=map(_audit_row, rows), next_page_token=more)


def _watched(event: Event) -> Iterator[Any]:
    cursor = str(event.cursor)
    if event.restarts:
        yield task_pb2.WatchTaskResponse(cursor=cursor, kind="reset", data='{"reason":"new_attempt"}')
    yield task_pb2.WatchTaskResponse(cursor=cursor, kind=event.kind, data=event.data)


def _tenant() -> str:
    return principal.current().tenant


def _timestamp(instant: datetime | None) -> Timestamp | None:
    if instant is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(instant)
    return stamp


def _instant(message: Any, field: str) -> datetime | None:
    if not message.HasField(field):
        return None
    try:
        instant: datetime = getattr(message, field).ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise invalid_field(field, "is no instant of the years 1 to 9999") from None
    return instant


def _page_task(token: str) -> UUID | None:
    try:
        return UUID(token) if token else None
    except ValueError:
        raise invalid_field("page_token", "is none that a page has returned") from None


def _page_number(token: str) -> int | None:
    if token and not (token.isascii() and token.isdigit() and len(token) <= 18):  # noqa: PLR2004 - fits bigint
        raise invalid_field("page_token", "is none that a page has returned")
    return int(token) if token else None


def _key(claim: Any) -> ClaimKey:
    try:
        task_id = UUID(claim.task_id)
    except ValueError:
        task_id = _NO_TASK  # no task has it: the write is answered with CLAIM_LOST, the others go on
    return ClaimKey(task_id, claim.owner_token, claim.epoch)


def _results(items: Iterable[Any], results: Sequence[WriteResult]) -> list[Any]:
    return [_result(item.claim, result) for item, result in zip(items, results, strict=True)]


def _result(claim: Any, result: WriteResult) -> Any:
    return worker_pb2.WriteResult(
        task_id=claim.task_id, outcome=_OUTCOMES[result.outcome], message=result.message
    )


def _completion(item: Any) -> Completion:
    export = item.export if item.HasField("export") else None
    pointer = export and Export(
        export.export_id, export.object_key, export.row_count, export.size_bytes, export.sha256
    )
    return Completion(_key(item.claim), item.result_json, pointer or None)


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
        created_at=_timestamp(task.created_at),
        started_at=_timestamp(task.started_at),
        finished_at=_timestamp(task.finished_at),
        due_at=_timestamp(task.due_at),
        deadline_at=_timestamp(task.deadline_at),
        cancel_requested=task.cancel_requested,
        priority=task.priority,
        worker=task.worker,
    )


def _claimed(item: Claimed) -> Any:
    return worker_pb2.ClaimedTask(
        claim=worker_pb2.Claim(
            task_id=str(item.key.task_id), owner_token=item.key.owner, epoch=item.key.epoch
        ),
        tenant=item.tenant,
        channel=item.channel,
        kind=item.kind,
        payload_json=item.payload,
        payload_version=item.payload_version,
        max_attempts=item.max_attempts,
        remaining_ms=item.lease // _MILLISECOND,
        deadline_at=_timestamp(item.deadline_at),
        traceparent=item.traceparent,
        slot_fence=item.slot.fence,
    )


def _channel(channel: Channel) -> Any:
    policy, load = channel.policy, channel.load
    return operator_pb2.Channel(
        name=policy.name,
        concurrency=policy.concurrency,
        max_backlog=policy.max_backlog,
        max_attempts=policy.max_attempts,
        paused=policy.paused,
        version=policy.version,
        ready_count=load.ready,
        deferred_count=load.deferred,
        running_count=load.running,
        oldest_ready_ms=load.oldest_ready // _MILLISECOND,
    )


def _audit_row(row: AuditRow) -> Any:
    return operator_pb2.AuditRow(
        audit_id=row.audit_id,
        changed_at=_timestamp(row.changed_at),
        actor=row.actor,
        action=row.action,
        subject=row.subject,
        reason=row.reason,
        before_json=row.before,
        after_json=row.after,
    )
