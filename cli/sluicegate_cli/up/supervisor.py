"""Keep processes and engines alive, and stop them in order."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from devengines.errors import EngineError
from servicekit.errors import ServiceError
from servicekit.nsq.admin import NsqAdmin
from sluicegate_cli.up.child import Child
from sluicegate_cli.up.engines import Engine, Engines, stop_engines
from sluicegate_cli.up.screen import Screen
from sluicegate_cli.up.services import STOP_GROUPS

_LOOK_SECONDS = 0.5
_BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)
_STEADY_SECONDS = 60.0
_STOP_SECONDS = 30.0
_EMPTY_SECONDS = 15.0
_QUEUES = (("card.ingest", "ingest_service"), ("card.collection", "collection_writer"))


@dataclass(slots=True)
class Supervisor:
    """What runs, and what to do when something does not."""

    engines: Engines
    screen: Screen
    children: list[Child] = field(default_factory=list)
    on_restart: Callable[[], object] = lambda: None
    _due: dict[str, float] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)

    async def watch(self) -> None:
        """Restart whatever ends, with a growing pause; runs until cancelled."""
        while True:
            for engine in self.engines.own:
                self._look_at_engine(engine)
            for child in self.children:
                self._look_at(child)
            await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self) -> None:
        """Stop everything in order, each for a bounded time; nothing is left running."""
        for group in STOP_GROUPS:
            stopping = [child for child in self.children if child.name in group]
            await asyncio.gather(*(self._stop_one(child) for child in stopping))
            await self._empty_queue(group)
        for name in stop_engines(self.engines):
            self.screen.say(f"stopped {name}")

    def kill(self) -> None:
        """End everything at once."""
        for child in self.children:
            child.kill()
        for engine in self.engines.own:
            engine.kill()

    def _look_at(self, child: Child) -> None:
        if child.running:
            if time.monotonic() - child.started_at > _STEADY_SECONDS:
                self._failures.pop(child.name, None)
            return
        if not self._is_due(child.name):
            return
        if child.name not in self._due:
            pause = self._plan_restart(child.name)
            self.screen.say(
                f"{child.name} ended with {_ending(child.exit_code)}: restarting in {pause:g} s; {_clue(child)}"
            )
            return
        del self._due[child.name]
        child.restarts += 1
        child.start()
        self.screen.say(f"{child.name} restarted, pid {child.pid}")
        self.on_restart()

    def _look_at_engine(self, engine: Engine) -> None:
        if engine.running or not self._is_due(engine.name):
            return
        pause = self._plan_restart(engine.name)
        self.screen.say(f"{engine.name} has ended: restarting it; its log is {engine.log_path}")
        try:
            engine.start()
        except EngineError as error:
            self.screen.say(f"{error}; next try in {pause:g} s")
            return
        del self._due[engine.name]
        self.screen.say(f"{engine.name} restarted, pid {engine.pid}")
        self.on_restart()

    def _is_due(self, name: str) -> bool:
        return time.monotonic() >= self._due.get(name, 0.0)

    def _plan_restart(self, name: str) -> float:
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        pause = _BACKOFF_SECONDS[min(failures, len(_BACKOFF_SECONDS) - 1)]
        self._due[name] = time.monotonic() + pause
        return pause

    async def _stop_one(self, child: Child) -> None:
        if not child.running:
            return
        ended = await child.stop(_STOP_SECONDS)
        self.screen.say(
            f"stopped {child.name}" if ended else f"{child.name} did not end in {_STOP_SECONDS:.0f} s: killed"
        )

    async def _empty_queue(self, group: Sequence[str]) -> None:
        """Let a broker that forgets be emptied before its readers go; the durable one keeps what waits."""
        if self.engines.durable_broker or not self.engines.nsqd_http:
            return
        readers = {"poller": _QUEUES[0], "ingest_service": _QUEUES[1]}
        for stopped, (topic, channel) in readers.items():
            reader = next((child for child in self.children if child.name == channel), None)
            if stopped not in group or reader is None or not reader.running:
                continue
            with contextlib.suppress(ServiceError):
                await _wait_empty(NsqAdmin(self.engines.nsq_settings), topic, channel)


async def _wait_empty(admin: NsqAdmin, topic: str, channel: str) -> None:
    deadline = time.monotonic() + _EMPTY_SECONDS
    while await admin.backlog(topic, channel) and time.monotonic() < deadline:  # noqa: ASYNC110 - asks a server
        await asyncio.sleep(_LOOK_SECONDS / 5)


def _clue(child: Child) -> str:
    """Say where to look: a process that a signal ended said nothing about it."""
    if (child.exit_code or 0) < 0:
        return f"its log is {child.log}"
    return f"its log ends with\n{child.tail()}"


def _ending(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
