import asyncio
from typing import Any

import pytest

from servicekit.deadline_wheel import DeadlineWheel


async def forever() -> None:
    await asyncio.Event().wait()


async def answer() -> int:
    await asyncio.sleep(0)
    return 7


async def test_work_in_time_gives_its_result_and_leaves_nothing_behind() -> None:
    wheel = DeadlineWheel()
    assert await asyncio.gather(*(wheel.run(30, answer) for _ in range(100))) == [7] * 100
    assert wheel._slots == {}


async def test_each_call_is_cut_at_its_own_time() -> None:
    wheel = DeadlineWheel()
    order: list[float] = []

    async def limited(seconds: float) -> None:
        with pytest.raises(TimeoutError):
            await wheel.run(seconds, forever)
        order.append(seconds)

    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.wait_for(asyncio.gather(*(limited(seconds) for seconds in (0.12, 0.02, 0.07))), 10)
    assert order == [0.02, 0.07, 0.12]
    assert loop.time() - began >= 0.12, "never early"


async def test_a_foreign_cancellation_stays_one() -> None:
    wheel = DeadlineWheel()
    task = asyncio.create_task(wheel.run(30, forever))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wheel._slots == {}


async def test_a_timeout_of_the_work_itself_passes_and_a_cut_task_can_go_on() -> None:
    wheel = DeadlineWheel()

    async def own() -> Any:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await wheel.run(30, own)
    with pytest.raises(TimeoutError):
        await wheel.run(0.01, forever)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert await wheel.run(30, answer) == 7
