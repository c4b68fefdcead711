"""The policy cache: at most its ttl old, one load for many, never a guess."""

import asyncio

import pytest

from lease_service.domain.model import PoolPolicies
from lease_service.domain.policy_cache import MAX_ENTRIES, MAX_LOADS, PolicyCache
from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError


class Loads:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running = 0
        self.most = 0
        self.go = asyncio.Event()
        self.go.set()
        self.failure: Exception | None = None

    async def __call__(self, pool: str) -> PoolPolicies:
        self.asked.append(pool)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        if self.failure is not None:
            raise self.failure
        return PoolPolicies(pool, {}, longest_ttl_ms=len(self.asked))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def loads() -> Loads:
    return Loads()


@pytest.fixture
def cache(loads: Loads, clock: ManualClock) -> PolicyCache:
    return PolicyCache(loads, ttl=2.0, clock=clock)


async def test_an_entry_serves_for_its_ttl_and_no_longer(
    cache: PolicyCache, loads: Loads, clock: ManualClock
) -> None:
    await cache.get("a")
    clock.advance(1.999)
    await cache.get("a")
    assert loads.asked == ["a"]
    clock.advance(0.001)
    await cache.get("a")
    assert loads.asked == ["a", "a"]


async def test_age_counts_from_the_beginning_of_the_load(
    cache: PolicyCache, loads: Loads, clock: ManualClock
) -> None:
    loads.go.clear()
    task = asyncio.create_task(cache.get("a"))
    await clock.settle()
    clock.advance(1.5)
    loads.go.set()
    await task
    clock.advance(0.5)
    await cache.get("a")
    assert loads.asked == ["a", "a"]


async def test_many_waiters_cause_one_load_and_a_cancelled_one_hurts_nobody(
    cache: PolicyCache, loads: Loads
) -> None:
    loads.go.clear()
    tasks = [asyncio.create_task(cache.get("a")) for _ in range(10)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    loads.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert {result.longest_ttl_ms for result in results[1:] if isinstance(result, PoolPolicies)} == {1}
    assert loads.asked == ["a"]


async def test_a_failure_pauses_grants_says_so_and_cools_down(
    cache: PolicyCache, loads: Loads, clock: ManualClock
) -> None:
    await cache.get("a")
    clock.advance(2)
    loads.failure = OSError("gone")
    for _ in range(3):
        with pytest.raises(ServiceError, match="new grants are paused") as refused:
            await cache.get("a")
        assert refused.value.reason is Reason.DEPENDENCY_AWAY
    assert len(loads.asked) == 2
    loads.failure = None
    clock.advance(1)
    await cache.get("a")


async def test_time_outs_are_not_stored(cache: PolicyCache, loads: Loads) -> None:
    loads.failure = TimeoutError()
    with pytest.raises(ServiceError):
        await cache.get("a")
    loads.failure = None
    await cache.get("a")


async def test_forgetting_during_a_load_is_not_lost(cache: PolicyCache, loads: Loads) -> None:
    loads.go.clear()
    old = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cache.forget("a")
    new = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    loads.go.set()
    assert (await old).longest_ttl_ms <= (await new).longest_ttl_ms
    assert loads.asked == ["a", "a"]
    await cache.get("a")
    assert loads.asked == ["a", "a"]


async def test_distinct_loads_and_entries_are_bounded(cache: PolicyCache, loads: Loads) -> None:
    await asyncio.gather(*(cache.get(str(number)) for number in range(MAX_ENTRIES + 1)))
    assert loads.most <= MAX_LOADS
    await cache.get(str(MAX_ENTRIES))
    assert len(loads.asked) == MAX_ENTRIES + 1
    await cache.get("0")
    assert len(loads.asked) == MAX_ENTRIES + 2
