"""The shared cache: the laws that others are measured by, and what only ours promises."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from prometheus_client import REGISTRY

from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError
from servicekit.hotcache import CacheBusyError, CacheLimits, HotCache, LoadCancelledError, LoadLimit
from servicekit.metrics import export_cache
from tests.support import cache_laws
from tests.support.cache_laws import Cache, Load, Loads, Time, open_loads, outcome, settle


@dataclass
class LawClock(ManualClock):
    time: Callable[[], float]

    def __post_init__(self) -> None:
        super().__init__()

    def monotonic(self) -> float:
        return self.time()


class Ours:
    """The shared cache behind the interface of the laws."""

    def __init__(self, most: int = 100) -> None:
        self.load_limit = LoadLimit(most)

    def limited(self, most: int) -> "Ours":
        return Ours(most)

    def cache(
        self,
        load: Load,
        *,
        time: Callable[[], float],
        ttl: float = 10.0,
        entries: int = 100,
        loads: int = 8,
        size_bytes: int = 1000,
    ) -> Cache:
        return Adapter(
            HotCache(
                load,
                limits=CacheLimits(timedelta(seconds=ttl), entries, loads, size_bytes),
                clock=LawClock(time),
                load_limit=self.load_limit,
                size_of=lambda value: len(value) if isinstance(value, str) else 8,
                name="law",
            )
        )


class Adapter:
    def __init__(self, cache: HotCache[Any, Any]) -> None:
        self.inner = cache

    async def get(self, key: Any) -> Any:
        try:
            return await self.inner.get(key)
        except CacheBusyError:
            raise cache_laws.BusyError from None

    def invalidate(self, key: Any) -> None:
        self.inner.invalidate(key)


@pytest.mark.parametrize("law", cache_laws.LAWS, ids=lambda law: law.__name__.removeprefix("law_"))
async def test_law(law: Callable[[Any], Awaitable[None]]) -> None:
    await law(Ours())


def make(
    load: Load, *, load_limit: LoadLimit | None = None, clock: ManualClock | None = None, **limits: Any
) -> HotCache[Any, Any]:
    values = {"ttl": timedelta(seconds=2), "entries": 4, "loads": 2, **limits}
    return HotCache(
        load,
        limits=CacheLimits(**values),
        clock=clock or ManualClock(),
        load_limit=load_limit or LoadLimit(100),
        name="text",
    )


async def test_it_counts_what_happened() -> None:
    loads, clock = Loads(), ManualClock()
    cache = make(loads, clock=clock, entries=1)
    tasks = [asyncio.ensure_future(cache.get(key)) for key in ("a", "a", "b", "c")]
    await settle()
    loads.go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    await cache.get("b")
    loads.failure = OSError("away")
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await cache.get("d")
    expected = {"hit": 1, "miss": 3, "joined": 1, "busy": 1, "cooling": 1, "evicted": 2}
    assert cache.counts.by_name() == expected
    export_cache("text", cache.counts.by_name)
    shown = {
        sample.labels["outcome"]: sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "sluicegate_cache_lookups_total" and sample.labels["cache"] == "text"
    }
    assert shown == expected


async def test_busy_says_when_to_try_again() -> None:
    cache = make(Loads(), loads=1)
    waiting = asyncio.ensure_future(cache.get("a"))
    await settle()
    with pytest.raises(ServiceError) as refused:
        await cache.get("b")
    assert (refused.value.reason, refused.value.metadata) == (Reason.RATE_LIMITED, {"cache": "text"})
    assert refused.value.retry_after
    waiting.cancel()


async def test_keys_may_wait_where_that_is_wanted_also_for_another_caches_place() -> None:
    loads, limit = Loads(), LoadLimit(1)
    one, other = (make(loads, load_limit=limit, waiting=2) for _ in range(2))
    tasks = [asyncio.ensure_future(cache.get(key)) for cache in (one, other) for key in "ab"]
    await settle()
    assert (loads.most, limit.running) == (1, 1)
    loads.go.set()
    assert await asyncio.gather(*tasks) == ["value of a", "value of b"] * 2
    assert (loads.most, limit.running, one.running, other.running) == (1, 0, 0, 0)


async def test_a_key_that_waits_sees_what_was_invalidated_before_it_began() -> None:
    version = "old"
    loads = Loads(value=lambda _: version)
    cache = make(loads, loads=1, waiting=1)
    tasks = [asyncio.ensure_future(cache.get(key)) for key in "ab"]
    await settle()
    version = "new"
    cache.invalidate("b")
    loads.go.set()
    assert await asyncio.gather(*tasks) == ["old", "new"]
    assert await cache.get("b") == "new"
    assert loads.asked == ["a", "b"]


async def test_a_load_in_a_load_never_waits_for_a_place() -> None:
    cache: HotCache[Any, Any]

    async def load(key: str) -> str:
        return "inner" if key == "b" else await cache.get("b")

    cache = make(load, loads=1, waiting=5)
    assert isinstance(await outcome(cache.get("a")), CacheBusyError)
    assert await outcome(cache.get("b")) == "inner"
    assert await outcome(cache.get("a")) == "inner"


async def test_a_load_knows_nothing_of_who_asked_first() -> None:
    deadline: ContextVar[str] = ContextVar("deadline", default="none")

    async def load(_: str) -> str:
        return deadline.get()

    deadline.set("the leader's")
    assert await make(load).get("a") == "none"


async def test_a_load_cancelled_before_its_first_step_frees_its_place() -> None:
    cache = make(open_loads(), loads=1)
    waiting = asyncio.ensure_future(cache.get("a"))
    await asyncio.sleep(0)
    load = cache._loading["a"]
    assert load.task is not None
    load.task.cancel()
    assert isinstance(await outcome(waiting), LoadCancelledError)
    assert cache.running == 0
    assert await cache.get("a") == "value of a"


async def test_a_failure_told_often_does_not_grow() -> None:
    def depth(error: BaseException) -> int:
        count, traceback = 0, error.__traceback__
        while traceback is not None:
            count, traceback = count + 1, traceback.tb_next
        return count

    cache = make(open_loads(failure=OSError("away")))
    depths = []
    for _ in range(20):
        try:
            await cache.get("a")
        except OSError as error:
            depths.append(depth(error))
    assert len(depths) == 20
    assert max(depths[1:]) == min(depths[1:])


async def test_a_load_that_takes_too_long_ends_and_frees_its_place() -> None:
    cache = make(Loads(), loads=1, load_time=timedelta(milliseconds=1))
    assert isinstance(await outcome(cache.get("a")), TimeoutError)
    assert (cache.running, len(cache)) == (0, 0)


class Model(RuleBasedStateMachine):
    """Random histories next to a plain dictionary that remembers when each value was true."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.time = Time()
        self.versions = dict.fromkeys("abcde", 0)
        self.told_at: dict[tuple[str, int], float] = {(key, 0): 0.0 for key in "abcde"}
        self.least = dict.fromkeys("abcde", 0)
        self.loads = open_loads(value=lambda key: self.versions[key])
        self.limit = LoadLimit(2)
        self.cache: HotCache[str, int] = HotCache(
            self.loads,
            limits=CacheLimits(timedelta(seconds=2), 3, 2, 20),
            clock=LawClock(self.time),
            load_limit=self.limit,
            size_of=lambda _: 8,
            name="model",
        )
        self.asking: list[tuple[str, int, float, asyncio.Task[int]]] = []

    def teardown(self) -> None:
        self.loads.go.set()
        self.loop.run_until_complete(settle())
        assert self.limit.running == self.cache.running == 0
        assert all(item[3].done() for item in self.asking), "somebody waits for ever"
        for *_, task in self.asking:
            task.cancelled() or task.exception()
        self.loop.close()

    @rule(key=st.sampled_from("abcde"))
    def ask(self, key: str) -> None:
        task = self.loop.create_task(self.cache.get(key))
        self.asking.append((key, self.least[key], self.time.seconds, task))
        self.loop.run_until_complete(settle())

    @rule(key=st.sampled_from("abcde"), seen=st.booleans())
    def change(self, key: str, seen: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.versions[key] += 1
        self.told_at[key, self.versions[key]] = self.time.seconds
        if seen:
            self.cache.invalidate(key)
            self.least[key] = self.versions[key]

    @rule(number=st.integers(0, 20))
    def cancel(self, number: int) -> None:
        if self.asking:
            self.asking[number % len(self.asking)][3].cancel()
            self.loop.run_until_complete(settle())

    @rule(seconds=st.sampled_from([0.1, 0.9, 1.0, 2.0]))
    def pass_time(self, seconds: float) -> None:
        self.time.seconds += seconds

    @rule(held=st.booleans(), fails=st.booleans())
    def steer(self, held: bool, fails: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.loads.failure = OSError("away") if fails else None
        self.loads.go.clear() if held else self.loads.go.set()
        self.loop.run_until_complete(settle())

    @invariant()
    def nothing_is_stale_and_nothing_is_unbounded(self) -> None:
        assert self.loads.running == self.limit.running == self.cache.running <= 2
        assert len(self.cache) <= 3
        assert self.cache.kept_bytes <= 20
        for key, least, asked_at, task in [item for item in self.asking if item[3].done()]:
            if task.cancelled() or task.exception() is not None:
                continue
            version = task.result()
            assert version >= least, "what was invalidated before it was asked for came back"
            replaced_at = self.told_at.get((key, version + 1), float("inf"))
            assert replaced_at > asked_at - 2, "older than its time"
        self.asking = [item for item in self.asking if not item[3].done()]


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
