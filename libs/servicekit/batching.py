"""Gathers items into batches: flushed when full or old enough, one flush at a time, with backpressure."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from servicekit.clock import Clock, SystemClock
from servicekit.logs import get_logger
from servicekit.metrics import Metric, gauge, histogram

_log = get_logger(__name__)

Item = TypeVar("Item")


class Batcher(Generic[Item]):
    """Collects items and hands them to ``flush`` in the order in which they came. A Component.

    ``flush`` owns its errors: it keeps, bisects or gives back what it can't store. An exception that escapes it is
    logged as a bug, and its items are dropped here.

    Args:
        flush: takes one batch; never called while it still runs.
        max_items: a batch never holds more.
        max_age_seconds: no item waits longer for its flush to begin, unless a flush is running.
        clock: measures ages.
        max_waiting: ``add`` waits while that many items wait; by default twice ``max_items``.
        name: for logs and metrics.
    """

    def __init__(
        self,
        flush: Callable[[list[Item]], Awaitable[None]],
        *,
        max_items: int,
        max_age_seconds: float,
        clock: Clock | None = None,
        max_waiting: int | None = None,
        name: str = "batch",
    ) -> None:
        self._flush = flush
        self._max_items = max_items
        self._max_age = max_age_seconds
        self._clock = clock or SystemClock()
        self._max_waiting = max(max_items, max_waiting or 2 * max_items)
        self._name = name
        self._waiting: deque[tuple[float, Item]] = deque()
        self._changed = asyncio.Event()
        self._room: deque[asyncio.Future[None]] = deque()
        self._draining = False
        self._task: asyncio.Task[None] | None = None
        self._items = histogram(Metric.BATCH_ITEMS).labels(batch=name)
        self._seconds = histogram(Metric.BATCH_SECONDS).labels(batch=name)
        self._depth = gauge(Metric.BATCH_WAITING).labels(batch=name)

    @property
    def name(self) -> str:
        """What is batched."""
        return self._name

    @property
    def waiting(self) -> int:
        """How many items wait for a flush; those being flushed are not counted."""
        return len(self._waiting)

    async def add(self, item: Item) -> None:
        """Queue an item; waits while too many wait. Returning does not mean flushed."""
        while len(self._waiting) >= self._max_waiting:
            await self._wait_for_room()
        self._waiting.append((self._clock.monotonic(), item))
        count = len(self._waiting)
        if count in (1, self._max_items):
            self._changed.set()

    async def start(self) -> None:
        """Begin flushing."""
        self._draining = False
        self._task = asyncio.create_task(self._run(), name=f"batcher:{self._name}")

    async def drain(self) -> None:
        """Flush what is held, without waiting for batches to fill, and end."""
        self._draining = True
        self._changed.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def stop(self) -> None:
        """Cancel the flush that runs; items still held are dropped."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        while True:
            await self._wait_for_batch()
            if not self._waiting:
                return
            await self._flush_one()

    async def _wait_for_batch(self) -> None:
        while not self._draining and len(self._waiting) < self._max_items:
            self._changed.clear()
            if not self._waiting:
                await self._changed.wait()
                continue
            left = self._waiting[0][0] + self._max_age - self._clock.monotonic()
            if left <= 0:
                return
            await self._changed_within(left)

    async def _changed_within(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        changing = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({sleeping, changing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changing.cancel()

    async def _flush_one(self) -> None:
        count = min(len(self._waiting), self._max_items)
        batch = [self._waiting.popleft()[1] for _ in range(count)]
        self._make_room(count)
        self._depth.set(len(self._waiting))
        began = time.perf_counter()
        try:
            await self._flush(batch)
        except Exception:  # noqa: BLE001 - a loop shell: one failed flush must not end the batching
            _log.exception("a flush failed and dropped its items", batch=self._name, items=count)
        self._items.observe(count)
        self._seconds.observe(time.perf_counter() - began)

    async def _wait_for_room(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._make_room(1)  # the room was ours: the next in line gets it
            raise

    def _make_room(self, count: int) -> None:
        while count and self._room:
            future = self._room.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1
