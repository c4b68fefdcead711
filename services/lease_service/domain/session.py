"""Many callers' worth of calls over one stream: batches in, answers out as they become ready, losses by themselves."""

import asyncio
import heapq
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lease_service.domain.model import (
    AcquireResult,
    Attempt,
    Claim,
    ReleaseResult,
    RenewItem,
    RenewResult,
    Wait,
)
from lease_service.domain.refusals import refusal
from servicekit.errors import Reason, ServiceError

MOST_RUNNING = 256
"""Batches of one session that may be on their way to the store; then it takes no more messages."""
MOST_RENEWALS = 200


@dataclass(frozen=True, slots=True)
class Take:
    """Acquire one lease, now or with a wait."""

    request_id: int
    claim: Claim
    token: str
    wait: Wait | None


@dataclass(frozen=True, slots=True)
class Extend:
    """Renew leases of one pool."""

    request_id: int
    pool: str
    items: Sequence[RenewItem]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Release leases of one pool, or end waits."""

    request_id: int
    pool: str
    tokens: Sequence[str]


@dataclass(frozen=True, slots=True)
class Loss:
    """A lease that is over without having been released here."""

    pool: str
    token: str


Operation = Take | Extend | GiveBack
Answer = Attempt | Sequence[RenewResult] | Sequence[ReleaseResult] | Exception | Loss
Emit = Callable[[int, Answer], None]


class SlotCalls(Protocol):
    """What anybody may do with slots."""

    async def acquire_batch(
        self, claim: Claim, tokens: Sequence[str], wait: Wait | None = None
    ) -> AcquireResult:
        """Take one lease per token until a scope is full."""
        ...

    async def renew(self, pool: str, items: Sequence[RenewItem]) -> list[RenewResult]:
        """Extend leases."""
        ...

    async def release(self, pool: str, tokens: Sequence[str]) -> list[ReleaseResult]:
        """Give leases back."""
        ...

    async def held(self, pool: str, tokens: Sequence[str]) -> list[int]:
        """Return how many milliseconds each lease lives yet; 0 for none."""
        ...


class Waiting(Protocol):
    """Where requests wait."""

    async def acquire(self, claim: Claim, token: str, wait: Wait) -> AcquireResult:
        """Take one lease, waiting for it."""
        ...

    def call(self, pool: str, token: str) -> None:
        """Let whoever waits for a token ask again."""
        ...


class Session:
    """One stream's calls and leases.

    Args:
        slots: does what is asked.
        waiting: where acquires wait.
        emit: given each answer with its request id, 0 for a loss; must not block.
    """

    def __init__(self, slots: SlotCalls, waiting: Waiting, emit: Emit) -> None:
        self._slots = slots
        self._waiting = waiting
        self._emit = emit
        self._places = asyncio.Semaphore(MOST_RUNNING)
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: dict[str, tuple[str, float]] = {}
        self._ends: list[tuple[float, str]] = []
        self._changed = asyncio.Event()

    async def take(self, operations: Sequence[Operation]) -> None:
        """Begin a message's operations; waits while too many are under way."""
        claims: dict[Claim, list[Take]] = defaultdict(list)
        renewals: dict[str, list[Extend]] = defaultdict(list)
        releases: dict[str, list[GiveBack]] = defaultdict(list)
        for operation in operations:
            match operation:
                case Take(wait=None):
                    claims[operation.claim].append(operation)
                case Take():
                    self._start(self._wait(operation), [operation.request_id])
                case Extend():
                    renewals[operation.pool].append(operation)
                case GiveBack():
                    releases[operation.pool].append(operation)
        for pool, given in releases.items():
            await self._batch(self._release(pool, given), given)
        for pool, extended in renewals.items():
            await self._batch(self._renew(pool, extended), extended)
        for claim, taken in claims.items():
            await self._batch(self._acquire(claim, taken), taken)

    async def watch(self) -> None:
        """Tell of leases that end without a renewal here, for as long as the session lives."""
        while True:
            wait = max(self._ends[0][0] - time.monotonic(), 0) if self._ends else None
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                await self._look(self._due())

    def end(self, error: ServiceError) -> None:
        """Let the stream end with an error."""
        self._emit(0, error)

    def look(self, pool: str, token: str) -> None:
        """Look at a lease because somebody says that it was taken away."""
        if token in self._held and self._held[token][0] == pool:
            self._keep(pool, token, 0)

    async def settle(self) -> None:
        """Wait for everything that is not a wait for a slot, then end the waits."""
        for _ in range(MOST_RUNNING):
            await self._places.acquire()
        await self.close()

    async def close(self) -> None:
        """End everything at once; what waits stops waiting, what is held is left to its ttl."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _batch(
        self, work: Coroutine[Any, Any, None], operations: Sequence[Take | Extend | GiveBack]
    ) -> None:
        try:
            await self._places.acquire()
        except BaseException:
            work.close()
            raise
        task = self._start(work, [operation.request_id for operation in operations])
        task.add_done_callback(lambda _: self._places.release())

    def _start(self, work: Coroutine[Any, Any, None], request_ids: Sequence[int]) -> asyncio.Task[None]:
        async def shell() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the edge of one call of many: it becomes that call's answer
                for request_id in request_ids:
                    self._emit(request_id, error)

        task = asyncio.create_task(shell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _acquire(self, claim: Claim, taken: Sequence[Take]) -> None:
        sent_at = time.monotonic()
        result = await self._slots.acquire_batch(claim, [take.token for take in taken])
        for take, attempt in zip(taken, result.attempts, strict=True):
            self._answer(take, attempt, result, sent_at)

    async def _wait(self, take: Take) -> None:
        assert take.wait is not None  # noqa: S101 - told apart by `take`
        began_at = time.monotonic()
        result = await self._waiting.acquire(take.claim, take.token, take.wait)
        attempt = result.attempts[0]
        self._answer(take, attempt, result, began_at + attempt.waited_ms / 1000)

    def _answer(self, take: Take, attempt: Attempt, result: AcquireResult, at: float) -> None:
        if not attempt.held:
            self._emit(take.request_id, refusal(take.claim, attempt.outcome, result))
            return
        self._keep(take.claim.pool, take.token, at + attempt.remaining_ms / 1000)
        self._emit(take.request_id, attempt)

    async def _renew(self, pool: str, extended: Sequence[Extend]) -> None:
        items = [item for extend in extended for item in extend.items]
        results: list[RenewResult] = []
        for start in range(0, len(items), MOST_RENEWALS):
            results += await self._slots.renew(pool, items[start : start + MOST_RENEWALS])
        now = time.monotonic()
        for result in results:
            if result.token not in self._held:
                continue
            if result.remaining_ms:
                self._keep(pool, result.token, now + result.remaining_ms / 1000)
            else:
                del self._held[result.token]
        _hand_out(results, ((extend.request_id, len(extend.items)) for extend in extended), self._emit)

    async def _release(self, pool: str, given: Sequence[GiveBack]) -> None:
        tokens = [token for give in given for token in give.tokens]
        for token in tokens:
            self._held.pop(token, None)
        results = await self._slots.release(pool, tokens)
        for token in tokens:
            self._waiting.call(pool, token)
        _hand_out(results, ((give.request_id, len(give.tokens)) for give in given), self._emit)

    def _keep(self, pool: str, token: str, until: float) -> None:
        known = token in self._held
        self._held[token] = pool, until
        if not known or until == 0:
            heapq.heappush(self._ends, (until, token))
            self._changed.set()

    def _due(self) -> dict[str, list[str]]:
        """Take what should be over from the heap; what was renewed meanwhile goes back with its new end."""
        due: dict[str, list[str]] = defaultdict(list)
        now = time.monotonic()
        while self._ends and self._ends[0][0] <= now:
            _, token = heapq.heappop(self._ends)
            if token not in self._held:
                continue
            pool, until = self._held[token]
            if until > now:
                heapq.heappush(self._ends, (until, token))
            else:
                due[pool].append(token)
        return due

    async def _look(self, due: dict[str, list[str]]) -> None:
        for pool, tokens in due.items():
            try:
                left = await self._slots.held(pool, tokens)
            except ServiceError:
                left = [_UNKNOWN_MS] * len(tokens)
            for token, left_ms in zip(tokens, left, strict=True):
                if token not in self._held:
                    continue
                del self._held[token]
                if left_ms:
                    self._keep(pool, token, time.monotonic() + left_ms / 1000)
                else:
                    self._emit(0, Loss(pool, token))


_UNKNOWN_MS = 500
"""Look again after that long when the store did not say."""


class Sessions:
    """The sessions of this process, for news that concern any of them. A Component: draining ends them."""

    name = "sessions"

    def __init__(self) -> None:
        self._open: set[Session] = set()
        self._closed = False

    def add(self, session: Session) -> None:
        """Begin to tell a session."""
        self._open.add(session)
        if self._closed:
            session.end(_leaving())

    def remove(self, session: Session) -> None:
        """Tell it no more."""
        self._open.discard(session)

    def look(self, pool: str, token: str) -> None:
        """Let every session look at a lease."""
        for session in self._open:
            session.look(pool, token)

    async def start(self) -> None:
        """Let sessions live."""
        self._closed = False

    async def drain(self) -> None:
        """End every session; what it holds is left to its ttl, and may be renewed elsewhere."""
        self._closed = True
        for session in set(self._open):
            session.end(_leaving())

    async def stop(self) -> None:
        """Do nothing more."""


def _leaving() -> ServiceError:
    return ServiceError(
        Reason.DEPENDENCY_AWAY, "this replica of the lease service is about to stop: begin another session"
    )


def _hand_out(results: Sequence[Any], shares: Iterable[tuple[int, int]], emit: Emit) -> None:
    start = 0
    for request_id, count in shares:
        emit(request_id, results[start : start + count])
        start += count
