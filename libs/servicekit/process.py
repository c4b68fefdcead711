"""How every process starts, runs and stops; written once.

Components start in order. A dependency that is away is tried again until ``start_timeout``. On SIGTERM or SIGINT health
goes off first, then components drain in reverse order within ``drain_timeout``, then they stop in reverse order. A
second signal ends the process at once.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import uvloop

from servicekit.errors import ServiceError
from servicekit.failures import describe, is_away
from servicekit.health import Health
from servicekit.logs import get_logger

_log = get_logger(__name__)

_STOP_SECONDS = 10.0
_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Component(Protocol):
    """A part of a process that has a life of its own."""

    @property
    def name(self) -> str:
        """Return the name that logs and error messages use."""
        ...

    async def start(self) -> None:
        """Begin; leave nothing behind if it fails. Raises ServiceError or OSError when it can't work here and now."""
        ...

    async def drain(self) -> None:
        """Take nothing new and finish what is held; cancelled when the drain budget is used up."""
        ...

    async def stop(self) -> None:
        """Let go of everything at once; called after ``drain``, also when that was cut short."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One process: its components in start order and its health.

    Attributes:
        components: started in this order, drained and stopped in the reverse order. Put engines first, the gRPC
            server after what its calls need, loops and consumers last.
        health: turned on after the last component has started; the gRPC server gets the same object.
        start_timeout: how long a dependency that is away is tried again.
        drain_timeout: what draining may take, all components together.
    """

    name: str
    components: Sequence[Component]
    health: Health = field(default_factory=Health)
    start_timeout: timedelta = timedelta(seconds=30)
    drain_timeout: timedelta = timedelta(minutes=10)


class StartFailed(Exception):  # noqa: N818 - reads as what happened
    """A component could not start; the message is one line for a person."""


def run(app: App | Callable[[], App]) -> int:
    """Run a process until a signal stops it, and return its exit code: 0 after a stop, 1 if it could not start.

    A callable is called inside the running event loop. Blocks.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run_with_signals(app))


async def serve(app: App, stopping: asyncio.Event) -> None:
    """Start the components, wait for ``stopping``, then drain and stop them.

    Raises:
        StartFailed: a component could not start for a reason that a person can remove; all others are stopped.
    """
    started: list[Component] = []
    try:
        begun = await _unless(stopping, _start_all(app, started))
        if begun:
            await app.health.start()
            _log.info("started", components=[component.name for component in started])
            await stopping.wait()
            _log.info("stopping", drain_seconds=app.drain_timeout.total_seconds())
            await app.health.turn_off()
            await _drain_all(started, app.drain_timeout.total_seconds())
    finally:
        await app.health.stop()
        await _stop_all(started)
    _log.info("stopped")


async def _run_with_signals(app: App | Callable[[], App]) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, _on_signal, number, stopping)
    try:
        await serve(app() if callable(app) else app, stopping)
    except StartFailed as error:
        _say(f"cannot start: {error}")
        return 1
    except ServiceError as error:
        _say(f"cannot start: {error.message}")
        return 1
    except Exception:  # noqa: BLE001 - the outermost shell: a bug is logged whole and said in one line
        _log.exception("cannot start")
        _say("cannot start: this is a bug; the whole error is in the log")
        return 1
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    return 0


def _on_signal(number: int, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        _log.warning("second signal: leaving at once")
        sys.stderr.flush()
        os._exit(128 + number)
    stopping.set()


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    task = asyncio.ensure_future(work)
    waiter = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        await task
        return True
    finally:
        waiter.cancel()
        task.cancel()


async def _start_all(app: App, started: list[Component]) -> None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + app.start_timeout.total_seconds()
    for component in app.components:
        await _start_one(component, give_up_at)
        started.append(component)


async def _start_one(component: Component, give_up_at: float) -> None:
    loop = asyncio.get_running_loop()
    for attempt in range(sys.maxsize):
        try:
            await component.start()
        except (ServiceError, OSError) as error:
            pause = _RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)] * random.uniform(0.8, 1.2)  # noqa: S311
            if not is_away(error) or loop.time() + pause >= give_up_at:
                raise StartFailed(f"{component.name}: {describe(error)}") from error
            if attempt == 0:
                _log.warning("waiting for a dependency", component=component.name, problem=describe(error))
            await asyncio.sleep(pause)
        else:
            return


async def _drain_all(started: Sequence[Component], budget: float) -> None:
    try:
        async with asyncio.timeout(budget):
            for component in reversed(started):
                await _guarded("drain", component, component.drain())
    except TimeoutError:
        _log.warning("the drain budget is used up", seconds=budget)


async def _stop_all(started: Sequence[Component]) -> None:
    for component in reversed(started):
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await _guarded("stop", component, component.stop())
        except TimeoutError:
            _log.warning("a component did not stop in time", component=component.name, seconds=_STOP_SECONDS)


async def _guarded(step: str, component: Component, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:  # noqa: BLE001 - a shell: the other components must still end
        _log.exception("a component failed to end well", component=component.name, step=step)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
