"""Text events of a task, followed by many readers at the price of one.

One tail per task and process reads the events once; readers hold a position in its ring and no queue. What the ring no
longer holds is read from the store. A reader meets every event after its cursor exactly once and in order.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self
from uuid import UUID

from task_api.domain.signals import Signals

TERMINAL_SEQ = 9_007_199_254_740_991
"""The seq of an epoch's ``end`` event: above every text event's."""

_CURSOR = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,15})")
_PAGE = 500
_RING_EVENTS = 1000
_RING_CHARACTERS = 1_048_576


class Cursor(NamedTuple):
    """A position in a task's events; written ``epoch.seq``."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.seq}"


BEGINNING = Cursor(0, 0)


def parse_cursor(text: str) -> Cursor | None:
    """Return the cursor in a text, or None when it is malformed."""
    match = _CURSOR.fullmatch(text)
    if match is None or int(match[2]) > TERMINAL_SEQ:
        return None
    return Cursor(int(match[1]), int(match[2]))


@dataclass(slots=True)
class Event:
    """One event.

    Attributes:
        kind: ``text`` or ``end``.
        restarts: whether it is the first of a new attempt, which writes the text anew.
        frame: its encoded form, made once by the edge and shared by all readers.
    """

    cursor: Cursor
    kind: str
    data: str
    restarts: bool = False
    frame: bytes = field(default=b"", repr=False, compare=False)


class LastEvent(NamedTuple):
    """Where a task's events end, and whether the task is over."""

    cursor: Cursor
    terminal: bool


class EventLog(Protocol):
    """The stored events."""

    async def read(self, task_id: UUID, after: Cursor, limit: int) -> Sequence[Event]:
        """Return the events after a cursor, in order."""
        ...

    async def last(self, task_id: UUID, tenant: str) -> LastEvent | None:
        """Return where a task's events end; None for an unknown or another tenant's task."""
        ...


class Hub:
    """Lets readers follow tasks. One tail per task lives while it has readers.

    Args:
        log: the stored events.
        signals: notified with the ids of tasks that have new events; a lost wake costs at most ``safety_seconds``.
        safety_seconds: time between looks at the store without a wake.
    """

    def __init__(self, log: EventLog, *, signals: Signals[UUID], safety_seconds: float) -> None:
        self._log = log
        self._signals = signals
        self._safety_seconds = safety_seconds
        self._tails: dict[UUID, _Tail] = {}
        self._closed = asyncio.Event()

    @property
    def tail_count(self) -> int:
        """Tasks that are being followed."""
        return len(self._tails)

    @property
    def closing(self) -> bool:
        """Whether readers are being sent away."""
        return self._closed.is_set()

    async def last(self, task_id: UUID, tenant: str) -> LastEvent | None:
        """Return where a task's events end, read anew; None for an unknown or another tenant's task."""
        return await self._log.last(task_id, tenant)

    async def read(self, task_id: UUID, after: Cursor, limit: int) -> Sequence[Event]:
        """Return stored events after a cursor, as a reader would see them."""
        events = await self._log.read(task_id, after, limit)
        return _seen_from(after, events)

    def follow(self, task_id: UUID, tenant: str, last: LastEvent, after: Cursor) -> "Reader":
        """Return a reader that starts after a cursor; ``last`` is what :meth:`last` has just said."""
        return Reader(self, lambda: self._tail(task_id, tenant, last), after)

    def close(self) -> None:
        """Send every reader away."""
        self._closed.set()
        for tail in self._tails.values():
            tail.wake()

    def _tail(self, task_id: UUID, tenant: str, last: LastEvent) -> "_Tail":
        tail = self._tails.get(task_id)
        if tail is None:
            tail = self._tails[task_id] = _Tail(
                task_id, tenant, self._log, last, signals=self._signals, safety_seconds=self._safety_seconds
            )
        return tail

    def leave(self, tail: "_Tail") -> None:
        """Forget a tail that nobody reads."""
        if tail.reader_count == 0 and self._tails.get(tail.task_id) is tail:
            del self._tails[tail.task_id]
            tail.stop()


class Reader:
    """One follower of a task; use it as a context. It costs nothing before it is entered."""

    _tail: "_Tail"

    def __init__(self, hub: Hub, find_tail: "Callable[[], _Tail]", after: Cursor) -> None:
        self._hub = hub
        self._find_tail = find_tail
        self.cursor = after
        self.ended = False
        """Whether the task's end has been read."""

    async def __aenter__(self) -> Self:
        self._tail = self._find_tail()
        self._tail.enter()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._tail.reader_count -= 1
        self._hub.leave(self._tail)

    async def pull(self, seconds: float) -> Sequence[Event]:
        """Return the next events, or none when the time passed or the hub closes without any."""
        try:
            async with asyncio.timeout(seconds):
                while not self._hub.closing:
                    events = await self._next()
                    if events:
                        return events
        except TimeoutError:
            pass
        return []

    async def _next(self) -> Sequence[Event]:
        if self.cursor < self._tail.floor:
            read = await self._tail.page(self.cursor)
        else:
            read = await self._tail.after(self.cursor)
        if not read:
            return []
        events = [event for event in read[:-1] if event.kind != "end"]
        if read[-1].kind != "end":
            events.append(read[-1])
        elif await self._tail.is_over(read[-1].cursor):
            self.ended = True
            events.append(read[-1])
        self.cursor = read[-1].cursor  # after the last await: a reader that is cut here reads them again
        return events


class _Tail:
    """Reads a task's events once for all its readers."""

    def __init__(
        self,
        task_id: UUID,
        tenant: str,
        log: EventLog,
        last: LastEvent,
        *,
        signals: Signals[UUID],
        safety_seconds: float,
    ) -> None:
        self.task_id = task_id
        self.reader_count = 0
        self.floor = last.cursor
        """The ring holds every event after this."""
        self._last = last
        self._tenant = tenant
        self._log = log
        self._signals = signals
        self._safety_seconds = safety_seconds
        self._ring: deque[Event] = deque()
        self._characters = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self.reader_count += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"tail:{self.task_id}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def page(self, after: Cursor) -> Sequence[Event]:
        return _seen_from(after, await self._log.read(self.task_id, after, _PAGE))

    async def after(self, cursor: Cursor) -> Sequence[Event]:
        """Return the ring's events after a cursor, or wait for a change and return none."""
        if self._last.cursor <= cursor:
            await self._changed.wait()
            return []
        found: list[Event] = []
        for event in reversed(self._ring):
            if event.cursor <= cursor:
                break
            found.append(event)
        found.reverse()
        return found

    async def is_over(self, cursor: Cursor) -> bool:
        """Tell whether the task ended with the event at a cursor, or runs again since."""
        if self._last != (cursor, True):
            last = await self._log.last(self.task_id, self._tenant)
            self._last = last if last is not None and last.cursor == self._last.cursor else self._last
            return last is None or (last.terminal and last.cursor == cursor)
        return True

    async def _run(self) -> None:
        with self._signals.watch([self.task_id]) as watch:
            while True:
                watch.clear()
                try:
                    await self._read_new()
                except Exception:  # noqa: BLE001 - readers keep waiting; the next look finds what this one missed
                    await asyncio.sleep(min(1.0, self._safety_seconds))
                    continue
                await watch.wait(self._safety_seconds)

    async def _read_new(self) -> None:
        more = True
        while more:
            events = _seen_from(
                self._last.cursor, await self._log.read(self.task_id, self._last.cursor, _PAGE)
            )
            more = len(events) == _PAGE
            if events:
                self._keep(events)
                self.wake()

    def _keep(self, events: Sequence[Event]) -> None:
        self._ring.extend(events)
        self._characters += sum(len(event.data) for event in events)
        self._last = LastEvent(events[-1].cursor, terminal=False)
        while len(self._ring) > _RING_EVENTS or self._characters > _RING_CHARACTERS:
            oldest = self._ring.popleft()
            self._characters -= len(oldest.data)
            self.floor = oldest.cursor


def _seen_from(after: Cursor, events: Sequence[Event]) -> Sequence[Event]:
    """Mark the events that begin a new attempt after an earlier one has written."""
    epoch = after.epoch
    for event in events:
        event.restarts = epoch not in (0, event.cursor.epoch)
        epoch = event.cursor.epoch
    return events
