"""Text events of a task, followed by many readers at the price of one.

One tail per task and process reads the events once; readers hold a position in its ring and no queue. What the ring no
longer holds is read from the store, through a cache that lets readers who come together share their reads. A reader
meets every event after its cursor exactly once and in order.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol, Self
from uuid import UUID

from servicekit.clock import Clock, SystemClock
from servicekit.errors import Reason, ServiceError
from servicekit.hotcache import CacheLimits, HotCache, LoadLimit
from task_api.domain.signals import Signals

TERMINAL_SEQ = 9_007_199_254_740_991
"""The seq of an epoch's ``end`` event: above every text event's."""

_CURSOR = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,15})")
_PAGE = 500
_RING_EVENTS = 1000
_RING_CHARACTERS = 1_048_576
_EVENT_BYTES = 200
_DATABASE_LOADS = 8

REPLAYS = CacheLimits(
    ttl=timedelta(milliseconds=750),
    entries=256,
    loads=8,
    size_bytes=8 * 1_048_576,
    load_time=timedelta(seconds=5),
)
"""What replays may take: over 8 reads of distinct positions, readers are told to come again."""


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


class ReplayKey(NamedTuple):
    """Who reads which task from where; owners never share with others."""

    tenant: str
    user: str
    task_id: UUID
    after: Cursor


@dataclass(frozen=True, slots=True)
class Replay:
    """A task's end, as it was a moment ago, and the first events after a cursor."""

    last: LastEvent
    events: "Sequence[Event]"


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
        clock: tells the age of replays.
        load_limit: how many cached reads of the database may run at once in this process.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        signals: Signals[UUID],
        safety_seconds: float,
        clock: Clock | None = None,
        load_limit: LoadLimit | None = None,
    ) -> None:
        self._log = log
        self._signals = signals
        self._safety_seconds = safety_seconds
        self._tails: dict[UUID, _Tail] = {}
        self._closed = asyncio.Event()
        self.replays: HotCache[ReplayKey, Replay | None] = HotCache(
            self._load_replay,
            limits=REPLAYS,
            clock=clock or SystemClock(),
            load_limit=load_limit or LoadLimit(_DATABASE_LOADS),
            size_of=_replay_bytes,
            name="text_replay",
        )

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
        return _seen_from(after, await self._log.read(task_id, after, limit))

    async def replay(self, key: ReplayKey) -> Replay | None:
        """Return a task's first events after a cursor, at most 750 ms old; None for a task that is not this tenant's.

        Raises:
            CacheBusyError: too many other positions are being read.
        """
        return await self.replays.get(key)

    def follow(
        self, task_id: UUID, tenant: str, last: LastEvent, after: Cursor, *, user: str = ""
    ) -> "Reader":
        """Return a reader that starts after a cursor; ``last`` is what :meth:`last` or a replay has just said."""
        key = ReplayKey(tenant, user, task_id, after)
        return Reader(self, lambda: self._tail(task_id, tenant, last), key)

    def forget(self, task_id: UUID) -> None:
        """Read a task's replays anew from now on: it was deleted, or runs again."""
        self.replays.invalidate_where(lambda key: key.task_id == task_id)

    def close(self) -> None:
        """Send every reader away."""
        self._closed.set()
        for tail in self._tails.values():
            tail.wake()

    def leave(self, tail: "_Tail") -> None:
        """Forget a tail that nobody reads."""
        if tail.reader_count == 0 and self._tails.get(tail.task_id) is tail:
            del self._tails[tail.task_id]
            tail.stop()

    def _tail(self, task_id: UUID, tenant: str, last: LastEvent) -> "_Tail":
        tail = self._tails.get(task_id)
        if tail is None:
            tail = self._tails[task_id] = _Tail(
                task_id, tenant, self._log, last, signals=self._signals, safety_seconds=self._safety_seconds
            )
        return tail

    async def _load_replay(self, key: ReplayKey) -> Replay | None:
        last = await self._log.last(key.task_id, key.tenant)  # whose task it is, is asked at every load
        if last is None:
            return None
        events = await self._log.read(key.task_id, key.after, _PAGE) if key.after < last.cursor else ()
        return Replay(last, _seen_from(key.after, events))


class Reader:
    """One follower of a task; use it as a context. It costs nothing before it is entered."""

    _tail: "_Tail"

    def __init__(self, hub: Hub, find_tail: "Callable[[], _Tail]", key: ReplayKey) -> None:
        self._hub = hub
        self._find_tail = find_tail
        self._key = key
        self.cursor = key.after
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
            read = await self._page()
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

    async def _page(self) -> Sequence[Event]:
        """Return events that the ring no longer holds: shared with others who read the same, or past the cache.

        A replay from before the ring began may lack what the ring has dropped since; then only a new read will do.
        """
        key = self._key._replace(after=self.cursor)
        replay = await self._hub.replay(key)
        if replay is not None and not replay.events:
            self._hub.replays.invalidate(key)
            replay = await self._hub.replay(key)
        if replay is None:
            raise ServiceError(Reason.NOT_FOUND, "the task is gone")
        return replay.events


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
        self._asking = asyncio.Lock()
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
        if self._last == (cursor, True):
            return True
        async with self._asking:  # all its readers are here at once, and one answer is enough
            if self._last == (cursor, True):
                return True
            last = await self._log.last(self.task_id, self._tenant)
            self._last = last if last is not None and last.cursor == self._last.cursor else self._last
            return last is None or (last.terminal and last.cursor == cursor)

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


def _replay_bytes(replay: Replay | None) -> int:
    """Estimate what a replay keeps: its texts, as they are and as they are sent."""
    if replay is None:
        return _EVENT_BYTES
    return sum(_EVENT_BYTES + 2 * len(event.data.encode()) for event in replay.events) + _EVENT_BYTES
