import asyncio
from datetime import timedelta

import pytest

from servicekit.batching import Batcher
from servicekit.breaker import Breaker
from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError
from servicekit.loop import Loop


class Sink:
    """Remembers batches; holds each until it is let go when `held`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.running = 0
        self.most_running = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    def items(self) -> list[int]:
        return [item for batch in self.batches for item in batch]

    async def flush(self, batch: list[int]) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await self.gate.wait()
        self.running -= 1
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.batches.append(batch)


async def a_batcher(sink: Sink, clock: ManualClock, **options: int) -> Batcher[int]:
    batcher = Batcher(sink.flush, max_items=3, max_age_seconds=1, clock=clock, **options)
    await batcher.start()
    return batcher


async def test_a_full_batch_goes_at_once() -> None:
    sink, clock = Sink(), ManualClock()
    batcher = await a_batcher(sink, clock)
    for item in range(7):
        await batcher.add(item)
        await clock.settle()
    assert sink.batches == [[0, 1, 2], [3, 4, 5]]
    assert batcher.waiting == 1
    await batcher.stop()


async def test_an_old_batch_goes_when_its_first_item_is_old_enough() -> None:
    sink, clock = Sink(), ManualClock()
    batcher = await a_batcher(sink, clock)
    await batcher.add(1)
    await clock.run_for(0.6)
    await batcher.add(2)
    await clock.run_for(0.39)
    assert sink.batches == []
    await clock.run_for(0.02)
    assert sink.batches == [[1, 2]]
    await batcher.stop()


async def test_one_flush_at_a_time_and_the_rest_waits_outside() -> None:
    sink, clock = Sink(), ManualClock()
    batcher = await a_batcher(sink, clock, max_waiting=4)
    sink.gate.clear()
    adders = [asyncio.create_task(batcher.add(item)) for item in range(12)]
    await clock.run_for(5)
    assert (sink.running, batcher.waiting) == (1, 4)
    assert sum(adder.done() for adder in adders) == 3 + 4, "three are being flushed, four wait"
    sink.gate.set()
    await clock.run_for(5)
    assert sink.items() == list(range(12))
    assert sink.most_running == 1
    await asyncio.gather(*adders)
    await batcher.stop()


async def test_draining_flushes_everything_without_waiting() -> None:
    sink, clock = Sink(), ManualClock()
    batcher = await a_batcher(sink, clock)
    for item in range(5):
        await batcher.add(item)
    await batcher.drain()
    assert sink.items() == [0, 1, 2, 3, 4]
    assert clock.monotonic() == 0


async def test_a_failed_flush_does_not_end_the_batching() -> None:
    sink, clock = Sink(), ManualClock()
    batcher = await a_batcher(sink, clock)
    sink.failure = RuntimeError("a bug")
    await batcher.add(1)
    await clock.run_for(2)
    await batcher.add(2)
    await clock.run_for(2)
    assert sink.batches == [[2]]
    await batcher.stop()


async def test_a_cancelled_adder_leaves_its_place() -> None:
    sink, clock = Sink(), ManualClock()
    batcher = await a_batcher(sink, clock, max_waiting=3)
    sink.gate.clear()
    adders = [asyncio.create_task(batcher.add(item)) for item in range(8)]
    await clock.run_for(3)
    blocked = [adder for adder in adders if not adder.done()]
    blocked[0].cancel()
    sink.gate.set()
    await clock.run_for(10)
    assert len(sink.items()) == 7
    assert all(adder.done() for adder in adders)
    await batcher.stop()


class Engine:
    def __init__(self) -> None:
        self.works = False
        self.probes = 0
        self.actions: list[str] = []

    async def probe(self) -> bool:
        self.probes += 1
        if not self.works:
            raise ConnectionRefusedError
        return True

    def open(self) -> None:
        self.actions.append("open")

    async def close(self) -> None:
        self.actions.append("close")


async def test_a_breaker_opens_once_and_closes_when_a_probe_succeeds() -> None:
    engine, clock = Engine(), ManualClock()
    breaker = Breaker(engine.probe, engine.open, engine.close, clock)
    await breaker.trip(ConnectionResetError())
    await breaker.trip(ConnectionResetError())
    assert breaker.is_open
    assert breaker.opened_at == clock.now()
    waiting = asyncio.create_task(breaker.wait_closed())
    await clock.run_for(60)
    assert engine.actions == ["open"]
    assert not waiting.done()
    assert 4 <= engine.probes <= 14, "pauses double to 15 s, each varied by half"
    engine.works = True
    await clock.run_for(23)
    assert not breaker.is_open
    assert engine.actions == ["open", "close"]
    await waiting
    await breaker.trip(ConnectionResetError())
    assert engine.actions == ["open", "close", "open"]
    await breaker.stop()


async def test_a_loop_runs_at_its_pace_and_never_dies() -> None:
    clock = ManualClock()
    outcomes: list[Exception | bool] = [
        False,
        RuntimeError("a bug"),
        ServiceError(Reason.DEPENDENCY_AWAY, "away"),
        True,
        False,
    ]
    started: list[float] = []

    async def run_once() -> bool:
        started.append(clock.monotonic())
        outcome = outcomes.pop(0) if outcomes else False
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    loop = Loop("role", run_once, every=timedelta(seconds=10), clock=clock, jitter=0)
    await loop.start()
    await clock.run_for(45)
    # 0 and 10 at its pace, 20 after one failure, 40 after two, and again at once because more was waiting
    assert started == [0, 10, 20, 40, 40]
    assert loop.failures == 0
    loop.wake()
    await clock.settle()
    assert started[-1] == 45
    await loop.drain()
    await loop.stop()


async def test_draining_a_loop_waits_for_the_round_and_starts_no_other() -> None:
    clock = ManualClock()
    gate = asyncio.Event()
    rounds = 0

    async def run_once() -> bool:
        nonlocal rounds
        rounds += 1
        await gate.wait()
        return True

    loop = Loop("role", run_once, every=1.0, clock=clock)
    await loop.start()
    await clock.settle()
    draining = asyncio.create_task(loop.drain())
    await clock.settle()
    assert not draining.done()
    gate.set()
    await asyncio.wait_for(draining, 10)
    assert rounds == 1


@pytest.mark.parametrize("drained", [True, False])
async def test_stopping_a_loop_is_prompt(drained: bool) -> None:  # noqa: FBT001
    async def run_once() -> None:
        await asyncio.Event().wait()

    loop = Loop("role", run_once, every=1.0, clock=ManualClock())
    await loop.start()
    if drained:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.drain(), 0.01)
    await asyncio.wait_for(loop.stop(), 10)
