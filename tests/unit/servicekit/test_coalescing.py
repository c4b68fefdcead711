import asyncio
from collections.abc import Sequence

import pytest

from servicekit.coalescing import Coalescer
from tests.support.waiting import eventually


async def test_a_lone_caller_is_flushed_at_once_and_gets_its_own_results() -> None:
    async def flush(items: Sequence[int]) -> Sequence[int]:
        return [item * 2 for item in items]

    coalescer: Coalescer[int, int] = Coalescer(flush, max_items=10)
    assert await coalescer.submit([1, 2]) == [2, 4]
    assert await coalescer.submit([]) == []


async def test_a_caller_that_comes_back_in_the_moment_a_lane_ends_is_flushed() -> None:
    async def flush(items: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        return list(items)

    coalescer = Coalescer(flush, max_items=10)
    async with asyncio.timeout(5):
        for item in range(3):
            assert await coalescer.submit([item]) == [item]


async def test_callers_during_a_flush_share_the_next_one() -> None:
    batches: list[list[int]] = []
    gate = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        batches.append(list(items))
        await gate.wait()
        return items

    coalescer: Coalescer[int, int] = Coalescer(flush, max_items=4)
    first = asyncio.create_task(coalescer.submit([0]))
    await eventually(lambda: batches)
    others = [asyncio.create_task(coalescer.submit([number])) for number in range(1, 7)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(first, *others) == [[number] for number in range(7)]
    assert batches == [[0], [1, 2, 3, 4], [5, 6]]


async def test_a_bad_item_fails_its_caller_alone() -> None:
    async def flush(items: Sequence[int]) -> Sequence[int]:
        if 3 in items:
            raise ValueError("bad")
        return items

    coalescer: Coalescer[int, int] = Coalescer(flush, max_items=100)
    answers = await asyncio.gather(
        *(coalescer.submit([number]) for number in range(8)), return_exceptions=True
    )
    assert [answer if isinstance(answer, list) else "failed" for answer in map(_listed, answers)] == [
        "failed" if number == 3 else [number] for number in range(8)
    ]


def _listed(answer: object) -> object:
    return list(answer) if isinstance(answer, Sequence) else answer


async def test_a_cancelled_caller_hurts_nobody() -> None:
    gate, flushed = asyncio.Event(), []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        await gate.wait()
        flushed.extend(items)
        return items

    coalescer: Coalescer[int, int] = Coalescer(flush, max_items=10)
    leaving, staying = asyncio.create_task(coalescer.submit([1])), asyncio.create_task(coalescer.submit([2]))
    await asyncio.sleep(0)
    leaving.cancel()
    gate.set()
    assert await staying == [2]
    await coalescer.drain()
    assert flushed == [1, 2]
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_flush_carries_no_more_than_its_weight_and_a_heavy_call_goes_alone() -> None:
    flushes: list[Sequence[int]] = []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        flushes.append(items)
        return items

    coalescer: Coalescer[int, int] = Coalescer(flush, max_items=10, weigh=lambda item: item, max_weight=10)
    await asyncio.gather(*(coalescer.submit([item]) for item in (4, 6, 1, 50, 2, 3)))
    assert flushes == [[4, 6], [1], [50], [2, 3]]
