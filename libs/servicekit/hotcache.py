"""Bounded in-process caches for hot reads, whose laws hold under cancellation, failure and load.

A load runs in a task of its own: who waits for it may go away and hurts nobody. Many waiters cause one load, also when
it fails. Loads of distinct keys are bounded per cache, and all loads together per process (:class:`LoadLimit`); beyond
that a caller is told so at once. A place stays taken until its load has really ended. What is invalidated while it is
being loaded is not kept, and an old load never replaces a newer value. An expired value is never returned, failures
are told again for a second without a load, cancellations and time-outs are never kept.

For one event loop; nothing here is safe for threads. Values are shared: they must be immutable, or never changed.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, TypeVar

from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError

COOL_DOWN_SECONDS = 1.0
"""How long a failure is told again without another load."""

_BUSY_RETRY = timedelta(milliseconds=250)
_NEVER_KEPT = frozenset({Reason.TIME_IS_UP, Reason.CANCELLED})

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class CacheBusyError(ServiceError):
    """Too many loads are running: try again later."""

    def __init__(self, cache: str) -> None:
        super().__init__(
            Reason.RATE_LIMITED,
            "too much is being read at once: try again",
            retry_after=_BUSY_RETRY,
            metadata={"cache": cache},
        )


class LoadCancelledError(ServiceError):
    """The load was cancelled by somebody other than those who wait for it."""

    def __init__(self) -> None:
        super().__init__(Reason.DEPENDENCY_AWAY, "the read was cancelled: try again")


class ReentrantLoadError(RuntimeError):
    """A load waits, directly or through others, for itself: a bug in a load."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """What a cache may take.

    Attributes:
        ttl: how long a value is used, counted from the moment when its load began.
        entries: values and failures kept at most; the least recently used go first.
        loads: loads of distinct keys at once.
        size_bytes: estimated size of all kept values; None when sizes are not counted. A value that alone is larger
            goes to those who wait for it and is not kept.
        waiting: distinct keys that may wait for a load to begin; beyond that, and from inside a load, callers are
            told :class:`CacheBusyError` at once.
        load_time: a load that takes longer ends with TimeoutError; None for loads that have a limit of their own.
    """

    ttl: timedelta
    entries: int
    loads: int
    size_bytes: int | None = None
    waiting: int = 0
    load_time: timedelta | None = None


class LoadLimit:
    """How many loads may run at once, all caches of a process together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._waiting: dict[int, Callable[[], None]] = {}

    @property
    def running(self) -> int:
        """Loads that have not ended."""
        return self._running

    def enter(self) -> bool:
        """Take a place; False when there is none."""
        if self._running >= self._most:
            return False
        self._running += 1
        return True

    def leave(self) -> None:
        """Give a place back and let those who wait for one begin."""
        self._running -= 1
        for begin in list(self._waiting.values()):
            begin()

    def tell(self, who: int, begin: Callable[[], None] | None) -> None:
        """Call ``begin`` whenever a place becomes free; None: no more."""
        if begin is None:
            self._waiting.pop(who, None)
        else:
            self._waiting[who] = begin


@dataclass(slots=True)
class CacheCounts:
    """What happened so far: the outcomes of lookups, and values that had to go."""

    hit: int = 0
    miss: int = 0
    joined: int = 0
    busy: int = 0
    cooling: int = 0
    evicted: int = 0

    def by_name(self) -> dict[str, int]:
        """Return the counts by outcome, as metrics show them."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(slots=True)
class _Entry(Generic[Value]):
    """How a load ended."""

    until: float
    value: Value | None
    size: int = 0
    failure: BaseException | None = None
    traceback: TracebackType | None = None

    def get(self) -> Value:
        if self.failure is not None:
            raise self.failure.with_traceback(
                self.traceback
            )  # told often: its traceback must not grow each time
        return self.value  # type: ignore[return-value] # without a failure there is a value


@dataclass(slots=True, eq=False)
class _Load(Generic[Value]):
    done: "asyncio.Future[_Entry[Value]]"
    began: float | None = None
    waits: "set[_Load[Any]]" = field(default_factory=set)
    task: "asyncio.Task[tuple[Value, int]] | None" = None

    def waits_for(self, other: "_Load[Any]") -> bool:
        return self is other or any(load.waits_for(other) for load in self.waits)


_current: "ContextVar[_Load[Any] | None]" = ContextVar("servicekit_hotcache_load", default=None)


class HotCache(Generic[Key, Value]):
    """Values by key, loaded when they are asked for.

    Args:
        load: reads one value. It runs without the caller's context: no deadline, principal or span of one waiter.
        limits: what the cache may take.
        clock: tells the time.
        load_limit: shared by the process's caches.
        size_of: estimates a value's bytes; needed with ``limits.size_bytes``.
        name: told to callers that are refused, and in metrics.
    """

    def __init__(
        self,
        load: Callable[[Key], Awaitable[Value]],
        *,
        limits: CacheLimits,
        clock: Clock,
        load_limit: LoadLimit,
        size_of: Callable[[Value], int] | None = None,
        name: str,
    ) -> None:
        self.name = name
        self.counts = CacheCounts()
        self._load = load
        self._limits = limits
        self._ttl = limits.ttl.total_seconds()
        self._most_bytes = limits.size_bytes if limits.size_bytes is not None and size_of else None
        self._now = clock.monotonic
        self._load_limit = load_limit
        self._size_of = size_of
        self._entries: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self._bytes = 0
        self._loading: dict[Key, _Load[Value]] = {}
        self._running = 0
        self._queue: deque[tuple[Key, _Load[Value]]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def kept_bytes(self) -> int:
        """Estimated size of all kept values."""
        return self._bytes

    @property
    def running(self) -> int:
        """Loads that have not ended, also those that nobody waits for any more."""
        return self._running

    async def get(self, key: Key) -> Value:
        """Return a key's value; waits for one load at most.

        Raises:
            CacheBusyError: too many other keys are being loaded.
            LoadCancelledError: somebody cancelled the load.
            ReentrantLoadError: the load that calls waits for itself.
            BaseException: what the load raised; an ordinary failure is told again for a second.
        """
        entry = self._entries.get(key)
        if entry is not None:
            if self._now() < entry.until:
                self._entries.move_to_end(key)
                if entry.failure is None:
                    self.counts.hit += 1
                else:
                    self.counts.cooling += 1
                return entry.get()
            self._drop(key)
        return await self._wait(key)

    def invalidate(self, key: Key) -> None:
        """Forget a key; a load that has begun before answers those who wait already and is not kept."""
        self._drop(key)
        load = self._loading.get(key)
        if load is not None and load.began is not None:
            del self._loading[key]

    def invalidate_where(self, matches: Callable[[Key], bool]) -> None:
        """Forget every key that matches."""
        for key in [key for key in {*self._entries, *self._loading} if matches(key)]:
            self.invalidate(key)

    async def _wait(self, key: Key) -> Value:
        caller = _current.get()
        load = self._loading.get(key)
        if load is None:
            load = self._begin(key, nested=caller is not None)
            self.counts.miss += 1
        else:
            self.counts.joined += 1
        if caller is None:
            return (await asyncio.shield(load.done)).get()
        if load.waits_for(caller):
            raise ReentrantLoadError(f"cache {self.name}: the load of a key waits for itself")
        caller.waits.add(load)
        try:
            return (await asyncio.shield(load.done)).get()
        finally:
            caller.waits.discard(load)

    def _begin(self, key: Key, *, nested: bool) -> _Load[Value]:
        load: _Load[Value] = _Load(asyncio.get_running_loop().create_future())
        if not self._queue and self._start(key, load):
            self._loading[key] = load
            return load
        if nested or len(self._queue) >= self._limits.waiting:  # in a load: the place awaited may be its own
            self.counts.busy += 1
            raise CacheBusyError(self.name)
        self._queue.append((key, load))
        self._load_limit.tell(id(self), self._start_queued)
        self._loading[key] = load
        return load

    def _start(self, key: Key, load: _Load[Value]) -> bool:
        if self._running >= self._limits.loads or not self._load_limit.enter():
            return False
        self._running += 1
        load.began = self._now()
        context = Context()
        context.run(_current.set, load)
        load.task = asyncio.get_running_loop().create_task(
            self._run(key), name=f"cache {self.name}", context=context
        )
        # Not `finally` in the task: one that is cancelled before its first step runs nothing of its own.
        load.task.add_done_callback(lambda task: self._finish(key, load, task))
        return True

    async def _run(self, key: Key) -> tuple[Value, int]:
        time = self._limits.load_time
        async with asyncio.timeout(None if time is None else time.total_seconds()):
            value = await self._load(key)
        return value, self._size_of(value) if self._size_of else 0

    def _finish(self, key: Key, load: _Load[Value], task: "asyncio.Task[tuple[Value, int]]") -> None:
        self._running -= 1
        entry = self._ended(load, task)
        if self._loading.get(key) is load:
            del self._loading[key]
            self._keep(key, entry)
        if not load.done.done():
            load.done.set_result(entry)
        self._load_limit.leave()
        self._start_queued()

    def _ended(self, load: _Load[Value], task: "asyncio.Task[tuple[Value, int]]") -> _Entry[Value]:
        if task.cancelled():
            return _Entry(0.0, None, failure=LoadCancelledError())
        failure = task.exception()
        if failure is None:
            value, size = task.result()
            return _Entry((load.began or 0.0) + self._ttl, value, size)
        until = self._now() + COOL_DOWN_SECONDS if _is_kept(failure) else 0.0
        return _Entry(until, None, failure=failure, traceback=failure.__traceback__)

    def _keep(self, key: Key, entry: _Entry[Value]) -> None:
        self._drop(key)
        too_large = self._most_bytes is not None and entry.size > self._most_bytes
        if too_large or entry.until <= self._now():
            return
        self._entries[key] = entry
        self._bytes += entry.size
        while len(self._entries) > self._limits.entries or (
            self._most_bytes is not None and self._bytes > self._most_bytes
        ):
            self._drop(next(iter(self._entries)))
            self.counts.evicted += 1

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size

    def _start_queued(self) -> None:
        while self._queue and self._start(*self._queue[0]):
            self._queue.popleft()
        if not self._queue:
            self._load_limit.tell(id(self), None)


def _is_kept(failure: BaseException) -> bool:
    """Tell an ordinary failure, which cools down, from what says nothing about the next load."""
    if isinstance(failure, ServiceError):
        return failure.reason not in _NEVER_KEPT and not isinstance(
            failure, CacheBusyError | LoadCancelledError
        )
    return isinstance(failure, Exception) and not isinstance(failure, TimeoutError | ReentrantLoadError)
