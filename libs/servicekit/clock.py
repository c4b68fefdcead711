"""Time as something that is handed in, so that tests decide what time it is."""

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_SETTLE_TURNS = 20


class Clock(Protocol):
    """Tells the time and waits for it to pass."""

    def now(self) -> datetime:
        """Return the present instant: aware, UTC, microseconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds; zero or less only lets other tasks run."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present instant: aware, UTC, microseconds."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds of real time."""
        await asyncio.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that stands still until a test moves it.

    Args:
        start: the first instant; aware. The default is 2026-01-01T00:00:00Z.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._start = (start or datetime(2026, 1, 1, tzinfo=UTC)).astimezone(UTC)
        self._elapsed = timedelta()
        self._order = itertools.count()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Return the instant that the test has reached."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return the seconds that the test has let pass."""
        return self._elapsed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the clock far enough."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due = self._elapsed + timedelta(seconds=seconds)
        heapq.heappush(self._sleepers, (due, next(self._order), future))
        await future

    @property
    def sleeping(self) -> int:
        """How many tasks wait for this clock: what a test looks at before it moves the time."""
        return sum(1 for _, _, future in self._sleepers if not future.done())

    def advance(self, seconds: float) -> None:
        """Move the time and wake, in order of their due times, all who waited for it.

        Woken tasks run when the caller next awaits; see :meth:`run_for` to let them run between wake-ups.
        """
        self._elapsed += timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    async def run_for(self, seconds: float) -> None:
        """Move the time in steps from one due sleeper to the next, and let woken tasks run after each step."""
        end = self._elapsed + timedelta(seconds=seconds)
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.advance((self._sleepers[0][0] - self._elapsed).total_seconds())
            await self.settle()
        self.advance((end - self._elapsed).total_seconds())
        await self.settle()

    async def settle(self) -> None:
        """Let every task that can run do so, without moving the time."""
        for _ in range(_SETTLE_TURNS):
            await asyncio.sleep(0)
