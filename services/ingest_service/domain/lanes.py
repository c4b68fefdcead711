"""Lanes: a fixed number of serial streams of database work, each taking what is in hand and never lingering."""

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from ingest_service.domain.applying import Applier, Deferred, Held
from ingest_service.domain.observations import Observation, Outcome, Result
from servicekit.errors import Reason, ServiceError

MOST_PER_BATCH = 200
_RETRY_AFTER = timedelta(seconds=2)

BatchScope = Callable[[int, Sequence[Observation]], AbstractContextManager[object]]
"""Wraps the work on one batch of a lane; the lane's number and the observations are given."""

Answer = Result | Deferred


class Gate(Protocol):
    """Stops all lanes while a dependency is away."""

    async def trip(self, error: BaseException) -> None:
        """Say that a dependency is away; nothing new is taken until it is back."""
        ...

    async def wait_closed(self) -> None:
        """Wait until work may go on."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether a dependency is away."""
        ...


@dataclass(slots=True, eq=False)
class _Job:
    observation: Observation
    hold: bool
    answer: asyncio.Future[Answer]


class Lanes:
    """Applies observations in batches; those of one card always in the same lane. A Component.

    Args:
        applier: applies one batch.
        gate: closed while a dependency is away.
        count: lanes, each with one database connection.
        most_waiting: observations that may wait; more are refused with BACKLOG_FULL.
        scope: wraps the work on each batch.
    """

    name = "lanes"

    def __init__(
        self, applier: Applier, gate: Gate, *, count: int, most_waiting: int, scope: BatchScope
    ) -> None:
        self._applier = applier
        self._gate = gate
        self._most_waiting = most_waiting
        self._scope = scope
        self._queues: list[deque[_Job]] = [deque() for _ in range(count)]
        self._arrived = [asyncio.Event() for _ in range(count)]
        self._idle = asyncio.Event()
        self._idle.set()
        self._unanswered = 0
        self._draining = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def unanswered(self) -> int:
        """How many observations are in hand."""
        return self._unanswered

    async def start(self) -> None:
        """Start the lanes."""
        self._tasks = [
            asyncio.create_task(self._run(number), name=f"lane {number}")
            for number in range(len(self._queues))
        ]

    async def drain(self) -> None:
        """Take nothing new and wait until everything in hand is answered."""
        self._draining = True
        await self._idle.wait()

    async def stop(self) -> None:
        """End the lanes; what is still in hand is given up: nothing of it was answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for queue in self._queues:
            for job in queue:
                job.answer.cancel()
            queue.clear()

    async def apply(self, observation: Observation, *, hold: bool) -> Answer:
        """Apply one observation and return what became of it.

        With ``hold`` it waits as long as a dependency is away. Blocks until then.

        Raises:
            ServiceError: DEPENDENCY_AWAY without ``hold``, and while stopping; BACKLOG_FULL when too many wait.
        """
        if self._draining:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "ingest_service is stopping; call another replica")
        if self._gate.is_open and not hold:
            raise _away()
        if self._unanswered >= self._most_waiting:
            raise ServiceError(Reason.BACKLOG_FULL, "too many observations wait to be applied")
        job = _Job(observation, hold, asyncio.get_running_loop().create_future())
        self._unanswered += 1
        self._idle.clear()
        job.answer.add_done_callback(self._answered)
        lane = zlib.crc32(observation.card_id.encode()) % len(self._queues)
        self._queues[lane].append(job)
        self._arrived[lane].set()
        return await job.answer

    def _answered(self, _future: asyncio.Future[Answer]) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._idle.set()

    async def _run(self, number: int) -> None:
        queue, arrived = self._queues[number], self._arrived[number]
        while True:
            await arrived.wait()
            arrived.clear()
            while queue:
                jobs = [queue.popleft() for _ in range(min(len(queue), MOST_PER_BATCH))]
                await self._process(number, jobs)

    async def _process(self, number: int, jobs: list[_Job]) -> None:
        try:
            while jobs := [job for job in jobs if not job.answer.done()]:
                jobs = await self._attempt(number, jobs)
                if jobs:
                    self._refuse_impatient(number)
                    await self._gate.wait_closed()
        except asyncio.CancelledError:
            for job in jobs:
                job.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - the lane's shell: a bug costs this batch, never the lane
            for job in jobs:
                _fail(job, error)

    async def _attempt(self, number: int, jobs: list[_Job]) -> list[_Job]:
        """Apply a batch once, answer what can be answered and return what waits."""
        by_id = {job.observation.observation_id: job.observation for job in reversed(jobs)}
        with self._scope(number, list(by_id.values())):
            verdicts = await self._applier.apply(list(by_id.values()))
        waiting: list[_Job] = []
        answered: set[UUID] = set()
        for job in jobs:
            observation_id = job.observation.observation_id
            verdict = verdicts[observation_id]
            if not isinstance(verdict, Held):
                _answer(job, _repeated(verdict) if observation_id in answered else verdict)
            elif job.hold:
                waiting.append(job)
            else:
                _refuse(job, verdict.error)
            answered.add(observation_id)
        held = next((verdict for verdict in verdicts.values() if isinstance(verdict, Held)), None)
        if held is not None:
            await self._gate.trip(held.error)
        return waiting

    def _refuse_impatient(self, number: int) -> None:
        """Answer those behind a held batch that can't wait."""
        queue = self._queues[number]
        patient = [job for job in queue if job.hold]
        for job in queue:
            if not job.hold:
                _refuse(job, _away())
        queue.clear()
        queue.extend(patient)


def _answer(job: _Job, answer: Answer) -> None:
    if not job.answer.done():
        job.answer.set_result(answer)


def _refuse(job: _Job, error: Exception) -> None:
    _fail(job, error if isinstance(error, ServiceError) else _away())


def _fail(job: _Job, error: Exception) -> None:
    if not job.answer.done():
        job.answer.set_exception(error)


def _away() -> ServiceError:
    message = (
        "a dependency of ingest_service is away; try again, what was applied before is answered as duplicate"
    )
    return ServiceError(Reason.DEPENDENCY_AWAY, message, retry_after=_RETRY_AFTER)


def _repeated(verdict: Answer) -> Answer:
    """Answer the second of two equal ids in one batch."""
    if isinstance(verdict, Result) and verdict.outcome in {Outcome.APPLIED, Outcome.STALE}:
        return replace(verdict, outcome=Outcome.DUPLICATE, increment_bytes=0)
    return verdict
