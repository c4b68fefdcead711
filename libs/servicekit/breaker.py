"""Stops work while infrastructure is away and starts it again when a probe succeeds."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime

from servicekit.clock import Clock, SystemClock
from servicekit.failures import describe
from servicekit.logs import get_logger
from servicekit.metrics import Metric, gauge

_log = get_logger(__name__)

Probe = Callable[[], Awaitable[object]]
"""Does real work with what was away; raises or returns False while it can't."""

Action = Callable[[], Awaitable[object] | None]


class Breaker:
    """Closed while all is well; open from the first infrastructure failure until a probe succeeds. A Component.

    Args:
        probe: tried again and again while open, with pauses that double from ``first_pause`` to ``longest_pause``
            and vary by half.
        on_open: stops taking work, for example RDY 0.
        on_close: starts taking work again, for example a ramp.
        clock: paces the probes.
        name: for logs and metrics.
        probe_seconds: a probe that takes longer has failed.
    """

    def __init__(
        self,
        probe: Probe,
        on_open: Action,
        on_close: Action,
        clock: Clock | None = None,
        *,
        name: str = "breaker",
        first_pause: float = 0.5,
        longest_pause: float = 15.0,
        probe_seconds: float = 5.0,
    ) -> None:
        self._probe = probe
        self._on_open = on_open
        self._on_close = on_close
        self._clock = clock or SystemClock()
        self._name = name
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._probe_seconds = probe_seconds
        self._opened_at: datetime | None = None
        self._closed = asyncio.Event()
        self._closed.set()
        self._task: asyncio.Task[None] | None = None
        self._gauge = gauge(Metric.BREAKER_OPEN).labels(breaker=name)

    @property
    def name(self) -> str:
        """What is guarded."""
        return self._name

    @property
    def is_open(self) -> bool:
        """Whether work must stay away."""
        return not self._closed.is_set()

    @property
    def opened_at(self) -> datetime | None:
        """Since when it is open, or None."""
        return self._opened_at

    async def trip(self, error: BaseException) -> None:
        """Open because of an infrastructure failure; does nothing while open."""
        if self.is_open:
            return
        self._closed.clear()
        self._opened_at = self._clock.now()
        self._gauge.set(1)
        _log.error("breaker opened", breaker=self._name, problem=describe(error))
        self._task = asyncio.create_task(self._recover(), name=f"breaker:{self._name}")
        await _do(self._on_open)

    async def wait_closed(self) -> None:
        """Wait until work may go on; returns at once while closed."""
        await self._closed.wait()

    async def start(self) -> None:
        """Do nothing: it begins closed."""

    async def drain(self) -> None:
        """Do nothing: an open breaker keeps probing so that what is held can still be finished."""

    async def stop(self) -> None:
        """End the probing."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _recover(self) -> None:
        pause = self._first_pause
        while True:
            await self._clock.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load, hides nothing
            if await self._probe_works():
                break
            pause = min(self._longest_pause, pause * 2)
        opened_at, self._opened_at = self._opened_at, None
        self._closed.set()
        self._gauge.set(0)
        seconds = (self._clock.now() - opened_at).total_seconds() if opened_at else 0.0
        _log.info("breaker closed", breaker=self._name, open_seconds=round(seconds, 3))
        await _do(self._on_close)

    async def _probe_works(self) -> bool:
        try:
            async with asyncio.timeout(self._probe_seconds):
                return await self._probe() is not False
        except Exception as error:  # noqa: BLE001 - a loop shell: whatever a probe raises means "still away"
            _log.info("still away", breaker=self._name, problem=describe(error))
            return False


async def _do(action: Action) -> None:
    outcome = action()
    if outcome is not None:
        await outcome
