"""Wakes those in this process who wait for a name: a channel with work, a task with text."""

import asyncio
from collections.abc import Iterable
from typing import Generic, Self, TypeVar

Name = TypeVar("Name")


class Signals(Generic[Name]):
    """Lets tasks wait until one of some names is notified. A spurious wake does no harm."""

    def __init__(self) -> None:
        self._watches: dict[Name, set[asyncio.Event]] = {}

    def notify(self, names: Iterable[Name]) -> None:
        """Wake those who watch any of the names."""
        for name in names:
            for event in self._watches.get(name, ()):
                event.set()

    def notify_all(self) -> None:
        """Wake everybody: used when wakes may have been lost, and to stop."""
        for events in self._watches.values():
            for event in events:
                event.set()

    def watch(self, names: Iterable[Name]) -> "Watch[Name]":
        """Return a context in which no notification of the names is missed."""
        return Watch(self._watches, set(names))


class Watch(Generic[Name]):
    """Notices notifications from its beginning to its end."""

    def __init__(self, watches: dict[Name, set[asyncio.Event]], names: set[Name]) -> None:
        self._watches = watches
        self._names = names
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        for name in self._names:
            self._watches.setdefault(name, set()).add(self._event)
        return self

    def __exit__(self, *exception: object) -> None:
        for name in self._names:
            events = self._watches[name]
            events.discard(self._event)
            if not events:
                del self._watches[name]

    def clear(self) -> None:
        """Forget what has been notified: call it before looking at the truth."""
        self._event.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait for a notification since the last :meth:`clear`; False when the time passed without one."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
