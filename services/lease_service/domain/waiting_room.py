"""Requests of this process that wait for slots.

Nobody polls: a request asks the store once, sleeps, and asks again when somebody says so, because it was granted, sent
away, or because news may have been missed. Whatever it then hears is the truth; a message is only a hint to ask.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from lease_service.domain.model import AcquireResult, Claim, Outcome, Wait
from servicekit.errors import Reason, ServiceError

_LEAVING_RETRY = timedelta(milliseconds=200)


class Asking(Protocol):
    """What the use-cases of slots offer to those who wait."""

    async def acquire_batch(
        self, claim: Claim, tokens: Sequence[str], wait: Wait | None = None
    ) -> AcquireResult:
        """Take leases, or join the queue."""
        ...

    def give_back(self, pool: str, tokens: Sequence[str]) -> None:
        """Release tokens in the background, whatever they hold; they also stop waiting."""
        ...


class _Seat:
    """One request that waits.

    Attributes:
        called: set when it should ask again.
        queued: whether the store knows that it waits.
    """

    __slots__ = ("called", "queued")

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.queued = False


class WaitingRoom:
    """Where requests of this process wait. A Component: draining sends everybody away.

    Args:
        slots: asks the store, and gives back.
    """

    name = "waiting_room"

    def __init__(self, slots: Asking) -> None:
        self._slots = slots
        self._seats: dict[str, dict[str, list[_Seat]]] = {}
        self._closed = False

    async def acquire(self, claim: Claim, token: str, wait: Wait) -> AcquireResult:
        """Take one lease, waiting for it as long as ``wait`` says.

        A wait that is over has the outcome FULL in its attempt and what was in the way in the result. However the
        call ends without a lease, also by cancellation, the token waits no more, and a grant that came at the same
        moment is given back.

        Raises:
            ServiceError: as ``Slots.acquire_batch``; DEPENDENCY_AWAY when this process is about to stop.
        """
        ends_at = time.monotonic() + wait.wait_ms / 1000
        with self._seat(claim.pool, token) as seat:
            try:
                return await self._wait(claim, token, wait, seat, ends_at)
            except BaseException:
                self._slots.give_back(claim.pool, [token])
                raise

    def call(self, pool: str, token: str) -> None:
        """Let whoever waits for a token ask again; nobody may."""
        for seat in self._seats.get(pool, {}).get(token, ()):
            seat.called.set()

    def call_all(self, pool: str | None = None) -> None:
        """Let everybody ask again, in one pool or in all: news may have been missed."""
        for name in list(self._seats) if pool is None else [pool]:
            for token in self._seats.get(name, ()):
                self.call(name, token)

    def pools(self) -> list[str]:
        """Return the pools in which somebody waits here."""
        return list(self._seats)

    def queued(self, pool: str) -> int:
        """Return how many wait here undisturbed: the store must know at least as many."""
        return sum(seat.queued for seats in self._seats.get(pool, {}).values() for seat in seats)

    async def start(self) -> None:
        """Let requests wait."""
        self._closed = False

    async def drain(self) -> None:
        """Send everybody away, so that the server's calls end; nobody waits afterwards."""
        self._closed = True
        self.call_all()

    async def stop(self) -> None:
        """Do nothing more."""

    async def _wait(self, claim: Claim, token: str, wait: Wait, seat: _Seat, ends_at: float) -> AcquireResult:
        place, began_at = 0, time.monotonic()
        while True:
            self._check_open()
            seat.called.clear()
            asked_at = time.monotonic()
            left_ms = max(round((ends_at - asked_at) * 1000), 1)
            result = await self._slots.acquire_batch(
                claim, [token], replace(wait, wait_ms=left_ms, place=place)
            )
            attempt = result.attempts[0]
            if attempt.outcome is not Outcome.WAITING:
                waited_ms = int((asked_at - began_at) * 1000)
                return replace(result, attempts=[replace(attempt, waited_ms=waited_ms)])
            place = attempt.fence
            seat.queued = True
            over = not await _called(seat, ends_at)
            seat.queued = False
            if over:
                self._slots.give_back(claim.pool, [token])
                return replace(
                    result, attempts=[replace(attempt, outcome=Outcome.WAIT_OVER, fence=0, remaining_ms=0)]
                )

    def _check_open(self) -> None:
        if self._closed:
            raise ServiceError(
                Reason.DEPENDENCY_AWAY,
                "this replica of the lease service is about to stop: ask again",
                retry_after=_LEAVING_RETRY,
            )

    @contextmanager
    def _seat(self, pool: str, token: str) -> Iterator[_Seat]:
        seat = _Seat()
        self._seats.setdefault(pool, {}).setdefault(token, []).append(seat)
        try:
            yield seat
        finally:
            seats = self._seats[pool]
            seats[token].remove(seat)
            if not seats[token]:
                del seats[token]
            if not seats:
                del self._seats[pool]


async def _called(seat: _Seat, ends_at: float) -> bool:
    """Wait until somebody calls; False when the time is over first."""
    try:
        async with asyncio.timeout(max(ends_at - time.monotonic(), 0)):
            await seat.called.wait()
    except TimeoutError:
        return False
    return True
