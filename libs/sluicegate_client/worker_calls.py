"""The calls of a worker: typed, with deadlines, and repeated only where that is safe."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import grpc
import grpc.aio

from sluicegate.worker.v1 import worker_pb2, worker_pb2_grpc
from sluicegate_client.claim_keeper import ClaimKey, Renewal
from sluicegate_client.task_errors import ClaimLostError, FailureReport, PermanentError

_CALL_SECONDS = 10.0
_RENEW_SECONDS = 5.0
_CLAIM_EXTRA_SECONDS = 10.0
_RETRY_SECONDS = (0.1, 0.3, 1.0, 2.0)
_AGAIN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
    }
)
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 3_000),
)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ExportPointer:
    """Where the one logical result of an export is; stored with its completion."""

    export_id: str
    object_key: str
    row_count: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ClaimedTask:
    """A task and the right to write for it."""

    claim: ClaimKey
    tenant: str
    channel: str
    kind: str
    payload_json: str
    payload_version: int
    max_attempts: int
    remaining: timedelta
    deadline_at: datetime | None
    traceparent: str
    slot_fence: int


@dataclass(frozen=True, slots=True)
class Completion:
    """The good end of an attempt."""

    claim: ClaimKey
    result_json: str
    export: ExportPointer | None


@dataclass(frozen=True, slots=True)
class Failure:
    """The bad end of an attempt."""

    claim: ClaimKey
    report: FailureReport


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """How one write ended."""

    lost: bool
    refused: str | None

    def raise_for(self) -> None:
        """Raise ClaimLostError or PermanentError unless the write was stored."""
        if self.lost:
            raise ClaimLostError("the claim is no longer held")
        if self.refused is not None:
            raise PermanentError(self.refused)


class WorkerCalls:
    """A worker's connection to ``WorkerService``.

    Args:
        target: ``host:port``.
        token: bearer token, or None where the server wants none.
    """

    def __init__(self, target: str, *, token: str | None = None) -> None:
        self._target = target
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel: grpc.aio.Channel | None = None
        self._renew_channel: grpc.Channel | None = None

    def open(self) -> None:
        """Make the channels; nothing is sent yet."""
        self._channel = grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        self._renew_channel = grpc.insecure_channel(self._target, options=_OPTIONS)
        self._stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
        self._renew_stub = worker_pb2_grpc.WorkerServiceStub(self._renew_channel)

    async def close(self) -> None:
        """Close the channels."""
        if self._channel is not None:
            await self._channel.close()
        if self._renew_channel is not None:
            self._renew_channel.close()

    async def claim(
        self,
        *,
        worker: str,
        channels: Sequence[str],
        capabilities: Mapping[str, int],
        max_tasks: int,
        wait: timedelta,
    ) -> list[ClaimedTask]:
        """Take up to ``max_tasks`` tasks, waiting up to ``wait`` for the first; one attempt, no retries."""
        request = worker_pb2.ClaimTasksRequest(
            worker=worker,
            channels=channels,
            capabilities=[
                worker_pb2.Capability(kind=kind, max_payload_version=version)
                for kind, version in capabilities.items()
            ],
            max_tasks=max_tasks,
            wait_ms=int(wait / timedelta(milliseconds=1)),
        )
        answer = await self._call(
            self._stub.ClaimTasks, request, seconds=wait.total_seconds() + _CLAIM_EXTRA_SECONDS
        )
        return [_claimed(task) for task in answer.tasks]

    def renew(self, claims: Sequence[ClaimKey]) -> list[Renewal]:
        """Extend claims; blocks: for the keeper's thread. Raises grpc.RpcError."""
        request = worker_pb2.RenewClaimsRequest(claims=[_claim(claim) for claim in claims])
        answer = self._renew_stub.RenewClaims(request, timeout=_RENEW_SECONDS, metadata=self._metadata)
        return [
            Renewal(
                result.task_id,
                result.outcome != worker_pb2.WRITE_OUTCOME_OK,
                result.remaining_ms / 1000,
                result.cancel_requested,
            )
            for result in answer.results
        ]

    async def append_text(self, claim: ClaimKey, pieces: Sequence[tuple[int, str]]) -> WriteAnswer:
        """Append text events; repeated until the server answers. The first bad answer counts."""
        request = worker_pb2.AppendTextRequest(
            pieces=[worker_pb2.TextPiece(claim=_claim(claim), seq=seq, text=text) for seq, text in pieces]
        )
        answer = await self._until_answered(self._stub.AppendText, request)
        return next((bad for bad in map(_answer, answer.results) if bad.lost or bad.refused), _STORED)

    async def report_progress(self, claim: ClaimKey, percent: int, message: str) -> WriteAnswer:
        """Report progress; one attempt."""
        request = worker_pb2.ReportProgressRequest(
            reports=[worker_pb2.Progress(claim=_claim(claim), percent=percent, message=message)]
        )
        answer = await self._call(self._stub.ReportProgress, request, seconds=_CALL_SECONDS)
        return _answer(answer.results[0])

    async def complete(self, completions: Sequence[Completion]) -> list[WriteAnswer]:
        """End tasks well; repeated until the server answers."""
        request = worker_pb2.CompleteTasksRequest(completions=[_completion(item) for item in completions])
        answer = await self._until_answered(self._stub.CompleteTasks, request)
        return [_answer(result) for result in answer.results]

    async def fail(self, failures: Sequence[Failure]) -> list[WriteAnswer]:
        """End attempts badly; repeated until the server answers."""
        request = worker_pb2.FailTasksRequest(
            failures=[
                worker_pb2.Failure(
                    claim=_claim(item.claim),
                    error_class=item.report.error_class,
                    error=item.report.error,
                    retry_after_ms=int(item.report.retry_after / timedelta(milliseconds=1)),
                )
                for item in failures
            ]
        )
        answer = await self._until_answered(self._stub.FailTasks, request)
        return [_answer(result) for result in answer.results]

    async def release(self, claims: Sequence[ClaimKey]) -> list[WriteAnswer]:
        """Hand claims back untouched; one attempt: an unanswered one runs out by itself."""
        request = worker_pb2.ReleaseClaimsRequest(claims=[_claim(claim) for claim in claims])
        answer = await self._call(self._stub.ReleaseClaims, request, seconds=_CALL_SECONDS)
        return [_answer(result) for result in answer.results]

    async def _call(
        self, method: Callable[..., Awaitable[Answer]], request: Any, *, seconds: float
    ) -> Answer:
        return await method(request, timeout=seconds, metadata=self._metadata)

    async def _until_answered(self, method: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        """Repeat a write that is safe to repeat until an answer comes; the claim's end cancels the caller."""
        attempt = 0
        while True:
            try:
                return await self._call(method, request, seconds=_CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AGAIN:
                    raise PermanentError(error.details() or error.code().name) from error
            pause = _RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)]
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load
            attempt += 1


_STORED = WriteAnswer(lost=False, refused=None)


def _claim(claim: ClaimKey) -> worker_pb2.Claim:
    return worker_pb2.Claim(task_id=claim.task_id, owner_token=claim.owner_token, epoch=claim.epoch)


def _completion(item: Completion) -> worker_pb2.Completion:
    message = worker_pb2.Completion(claim=_claim(item.claim), result_json=item.result_json)
    if item.export is not None:
        message.export.export_id = item.export.export_id
        message.export.object_key = item.export.object_key
        message.export.row_count = item.export.row_count
        message.export.size_bytes = item.export.size_bytes
        message.export.sha256 = item.export.sha256
    return message


def _claimed(task: worker_pb2.ClaimedTask) -> ClaimedTask:
    return ClaimedTask(
        claim=ClaimKey(task.claim.task_id, task.claim.owner_token, task.claim.epoch),
        tenant=task.tenant,
        channel=task.channel,
        kind=task.kind,
        payload_json=task.payload_json,
        payload_version=task.payload_version,
        max_attempts=task.max_attempts,
        remaining=timedelta(milliseconds=task.remaining_ms),
        deadline_at=task.deadline_at.ToDatetime(tzinfo=UTC) if task.HasField("deadline_at") else None,
        traceparent=task.traceparent,
        slot_fence=task.slot_fence,
    )


def _answer(result: worker_pb2.WriteResult) -> WriteAnswer:
    refused = result.outcome == worker_pb2.WRITE_OUTCOME_REFUSED
    return WriteAnswer(
        lost=result.outcome == worker_pb2.WRITE_OUTCOME_CLAIM_LOST,
        refused=(result.message or "refused") if refused else None,
    )
