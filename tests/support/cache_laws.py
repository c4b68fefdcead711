"""The laws of a hot-read cache, written against an interface that any library can be put behind.

Needs the standard library alone, so that it also runs inside other libraries' own environments.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

PATIENCE_SECONDS = 3.0
TURNS = 30


class BusyError(Exception):
    """What an adapter raises for a load that was refused at once."""


class NotOfferedError(Exception):
    """What an adapter raises for something that its library does not have."""


@dataclass
class Time:
    """A clock that stands still until a law moves it."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


class Cache(Protocol):
    """A cache of one load function."""

    async def get(self, key: Any) -> Any:
        """Return a key's value, loading it when it is not there; raises BusyError when a load is refused."""
        ...

    def invalidate(self, key: Any) -> None:
        """Forget a key."""
        ...


Load = Callable[[Any], Awaitable[Any]]


class Library(Protocol):
    """Makes caches; those of one library object share a limit on loads where there is one."""

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
        """Make a cache; the size of a value is its length where it has one."""
        ...

    def limited(self, most: int) -> "Library":
        """Return the same library with at most that many loads in all its caches; may raise NotOfferedError."""
        ...


@dataclass
class Loads:
    """A load function that a law steers: it waits for ``go``, then returns or raises what is set."""

    value: Callable[[Any], Any] = lambda key: f"value of {key}"
    failure: BaseException | None = None
    ignores_cancellation: bool = False
    asked: list[Any] = field(default_factory=list)
    tasks: list[Any] = field(default_factory=list)
    running: int = 0
    most: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, key: Any) -> Any:
        self.asked.append(key)
        self.tasks.append(asyncio.current_task())
        self.running += 1
        self.most = max(self.most, self.running)
        value, failure = self.value(key), self.failure  # what it sees is what was true when it began
        try:
            while not self.go.is_set():
                try:
                    await self.go.wait()
                except asyncio.CancelledError:
                    if not self.ignores_cancellation:
                        raise
        finally:
            self.running -= 1
        if failure is not None:
            raise failure
        return value


def open_loads(**options: Any) -> Loads:
    loads = Loads(**options)
    loads.go.set()
    return loads


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def outcome(work: Awaitable[Any]) -> Any:
    """Return what came of something, be it an exception; never waits for ever."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
    if not done:
        task.cancel()
        raise AssertionError("it never ends")
    return "cancelled" if task.cancelled() else task.exception() or task.result()


class DiedError(BaseException):
    """No Exception: what a load may die of."""


async def law_a_value_is_loaded_once(library: Library) -> None:
    loads = open_loads()
    cache = library.cache(loads, time=Time())
    assert [await outcome(cache.get("a")) for _ in range(3)] == ["value of a"] * 3
    assert loads.asked == ["a"]


async def law_age_counts_by_the_given_clock_from_the_beginning_of_the_load(library: Library) -> None:
    loads, time = Loads(), Time()
    cache = library.cache(loads, time=time, ttl=2)
    first = asyncio.ensure_future(cache.get("a"))
    await settle()
    time.seconds = 1.5
    loads.go.set()
    await outcome(first)
    time.seconds = 1.9
    await outcome(cache.get("a"))
    assert len(loads.asked) == 1, "loaded again before its time"
    time.seconds = 2.0
    await outcome(cache.get("a"))
    assert len(loads.asked) == 2, "an old value was served"


async def law_a_load_runs_in_a_task_of_its_own(library: Library) -> None:
    loads = open_loads()
    caller = asyncio.ensure_future(library.cache(loads, time=Time()).get("a"))
    await outcome(caller)
    assert loads.tasks != [caller], "it ran in its caller's task"


async def law_a_cancelled_leader_hurts_nobody(library: Library) -> None:
    """spicedb PR 925: the first caller's cancel poisoned all waiters."""
    loads = Loads()
    cache = library.cache(loads, time=Time())
    leader = asyncio.ensure_future(cache.get("a"))
    await settle()
    followers = [asyncio.ensure_future(cache.get("a")) for _ in range(3)]
    await settle()
    leader.cancel()
    await settle()
    loads.go.set()
    assert [await outcome(follower) for follower in followers] == ["value of a"] * 3
    assert await outcome(leader) == "cancelled"
    assert loads.asked == ["a"], "it was loaded again"


async def law_a_cancelled_follower_hurts_nobody(library: Library) -> None:
    loads = Loads()
    cache = library.cache(loads, time=Time())
    tasks = [asyncio.ensure_future(cache.get("a")) for _ in range(4)]
    await settle()
    tasks[2].cancel()
    await settle()
    loads.go.set()
    found = [await outcome(task) for task in tasks]
    assert found == ["value of a", "value of a", "cancelled", "value of a"]
    assert loads.asked == ["a"]


async def law_many_waiters_cause_one_load(library: Library) -> None:
    loads = Loads()
    cache = library.cache(loads, time=Time())
    tasks = [asyncio.ensure_future(cache.get("a")) for _ in range(50)]
    await settle()
    loads.go.set()
    assert {await outcome(task) for task in tasks} == {"value of a"}
    assert loads.asked == ["a"]


async def law_many_waiters_cause_one_load_also_when_it_fails(library: Library) -> None:
    """layercache#59: the leader died and every waiter loaded at once."""
    loads = Loads(failure=OSError("away"))
    cache = library.cache(loads, time=Time())
    tasks = [asyncio.ensure_future(cache.get("a")) for _ in range(50)]
    await settle()
    loads.go.set()
    assert {type(await outcome(task)) for task in tasks} == {OSError}
    assert loads.asked == ["a"], f"{len(loads.asked)} loads"


async def law_a_place_stays_taken_until_its_load_has_ended(library: Library) -> None:
    loads = Loads(ignores_cancellation=True)
    cache = library.cache(loads, time=Time(), loads=1)
    only = asyncio.ensure_future(cache.get("a"))
    await settle()
    only.cancel()
    assert await outcome(only) == "cancelled"
    assert isinstance(await outcome(cache.get("b")), BusyError), "a second load began beside the first"
    loads.go.set()
    await settle()
    assert await outcome(cache.get("b")) == "value of b"


async def law_a_load_that_dies_frees_its_place_and_its_waiters(library: Library) -> None:
    loads = Loads(failure=DiedError())
    cache = library.cache(loads, time=Time(), loads=1)
    tasks = [asyncio.ensure_future(cache.get("a")) for _ in range(3)]
    await settle()
    loads.go.set()
    assert [type(await outcome(task)) for task in tasks] == [DiedError] * 3
    loads.failure = None
    assert await outcome(cache.get("a")) == "value of a", "it was kept"


async def law_a_load_that_somebody_cancels_frees_its_waiters(library: Library) -> None:
    loads = Loads(failure=asyncio.CancelledError())
    cache = library.cache(loads, time=Time(), loads=1)
    tasks = [asyncio.ensure_future(cache.get("a")) for _ in range(3)]
    await settle()
    loads.go.set()
    found = [await outcome(task) for task in tasks]
    assert "cancelled" not in found, "its waiters look as if somebody had cancelled them"
    loads.failure = None
    assert await outcome(cache.get("a")) == "value of a", "the cancellation was kept"


async def law_the_process_limit_holds_even_when_every_cache_fails(library: Library) -> None:
    limited = library.limited(3)
    loads = Loads(failure=OSError("away"))
    caches = [limited.cache(loads, time=Time()) for _ in range(4)]
    tasks = [asyncio.ensure_future(cache.get(key)) for cache in caches for key in range(4)]
    await settle()
    loads.go.set()
    found = [type(await outcome(task)) for task in tasks]
    assert loads.most <= 3, f"{loads.most} loads at once"
    assert found.count(OSError) == 3
    assert found.count(BusyError) == 13
    loads.failure = None
    assert await outcome(caches[0].get("new")) == "value of new", "a place was not given back"


async def law_loads_of_distinct_keys_are_bounded_and_refused_at_once(library: Library) -> None:
    loads = Loads()
    cache = library.cache(loads, time=Time(), loads=2)
    tasks = [asyncio.ensure_future(cache.get(key)) for key in ("a", "b", "c", "a")]
    await settle()
    assert loads.most <= 2, "unbounded"
    assert tasks[2].done(), "a distinct key waits in a queue"
    assert isinstance(tasks[2].exception(), BusyError)
    loads.go.set()
    assert [await outcome(tasks[number]) for number in (0, 1, 3)] == [
        "value of a",
        "value of b",
        "value of a",
    ]


async def law_invalidation_during_a_load_is_not_lost(library: Library) -> None:
    """guava#1881, caffeine#193."""
    version = "old"
    loads = Loads(value=lambda _: version)
    cache = library.cache(loads, time=Time())
    first = asyncio.ensure_future(cache.get("a"))
    await settle()
    version = "new"
    cache.invalidate("a")
    second = asyncio.ensure_future(cache.get("a"))
    await settle()
    loads.go.set()
    await outcome(first)
    assert await outcome(second) == "new", "who asked after it got the old value"
    assert await outcome(cache.get("a")) == "new", "the old value was kept"


async def law_an_old_load_never_replaces_a_newer_value(library: Library) -> None:
    slow = asyncio.Event()
    asked = 0

    async def load(_: Any) -> int:
        nonlocal asked
        asked += 1
        mine = asked
        if mine == 1:
            await slow.wait()
        return mine

    cache = library.cache(load, time=Time())
    first = asyncio.ensure_future(cache.get("a"))
    await settle()
    cache.invalidate("a")
    assert await outcome(cache.get("a")) == 2
    slow.set()
    await outcome(first)
    assert await outcome(cache.get("a")) == 2, "the old load's value came last and stayed"


async def law_a_load_that_asks_for_its_own_key_is_an_error(library: Library) -> None:
    cache: Cache

    async def load(key: Any) -> Any:
        return await cache.get(key)

    cache = library.cache(load, time=Time())
    assert isinstance(await outcome(cache.get("a")), Exception)


async def law_loads_that_wait_for_each_other_are_an_error(library: Library) -> None:
    cache: Cache
    together = asyncio.Barrier(2)

    async def load(key: Any) -> Any:
        await together.wait()
        return await cache.get({"a": "b", "b": "a"}[key])

    cache = library.cache(load, time=Time())
    tasks = [asyncio.ensure_future(cache.get(key)) for key in "ab"]
    for task in tasks:
        assert isinstance(await outcome(task), Exception)


async def law_failures_cool_down_and_never_return_what_has_expired(library: Library) -> None:
    loads, time = open_loads(), Time()
    cache = library.cache(loads, time=time, ttl=2)
    await outcome(cache.get("a"))
    time.seconds = 2
    loads.failure = OSError("away")
    found = [await outcome(cache.get("a")) for _ in range(3)]
    assert [type(item) for item in found] == [OSError] * 3, f"{found[0]!r} was served"
    assert len(loads.asked) == 2, "each caller loaded again"
    loads.failure = None
    time.seconds = 3
    assert await outcome(cache.get("a")) == "value of a", "it cools for more than a second"


async def law_time_outs_are_never_kept(library: Library) -> None:
    loads = open_loads(failure=TimeoutError())
    cache = library.cache(loads, time=Time())
    assert isinstance(await outcome(cache.get("a")), TimeoutError)
    loads.failure = None
    assert await outcome(cache.get("a")) == "value of a"


async def law_the_least_recently_used_go_first(library: Library) -> None:
    loads = open_loads()
    cache = library.cache(loads, time=Time(), entries=2)
    for key in ("a", "b", "a", "c", "a", "c"):
        await outcome(cache.get(key))
    assert loads.asked == ["a", "b", "c"]
    await outcome(cache.get("b"))
    assert loads.asked == ["a", "b", "c", "b"], "more entries than allowed"


async def law_bytes_are_bounded(library: Library) -> None:
    loads = open_loads(value=lambda _: "x" * 400)
    cache = library.cache(loads, time=Time(), size_bytes=1000)
    for key in ("a", "b", "c", "c", "b", "a"):
        await outcome(cache.get(key))
    assert loads.asked == ["a", "b", "c", "a"]


async def law_what_is_too_large_is_returned_and_not_kept(library: Library) -> None:
    loads = open_loads(value=lambda key: "x" * (2000 if key == "large" else 10))
    cache = library.cache(loads, time=Time(), size_bytes=1000)
    for key in ("small", "large", "large", "small"):
        found = await outcome(cache.get(key))
        assert isinstance(found, str)
        assert len(found) == (2000 if key == "large" else 10)
    assert loads.asked == ["small", "large", "large"], "it was kept, or it drove the others out"


LAWS: list[Callable[[Library], Awaitable[None]]] = [
    law for name, law in list(globals().items()) if name.startswith("law_")
]
