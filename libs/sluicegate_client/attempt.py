"""One attempt of one task: runs the handler and writes exactly one end, or none once the claim is lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc.aio
from opentelemetry.trace import SpanKind

from servicekit import telemetry
from servicekit.coalescing import Coalescer
from sluicegate_client.claim_keeper import ClaimKey
from sluicegate_client.task_context import StopReason, TaskContext, TaskResult, encode_result, result_json
from sluicegate_client.task_errors import (
    ClaimLostError,
    FailureReport,
    PermanentError,
    TransientError,
    describe_failure,
)
from sluicegate_client.text_writer import TextWriter, storable
from sluicegate_client.worker_calls import ClaimedTask, Completion, Failure, WorkerCalls, WriteAnswer

_log = logging.getLogger(__name__)

_MAX_ERROR_CHARACTERS = 16_000

Handler: TypeAlias = Callable[[TaskContext], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class AttemptEnds:
    """Writes the ends of attempts, many in one call."""

    complete: Coalescer[Completion, WriteAnswer]
    fail: Coalescer[Failure, WriteAnswer]
    release: Callable[[Sequence[ClaimKey]], Awaitable[Sequence[WriteAnswer]]]

    async def hand_back(self, claims: Sequence[ClaimKey]) -> None:
        """Hand claims back; what can't be handed back runs out by itself."""
        try:
            await self.release(claims)
        except grpc.aio.AioRpcError as error:
            _log.warning("claims were not handed back: %s", error.code().name)


class Attempt:
    """Runs one handler from its claim to its end.

    Args:
        claimed: the task and its claim.
        handler: what to run.
        calls: the connection.
        ends: where its end goes.
        text_gather_seconds: how long text is collected before it is sent.
        timeout_seconds: longest run; None for no limit.
    """

    def __init__(
        self,
        claimed: ClaimedTask,
        handler: Handler,
        *,
        calls: WorkerCalls,
        ends: AttemptEnds,
        text_gather_seconds: float,
        timeout_seconds: float | None,
    ) -> None:
        self._claim = claimed.claim
        self._traceparent = claimed.traceparent
        self._handler = handler
        self._calls = calls
        self._ends = ends
        self._timeout = timeout_seconds
        self._running: asyncio.Task[TaskResult] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._context = TaskContext(
            claimed,
            text=TextWriter(self._append, gather_seconds=text_gather_seconds),
            report=self._report,
        )

    def stop(self, reason: StopReason) -> None:
        """Cancel the handler; a lost claim also stops the writing of the end."""
        if self._context.stop_reason is not StopReason.CLAIM_LOST:
            self._context.stop_reason = reason
        if self._running is not None and not self._running.done():
            self._running.cancel()
        elif reason is StopReason.CLAIM_LOST and self._ending is not None:
            self._ending.cancel()

    async def run(self) -> None:
        """Run the handler and write the end; raises nothing but CancelledError."""
        with telemetry.traced(
            "run task",
            kind=SpanKind.CONSUMER,
            parent=telemetry.extract(self._traceparent),
            task_id=self._claim.task_id,
            attempt=self._claim.epoch,
        ):
            await self._run()

    async def _run(self) -> None:
        self._running = asyncio.create_task(self._handle())
        try:
            await asyncio.wait({self._running})
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait({self._running})
            raise
        self._ending = asyncio.create_task(self._end(self._running))
        await asyncio.wait({self._ending})
        if not self._ending.cancelled() and (error := self._ending.exception()) is not None:
            _log.error("the end of task %s was not stored: %s", self._claim.task_id, error)

    async def _handle(self) -> TaskResult:
        try:
            if self._context.stop_reason is not None:
                raise asyncio.CancelledError
            async with asyncio.timeout(self._timeout) as limit:
                result = encode_result(await self._call_handler())
                await self._context.text.flush()
        except TimeoutError:
            if limit.expired():
                self._context.stop_reason = StopReason.BUDGET
            raise
        return result

    async def _call_handler(self) -> object:
        """Run the handler; what would end the whole process (SystemExit) only ends the attempt."""
        try:
            return await self._handler(self._context)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise TransientError(f"the handler raised {type(error).__name__}") from error

    async def _end(self, running: "asyncio.Task[TaskResult]") -> None:
        if running.cancelled():
            await self._end_stopped()
            return
        error = running.exception()
        if self._lost(error):
            await self._context.text.abandon()
            _log.warning("task %s: the claim is lost, its work is dropped", self._claim.task_id)
        elif error is not None:
            await self._end_failed(describe_failure(error))
        else:
            await self._end_well(running.result())

    def _lost(self, error: BaseException | None) -> bool:
        return self._context.stop_reason is StopReason.CLAIM_LOST or isinstance(error, ClaimLostError)

    async def _end_stopped(self) -> None:
        reason = self._context.stop_reason
        if reason is StopReason.CANCEL_REQUESTED:
            await self._send_rest()
            await self._fail(FailureReport("cancelled", "stopped on request"))
        elif reason is StopReason.DRAIN:
            await self._context.text.abandon()
            await self._ends.hand_back([self._claim])
        elif reason is StopReason.CLAIM_LOST:
            await self._context.text.abandon()
        else:
            await self._end_failed(FailureReport("transient", "the handler cancelled itself"))

    async def _end_failed(self, report: FailureReport) -> None:
        await self._send_rest()
        await self._fail(report)

    async def _end_well(self, result: TaskResult) -> None:
        try:
            completion = Completion(self._claim, result_json(result.value), result.export)
            (answer,) = await self._ends.complete.submit([completion])
            if answer.refused is None:
                return
            problem = answer.refused
        except PermanentError as error:
            problem = str(error)
        await self._fail(FailureReport("permanent", problem))

    async def _fail(self, report: FailureReport) -> None:
        error = storable(report.error)[:_MAX_ERROR_CHARACTERS]
        failure = Failure(self._claim, FailureReport(report.error_class, error, report.retry_after))
        await self._ends.fail.submit([failure])

    async def _send_rest(self) -> None:
        try:
            await self._context.text.flush()
        except Exception as error:  # noqa: BLE001 - the attempt's own end matters more than its last words
            _log.warning("task %s: its last text was not stored: %s", self._claim.task_id, error)

    async def _append(self, pieces: Sequence[tuple[int, str]]) -> None:
        (await self._calls.append_text(self._claim, pieces)).raise_for()

    async def _report(self, percent: int, message: str) -> None:
        try:
            answer = await self._calls.report_progress(self._claim, percent, message)
        except grpc.aio.AioRpcError as error:
            _log.warning("progress was not stored: %s", error.code().name)
            return
        answer.raise_for()
