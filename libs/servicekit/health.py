"""Health that tells the truth: not serving first, then what the dependencies show when they are made to work."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from servicekit.clock import Clock, SystemClock
from servicekit.logs import get_logger

_log = get_logger(__name__)

Check = Callable[[], Awaitable[object]]
"""Does real work with a dependency; raises or returns False when it can't."""


@dataclass(frozen=True, slots=True)
class CheckState:
    """What one check last found."""

    ok: bool
    detail: str
    since: datetime


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """Whether the process serves, and why not."""

    serving: bool
    ready: bool
    checks: Mapping[str, CheckState]


Listener = Callable[[HealthSnapshot], Awaitable[None]]


class Health:
    """Polls the checks and tells listeners about changes. A Component; `lifecycle` starts and stops it.

    Args:
        clock: paces the polling.
        every: time from one round of checks to the next.
        timeout: a check that takes longer has failed.
    """

    name = "health"

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        every: timedelta = timedelta(seconds=2),
        timeout: timedelta = timedelta(seconds=2),
    ) -> None:
        self._clock = clock or SystemClock()
        self._every = every.total_seconds()
        self._timeout = timeout.total_seconds()
        self._checks: dict[str, Check] = {}
        self._states: dict[str, CheckState] = {}
        self._listeners: list[Listener] = []
        self._ready = False
        self._task: asyncio.Task[None] | None = None

    def add_check(self, name: str, check: Check) -> None:
        """Watch one dependency; it counts as away until its check has passed once."""
        self._checks[name] = check
        self._states[name] = CheckState(ok=False, detail="not checked yet", since=self._clock.now())

    def add_listener(self, listener: Listener) -> None:
        """Call ``listener`` with the new snapshot after every change."""
        self._listeners.append(listener)

    def snapshot(self) -> HealthSnapshot:
        """Return what is known now, without checking anything."""
        serving = self._ready and all(state.ok for state in self._states.values())
        return HealthSnapshot(serving=serving, ready=self._ready, checks=dict(self._states))

    @property
    def serving(self) -> bool:
        """Whether this process takes work."""
        return self._ready and all(state.ok for state in self._states.values())

    async def start(self) -> None:
        """Check everything once, then say that the process is ready, and go on checking."""
        self._ready = True
        await self.check_now()
        await self._tell()
        self._task = asyncio.create_task(self._poll(), name="health")

    async def turn_off(self) -> None:
        """Say NOT_SERVING from now on: the first step of stopping."""
        self._ready = False
        await self._tell()

    async def drain(self) -> None:
        """Turn off; checks hold nothing that would have to be finished."""
        await self.turn_off()

    async def stop(self) -> None:
        """End the polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def check_now(self) -> HealthSnapshot:
        """Run every check at once and tell listeners if anything changed."""
        results = await asyncio.gather(*(self._run(name) for name in self._checks))
        if any(results):
            await self._tell()
        return self.snapshot()

    async def _poll(self) -> None:
        while True:
            await self._clock.sleep(self._every)
            await self.check_now()

    async def _run(self, name: str) -> bool:
        problem = await self._problem(self._checks[name])
        before = self._states[name]
        if before.ok == (problem is None):
            return False
        self._states[name] = CheckState(ok=problem is None, detail=problem or "", since=self._clock.now())
        if problem is None:
            _log.info("dependency is back", dependency=name)
        else:
            _log.warning("dependency is away", dependency=name, problem=problem)
        return True

    async def _problem(self, check: Check) -> str | None:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await check()
        except TimeoutError:
            return f"no answer within {self._timeout:g} s"
        except Exception as error:  # noqa: BLE001 - a loop shell: whatever a check raises means "away"
            return f"{type(error).__name__}: {error}"
        return "the check said no" if answer is False else None

    async def _tell(self) -> None:
        snapshot = self.snapshot()
        for listener in self._listeners:
            await listener(snapshot)
