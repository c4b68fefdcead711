"""``WorkerService``: for workers in any language."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sluicegate.worker.v1 import worker_pb2, worker_pb2_grpc
from task_api.domain.claims import Claims
from task_api.domain.model import (
    Claimed,
    ClaimKey,
    ClaimRequest,
    Completion,
    Export,
    Failure,
    ProgressReport,
    TextPiece,
    WriteOutcome,
    WriteResult,
)
from task_api.servicer.wire import timestamp

_MILLISECOND = timedelta(milliseconds=1)
_NO_TASK = UUID(int=0)
_OUTCOMES = {
    WriteOutcome.OK: worker_pb2.WRITE_OUTCOME_OK,
    WriteOutcome.CLAIM_LOST: worker_pb2.WRITE_OUTCOME_CLAIM_LOST,
    WriteOutcome.REFUSED: worker_pb2.WRITE_OUTCOME_REFUSED,
}


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
        reports = [
            ProgressReport(_key(item.claim), item.percent, item.message, item.seq) for item in request.reports
        ]
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
        deadline_at=timestamp(item.deadline_at),
        traceparent=item.traceparent,
        slot_fence=item.slot.fence,
    )
