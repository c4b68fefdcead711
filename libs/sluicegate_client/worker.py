"""The Python worker: runs handlers for tasks, keeps their claims alive and ends every attempt, whatever happens.

    worker = Worker("127.0.0.1:7105", channels=["text-demo"], name="demo-1", concurrency=4)

    @worker.handler("text.demo", max_payload_version=1)
    async def write_text(task: TaskContext) -> dict[str, object]:
        for word in task.payload["prompt"].split():
            await task.text.write(word + " ")
        await task.progress(100)
        return {"words": 3}

    asyncio.run(worker.run())

A handler says how its attempt ends by what it returns (a mapping, None or a :class:`TaskResult`) or raises
(:class:`TransientError`, :class:`ThrottledError`, :class:`PermanentError`; anything else counts as transient). When
the task is cancelled, the claim is lost or the worker drains, the handler is cancelled: it sees ``CancelledError``
and must let it pass after cleaning up.

A :class:`Worker` is also a component of ``servicekit.lifecycle``: ``start``, ``drain``, ``stop``.
"""

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio

from servicekit.coalescing import Coalescer
from sluicegate_client.attempt import Attempt, AttemptEnds, Handler, completion_bytes
from sluicegate_client.claim_keeper import ClaimKeeper, ClaimKey
from sluicegate_client.handlers import adapt, is_loading_main
from sluicegate_client.sync_context import StoppedError, SyncTaskContext
from sluicegate_client.task_context import StopReason, TaskContext, TaskResult
from sluicegate_client.task_errors import (
    ClaimLostError,
    PermanentError,
    PoisonError,
    TaskError,
    ThrottledError,
    TransientError,
)
from sluicegate_client.thread_handler import SyncHandler
from sluicegate_client.worker_calls import ClaimedTask, ExportPointer, WorkerCalls

__all__ = [
    "ClaimLostError",
    "ExportPointer",
    "Handler",
    "PermanentError",
    "PoisonError",
    "StopReason",
    "StoppedError",
    "SyncHandler",
    "SyncTaskContext",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "ThrottledError",
    "TransientError",
    "Worker",
]

_log = logging.getLogger(__name__)

_TERMINALS_PER_CALL = 64
_COMPLETION_BYTES_PER_CALL = 4 * 1024 * 1024  # half of what a server takes in one message
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)

HandlerT = TypeVar("HandlerT", bound=Handler | SyncHandler)


class Worker:
    """Claims tasks, runs their handlers and writes their ends.

    Args:
        target: ``host:port`` of task_api.
        channels: where to take tasks from.
        name: stable name of this process, for people. Every claim has its own fresh token besides.
        concurrency: most attempts at once.
        token: bearer token, where the server wants one.
        renew_every: time between renewals; at most a third of the server's claim life (45 s).
        loss_margin: a handler is cancelled this long before an unrenewed claim ends.
        claim_wait: how long one claim call waits for the first task.
        text_gather: how long text is collected before it is sent.
        drain_timeout: how long running handlers may go on in ``drain``; then their claims are handed back.
        attempt_timeout: longest run of one attempt; None for no limit but the task's deadline.
        stop_grace: a handler that goes on this long after it was told to stop is left alone, its attempt ended.
    """

    def __init__(
        self,
        target: str,
        *,
        channels: Sequence[str],
        name: str,
        concurrency: int = 1,
        token: str | None = None,
        renew_every: timedelta = timedelta(seconds=15),
        loss_margin: timedelta = timedelta(seconds=5),
        claim_wait: timedelta = timedelta(seconds=10),
        text_gather: timedelta = timedelta(milliseconds=25),
        drain_timeout: timedelta = timedelta(seconds=30),
        attempt_timeout: timedelta | None = None,
        stop_grace: timedelta = timedelta(seconds=10),
    ) -> None:
        self._worker_name = name
        self._channels = list(channels)
        self._concurrency = concurrency
        self._claim_wait = claim_wait
        self._text_gather = text_gather
        self._drain_timeout = drain_timeout
        self._attempt_timeout = attempt_timeout
        self._stop_grace = stop_grace
        self._budgets: dict[str, timedelta] = {}
        self._calls = WorkerCalls(target, token=token)
        self._handlers: dict[str, tuple[Handler, int]] = {}
        self._attempts: dict[asyncio.Task[None], Attempt] = {}
        self._room = asyncio.Event()
        self._draining = False
        self._claiming: asyncio.Task[None] | None = None
        self._keeper = ClaimKeeper(
            self._calls.renew,
            every_seconds=renew_every.total_seconds(),
            margin_seconds=loss_margin.total_seconds(),
        )
        self._ends = AttemptEnds(
            complete=Coalescer(
                self._calls.complete,
                max_items=_TERMINALS_PER_CALL,
                lanes=2,
                weigh=completion_bytes,
                max_weight=_COMPLETION_BYTES_PER_CALL,
            ),
            fail=Coalescer(self._calls.fail, max_items=_TERMINALS_PER_CALL, lanes=2),
            release=self._calls.release,
        )

    @property
    def name(self) -> str:
        """The component's name."""
        return f"worker:{self._worker_name}"

    @property
    def active_count(self) -> int:
        """Attempts that run now."""
        return len(self._attempts)

    @property
    def concurrency(self) -> int:
        """Most attempts at once."""
        return self._concurrency

    def set_concurrency(self, concurrency: int) -> None:
        """Change how many attempts may run at once; running ones go on."""
        self._concurrency = concurrency
        self._room.set()

    def handler(
        self,
        kind: str,
        *,
        max_payload_version: int = 1,
        process: bool = False,
        budget: timedelta | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Register the handler of a kind: an async function, or a plain one, which runs in a thread or a process.

        Args:
            kind: the kind.
            max_payload_version: the newest payload version that it reads; newer ones are left to other workers.
                It also gets older ones: look at ``task.payload_version``.
            process: run a plain function in a process, which is killed to stop it.
            budget: longest run of one attempt; None for the worker's ``attempt_timeout``.

        Raises:
            ValueError: the kind has a handler already.
            TypeError: an async function is to run in a process, or the process could not find the function.
        """

        def register(function: HandlerT) -> HandlerT:
            if kind in self._handlers:
                raise ValueError(f"{kind} has a handler already")
            self._handlers[kind] = (adapt(function, process=process), max_payload_version)
            if budget is not None:
                self._budgets[kind] = budget
            return function

        return register

    async def run(self) -> None:
        """Start, work until SIGTERM or SIGINT, then drain and stop."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await self.start()
        try:
            await stopping.wait()
            await self.drain()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Begin to claim and run tasks; a server that is away is tried again for ever."""
        if not self._handlers:
            raise ValueError("a worker needs at least one handler")
        if is_loading_main():
            raise RuntimeError('start a worker with process handlers under if __name__ == "__main__"')
        self._calls.open()
        self._keeper.start()
        self._draining = False
        self._claiming = asyncio.create_task(self._claim_forever(), name=self.name)

    async def drain(self) -> None:
        """Take no more tasks, let handlers finish within ``drain_timeout``, then hand their claims back."""
        self._draining = True
        await self._stop_claiming()
        if self._attempts:
            await asyncio.wait(set(self._attempts), timeout=self._drain_timeout.total_seconds())
        for attempt in list(self._attempts.values()):
            attempt.stop(StopReason.DRAIN)
        if self._attempts:
            await asyncio.wait(set(self._attempts), timeout=self._drain_timeout.total_seconds())

    async def stop(self) -> None:
        """Let go of everything; claims that are still held run out by themselves."""
        await self._stop_claiming()
        for task in list(self._attempts):
            task.cancel()
        if self._attempts:
            await asyncio.wait(set(self._attempts), timeout=5)
        await asyncio.to_thread(self._keeper.stop)
        await self._calls.close()

    async def _stop_claiming(self) -> None:
        claiming, self._claiming = self._claiming, None
        if claiming is None:
            return
        claiming.cancel()
        await asyncio.wait({claiming})

    async def _claim_forever(self) -> None:
        failures = 0
        while not self._draining:
            try:
                await self._claim_once()
            except grpc.aio.AioRpcError as error:
                _log.warning("no tasks could be claimed: %s %s", error.code().name, error.details())
            except Exception:  # noqa: BLE001 - a loop shell: a worker that claims nothing must not look alive
                _log.exception("no tasks could be claimed")
            else:
                failures = 0
                continue
            pause = _PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)]
            failures += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load

    async def _claim_once(self) -> None:
        self._room.clear()
        room = self._concurrency - len(self._attempts)
        if room <= 0:
            await self._room.wait()
            return
        claimed = await self._claim(min(room, 100))
        for task in claimed:
            if task.kind in self._handlers:
                self._begin(task)
            else:
                await self._ends.hand_back([task.claim])

    async def _claim(self, room: int) -> list[ClaimedTask]:
        """Claim; a cancelled caller still hands back what the call returns."""
        claiming = self._calls.claim(
            worker=self._worker_name,
            channels=self._channels,
            capabilities={kind: version for kind, (_, version) in self._handlers.items()},
            max_tasks=room,
            wait=self._claim_wait,
        )
        call = asyncio.ensure_future(claiming)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await self._hand_back(call)
            raise

    async def _hand_back(self, call: "asyncio.Future[list[ClaimedTask]]") -> None:
        # Cancelling the call tells the server, which returns what it had taken; an answer may be here already.
        call.cancel()
        (outcome,) = await asyncio.gather(call, return_exceptions=True)
        if isinstance(outcome, list) and outcome:
            await self._ends.hand_back([task.claim for task in outcome])

    def _begin(self, claimed: ClaimedTask) -> None:
        handler, _ = self._handlers[claimed.kind]
        budget = self._budgets.get(claimed.kind, self._attempt_timeout)
        attempt = Attempt(
            claimed,
            handler,
            calls=self._calls,
            ends=self._ends,
            text_gather_seconds=self._text_gather.total_seconds(),
            timeout_seconds=budget.total_seconds() if budget is not None else None,
            grace_seconds=self._stop_grace.total_seconds(),
        )
        task = asyncio.create_task(attempt.run(), name=f"attempt-{claimed.claim.task_id}")
        self._attempts[task] = attempt
        self._keep(claimed.claim, claimed.remaining, attempt)
        task.add_done_callback(partial(self._finished, claimed.claim))

    def _keep(self, claim: ClaimKey, remaining: timedelta, attempt: Attempt) -> None:
        loop = asyncio.get_running_loop()

        def tell(reason: StopReason) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(attempt.stop, reason)

        self._keeper.add(
            claim,
            remaining_seconds=remaining.total_seconds(),
            on_lost=partial(tell, StopReason.CLAIM_LOST),
            on_cancel=partial(tell, StopReason.CANCEL_REQUESTED),
        )

    def _finished(self, claim: ClaimKey, task: "asyncio.Task[Any]") -> None:
        self._keeper.remove(claim)
        self._attempts.pop(task, None)
        self._room.set()
