"""Group many callers' items into few flushes without making a lone caller wait.

While one flush runs, new items gather; the next flush takes them all. Under light load an item is flushed at once,
under heavy load batches grow by themselves: the latency is that of one flush, never a timer's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Coalescer(Generic[Item, Result]):
    """Hands items of concurrent callers to one flush at a time.

    Args:
        flush: stores the items and returns one result per item, in order. When it raises and the batch held the
            items of several callers, the batch is split in two, so that one bad item fails only its own caller.
        max_items: most items of one flush; one caller's larger call is flushed alone.
        lanes: flushes that may run at the same time.
        weigh: what one item takes of a flush, in bytes; without it items weigh nothing.
        max_weight: most bytes of one flush; one caller's heavier call is flushed alone.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        max_items: int,
        lanes: int = 1,
        weigh: Callable[[Item], int] | None = None,
        max_weight: int = 0,
    ) -> None:
        self._flush = flush
        self._max_items = max_items
        self._lanes = lanes
        self._weigh = weigh
        self._max_weight = max_weight
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]] = []
        self._running: set[asyncio.Task[None]] = set()

    async def submit(self, items: Sequence[Item]) -> Sequence[Result]:
        """Flush the items, possibly together with other callers'; wait for their results.

        Raises:
            Exception: whatever the flush raised for these items. A cancelled caller does not stop the flush.
        """
        if not items:
            return []
        future: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        self._wake()
        return await future

    async def drain(self) -> None:
        """Wait until nothing is waiting or being flushed."""
        while self._running:
            await asyncio.wait(set(self._running))

    def _wake(self) -> None:
        # A lane that has ended counts as free at once, also in the moment before its done callback has run.
        if sum(not task.done() for task in self._running) < self._lanes:
            task = asyncio.get_running_loop().create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self) -> None:
        await asyncio.sleep(0)  # callers that are runnable now join this batch
        while batch := self._take():
            await self._settle(batch)

    def _take(self) -> list[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]]:
        count, weight, taken = 0, 0, 0
        for items, _ in self._waiting:
            count += len(items)
            weight += sum(map(self._weigh, items)) if self._weigh is not None else 0
            if taken and (count > self._max_items or weight > self._max_weight > 0):
                break
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    async def _settle(self, batch: list[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]]) -> None:
        try:
            results = await self._flush([item for items, _ in batch for item in items])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - handed to the callers that it belongs to
            await self._split(batch, error)
            return
        start = 0
        for items, future in batch:
            if not future.done():
                future.set_result(results[start : start + len(items)])
            start += len(items)

    async def _split(
        self, batch: list[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]], error: Exception
    ) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._settle(batch[:middle])
            await self._settle(batch[middle:])
        elif not batch[0][1].done():
            batch[0][1].set_exception(error)
