"""The shell around a timed role: it runs again and again, logs what goes wrong and never dies."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

from servicekit.clock import Clock, SystemClock
from servicekit.failures import describe, service_error
from servicekit.logs import get_logger

_log = get_logger(__name__)

_LONGEST_PAUSE_SECONDS = 30.0
_SHORTEST_PAUSE_SECONDS = 0.2

RunOnce = Callable[[], Awaitable[object]]
"""One round. Returning True says that more work waits: the next round follows at once."""


class Loop:
    """Runs ``run_once`` every so often. A Component.

    After a failure the pause doubles, up to 30 s or ``every`` if that is longer, until a round succeeds.

    Args:
        name: for logs and health.
        run_once: one round of the role.
        every: time from the end of one round to the start of the next.
        clock: paces the rounds.
        jitter: part of ``every`` by which a pause may be shorter or longer, so that processes don't march in step.
    """

    def __init__(
        self,
        name: str,
        run_once: RunOnce,
        *,
        every: timedelta | float,
        clock: Clock | None = None,
        jitter: float = 0.1,
    ) -> None:
        self._name = name
        self._run_once = run_once
        self._every = every.total_seconds() if isinstance(every, timedelta) else every
        self._clock = clock or SystemClock()
        self._jitter = jitter
        self._failures = 0
        self._stopping = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The role's name."""
        return self._name

    @property
    def failures(self) -> int:
        """How many rounds in a row have failed."""
        return self._failures

    def wake(self) -> None:
        """Let the next round start at once."""
        self._wake.set()

    async def start(self) -> None:
        """Begin with a first round."""
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name=f"loop:{self._name}")

    async def drain(self) -> None:
        """Start no further round and wait for the present one to end."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def stop(self) -> None:
        """Cancel the present round."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            more = await self._round()
            if self._stopping:
                return
            if more:
                await asyncio.sleep(0)
            else:
                await self._pause()

    async def _round(self) -> bool:
        try:
            more = await self._run_once()
        except Exception as error:  # noqa: BLE001 - a loop shell: one failed round must not end the role
            self._failures += 1
            known = service_error(error)
            if known is None:
                _log.exception("a round failed", loop=self._name, failures=self._failures)
            else:
                _log.warning(
                    "a round failed", loop=self._name, failures=self._failures, problem=describe(known)
                )
            return False
        self._failures = 0
        return more is True

    async def _pause(self) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(self._pause_seconds()))
        waking = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waking.cancel()

    def _pause_seconds(self) -> float:
        seconds = self._every
        if self._failures:
            longest = max(seconds, _LONGEST_PAUSE_SECONDS)
            seconds = min(longest, max(seconds, _SHORTEST_PAUSE_SECONDS) * 2 ** min(self._failures - 1, 16))
        return seconds * (1 + self._jitter * random.uniform(-1, 1))  # noqa: S311 - spreads load, hides nothing
