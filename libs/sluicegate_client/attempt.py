"""One attempt of one task: runs the handler and writes exactly one end, or none once the claim is lost."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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


def completion_bytes(completion: Completion) -> int:
    """Return about how many bytes a completion takes of a message."""
    return len(completion.result_json.encode()) + 1024


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
        timeout_seconds: longest run; None for no limit but the task's deadline.
        grace_seconds: a handler that goes on this long after it was told to stop is left alone, its attempt ended.
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
        grace_seconds: float = 10.0,
    ) -> None:
        self._claim = claimed.claim
        self._traceparent = claimed.traceparent
        self._handler = handler
        self._calls = calls
        self._ends = ends
        self._limit, self._limit_reason = _limit(claimed, timeout_seconds)
        self._grace = grace_seconds
        self._running: asyncio.Task[TaskResult] | None = None
        self._given_up = asyncio.Event()
        self._timers: list[asyncio.TimerHandle] = []
        self._ending: asyncio.Task[None] | None = None
        self._context = TaskContext(
            claimed,
            text=TextWriter(self._append, gather_seconds=text_gather_seconds),
            report=self._report,
            ends_at=None if self._limit is None else time.monotonic() + self._limit,
        )

    def stop(self, reason: StopReason) -> None:
        """Cancel the handler; a lost claim also stops the writing of the end."""
        if self._context.stop_reason is None or reason is StopReason.CLAIM_LOST:
            self._context.stop_reason = reason
        if self._running is not None and not self._running.done():
            self._running.cancel()
            self._call_later(self._grace, self._give_up)
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
        if self._limit is not None:
            self._call_later(self._limit, self.stop, self._limit_reason)
        try:
            await self._stopped_or_done(self._running)
        finally:
            for timer in self._timers:
                timer.cancel()
        self._ending = asyncio.create_task(self._end(self._running))
        await asyncio.wait({self._ending})
        if not self._ending.cancelled() and (error := self._ending.exception()) is not None:
            _log.error("the end of task %s was not stored: %s", self._claim.task_id, error)

    async def _stopped_or_done(self, running: "asyncio.Task[TaskResult]") -> None:
        giving_up = asyncio.ensure_future(self._given_up.wait())
        try:
            await asyncio.wait({running, giving_up}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running})
            raise
        finally:
            giving_up.cancel()

    def _call_later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, call, *arguments))

    def _give_up(self) -> None:
        """Leave a handler alone that was cancelled and goes on; what it writes from here on is refused."""
        _log.error("task %s: its handler goes on after it was cancelled", self._claim.task_id)
        if self._running is not None:
            self._running.cancel()
            self._running.add_done_callback(_forget)
        self._given_up.set()

    async def _handle(self) -> TaskResult:
        if self._context.stop_reason is not None:
            raise asyncio.CancelledError
        result = encode_result(await self._call_handler())
        await self._context.text.flush()
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
        if not running.done() or running.cancelled():
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
        elif reason is None:
            await self._end_failed(FailureReport("transient", "the handler cancelled itself"))
        else:
            await self._end_failed(
                FailureReport("transient", f"the attempt's time is used up ({reason.value})")
            )

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


def _limit(claimed: ClaimedTask, timeout_seconds: float | None) -> tuple[float | None, StopReason]:
    """Return how long an attempt may take, in seconds, and what ends it then: its budget or the task's deadline."""
    if claimed.deadline_at is None:
        return timeout_seconds, StopReason.BUDGET
    left = max(0.0, (claimed.deadline_at - datetime.now(UTC)).total_seconds())
    if timeout_seconds is not None and timeout_seconds <= left:
        return timeout_seconds, StopReason.BUDGET
    return left, StopReason.DEADLINE


def _forget(running: "asyncio.Task[TaskResult]") -> None:
    """Take the outcome of a handler that was left alone, so that nobody is warned of it."""
    if not running.cancelled():
        running.exception()
