"""Ends calls whose time is up, with one timer for all of them.

A timer per call costs more than the rest of the server's chain: almost every call ends long before its deadline, so
that timers are made and thrown away. Here calls with about the same deadline share a slot, rounded up to 5 ms.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

_SLOT_SECONDS = 0.005


class DeadlineWheel:
    """Runs work with a time limit; belongs to one event loop."""

    def __init__(self) -> None:
        self._slots: dict[int, set[_Entry]] = {}
        self._armed: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, seconds: float, work: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of ``work``; raises TimeoutError when it was cut after ``seconds``."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task")
        entry = _Entry(task)
        number = int((loop.time() + seconds) / _SLOT_SECONDS) + 1
        slot = self._slots.setdefault(number, set())
        slot.add(entry)
        if self._armed is None or number < self._armed:
            self._arm(loop, number)
        cancelling = task.cancelling()
        try:
            return await work()
        except asyncio.CancelledError:
            if entry.expired and task.uncancel() <= cancelling:
                raise TimeoutError from None
            raise
        finally:
            slot.discard(entry)
            if not slot:
                self._slots.pop(number, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = number
        self._timer = loop.call_at(number * _SLOT_SECONDS, self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._armed = self._timer = None
        now = int(loop.time() / _SLOT_SECONDS)
        for number in [number for number in self._slots if number <= now]:
            for entry in self._slots.pop(number):
                entry.expired = True
                entry.task.cancel()
        if self._slots:
            self._arm(loop, min(self._slots))


class _Entry:
    __slots__ = ("expired", "task")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self.task = task
        self.expired = False
