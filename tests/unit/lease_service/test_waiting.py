"""Who waits, when they ask, and what they leave behind; when a dispatcher looks."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lease_service.domain.model import (
    AcquireResult,
    Attempt,
    Claim,
    DispatchResult,
    Outcome,
    PoolPolicies,
    PoolState,
    QueuedRequest,
    ScopeState,
    Wait,
    Waiter,
)
from lease_service.domain.queue_view import in_order, why_waiting
from lease_service.domain.waiting_room import WaitingRoom
from lease_service.loops.dispatcher import Dispatcher
from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError
from tests.support.waiting import eventually

CLAIM = Claim(pool="p", scopes=("a",), weight=1, owner="o")
WAIT = Wait(wait_ms=60_000, tenant="t")


class Slots:
    """Answers WAITING until a test says otherwise."""

    def __init__(self) -> None:
        self.outcome = Outcome.WAITING
        self.asked: list[Wait] = []
        self.returned: list[str] = []
        self.failure: Exception | None = None

    async def acquire_batch(
        self, claim: Claim, tokens: Sequence[str], wait: Wait | None = None
    ) -> AcquireResult:
        assert wait is not None
        self.asked.append(wait)
        if self.failure is not None:
            raise self.failure
        held = self.outcome is Outcome.GRANTED
        return AcquireResult([Attempt(tokens[0], self.outcome, 7, 1_000 if held else 0, 1)], "a", 1, 1, 0)

    def give_back(self, pool: str, tokens: Sequence[str]) -> None:
        self.returned += tokens


@pytest.fixture
def slots() -> Slots:
    return Slots()


@pytest.fixture
def room(slots: Slots) -> WaitingRoom:
    return WaitingRoom(slots)


async def test_one_that_waits_asks_once_and_again_when_it_is_called(slots: Slots, room: WaitingRoom) -> None:
    task = asyncio.create_task(room.acquire(CLAIM, "x", WAIT))
    await eventually(lambda: room.queued("p") == 1)
    room.call("p", "other")
    room.call("q", "x")
    assert len(slots.asked) == 1
    slots.outcome = Outcome.GRANTED
    room.call("p", "x")
    result = await task
    assert result.attempts[0].held
    assert [wait.place for wait in slots.asked] == [0, 7]
    assert slots.asked[1].wait_ms <= 60_000
    assert (room.pools(), slots.returned) == ([], [])


async def test_a_call_between_question_and_answer_is_not_lost(room: WaitingRoom, slots: Slots) -> None:
    answer = slots.acquire_batch

    async def called_meanwhile(
        claim: Claim, tokens: Sequence[str], wait: Wait | None = None
    ) -> AcquireResult:
        result = await answer(claim, tokens, wait)
        if len(slots.asked) == 1:
            slots.outcome = Outcome.GRANTED
            room.call("p", tokens[0])
        return result

    slots.acquire_batch = called_meanwhile  # type: ignore[method-assign]
    assert (await room.acquire(CLAIM, "x", WAIT)).attempts[0].held


async def test_a_wait_that_is_over_leaves_the_queue(slots: Slots, room: WaitingRoom) -> None:
    result = await room.acquire(CLAIM, "x", replace(WAIT, wait_ms=20))
    assert result.attempts[0].outcome is Outcome.WAIT_OVER
    assert slots.returned == ["x"]


async def test_cancelling_and_failing_leave_the_queue(slots: Slots, room: WaitingRoom) -> None:
    task = asyncio.create_task(room.acquire(CLAIM, "x", WAIT))
    await eventually(lambda: room.queued("p") == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    slots.failure = ConnectionResetError()
    with pytest.raises(ConnectionResetError):
        await room.acquire(CLAIM, "y", WAIT)
    assert slots.returned == ["x", "y"]
    assert room.pools() == []


async def test_a_room_that_closes_sends_everybody_away(slots: Slots, room: WaitingRoom) -> None:
    task = asyncio.create_task(room.acquire(CLAIM, "x", WAIT))
    await eventually(lambda: room.queued("p") == 1)
    await room.drain()
    with pytest.raises(ServiceError) as sent_away:
        await task
    assert sent_away.value.reason is Reason.DEPENDENCY_AWAY
    with pytest.raises(ServiceError):
        await room.acquire(CLAIM, "y", WAIT)
    assert slots.returned == ["x", "y"]
    assert len(slots.asked) == 1


class Leases:
    def __init__(self) -> None:
        self.looks: list[str] = []
        self.result = DispatchResult(0, False, 1, 5_000, 3)
        self.more = 0

    async def dispatch(self, pool: str, longest_ttl_ms: int = 0) -> DispatchResult:
        self.looks.append(pool)
        assert longest_ttl_ms == 60_000
        if self.more:
            self.more -= 1
            return replace(self.result, more=True)
        return self.result


class Waiters:
    def __init__(self) -> None:
        self.here = {"p": 3}
        self.called: list[str | None] = []

    def pools(self) -> list[str]:
        return list(self.here)

    def queued(self, pool: str) -> int:
        return self.here.get(pool, 0)

    def call_all(self, pool: str | None = None) -> None:
        self.called.append(pool)


class Policies:
    async def get(self, pool: str) -> PoolPolicies:
        return PoolPolicies(pool, {})


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.fixture
def waiters() -> Waiters:
    return Waiters()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def dispatcher(leases: Leases, waiters: Waiters, clock: ManualClock) -> Dispatcher:
    return Dispatcher(leases, waiters, Policies(), clock=clock)


async def test_a_pool_is_looked_at_when_something_ends_there(
    dispatcher: Dispatcher, leases: Leases, clock: ManualClock
) -> None:
    await dispatcher.run_once()
    clock.advance(4.9)
    await dispatcher.run_once()
    assert leases.looks == ["p"]
    clock.advance(0.1)
    await dispatcher.run_once()
    assert leases.looks == ["p", "p"]
    dispatcher.look_soon("p")
    await dispatcher.run_once()
    assert len(leases.looks) == 3


async def test_nobody_waits_nobody_looks(dispatcher: Dispatcher, leases: Leases, waiters: Waiters) -> None:
    waiters.here.clear()
    dispatcher.look_soon("p")
    await dispatcher.run_once()
    assert leases.looks == []


async def test_a_dispatch_that_has_more_goes_on_at_once(dispatcher: Dispatcher, leases: Leases) -> None:
    leases.more = 5
    await dispatcher.run_once()
    assert len(leases.looks) == 6


async def test_waiters_that_the_store_has_lost_ask_again_after_a_second_look(
    dispatcher: Dispatcher, leases: Leases, waiters: Waiters, clock: ManualClock
) -> None:
    leases.result = replace(leases.result, waiting=2)
    await dispatcher.run_once()
    assert waiters.called == []
    clock.advance(1)
    await dispatcher.run_once()
    assert waiters.called == ["p"]
    leases.result = replace(leases.result, waiting=3)
    clock.advance(1)
    await dispatcher.run_once()
    assert waiters.called == ["p"]


def queued(token: str, tenant: str, place: int, *, tag: int = 0, priority: int = 0) -> QueuedRequest:
    waiter = Waiter(
        token=token,
        owner="o",
        job="",
        tenant=tenant,
        priority=priority,
        scopes=["a"],
        weight=2,
        age_ms=0,
        remaining_ms=900,
    )
    return QueuedRequest(waiter, tag, place, 10)


def test_the_queue_is_shown_in_the_order_of_grants() -> None:
    requests = [queued("a1", "a", 1), queued("a2", "a", 2), queued("b1", "b", 3), queued("c1", "c", 4, tag=5)]
    waiters = in_order([*requests, queued("late", "d", 5, tag=99, priority=1)])
    assert [waiter.token for waiter in waiters] == ["late", "a1", "b1", "c1", "a2"]
    assert [waiter.position for waiter in waiters] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("used", "capacity", "paused", "relearning", "words"),
    [
        (2, 3, False, 0, "it needs 2 of a, of which 2 of 3 are held by 1 leases"),
        (0, 1, False, 0, "a has capacity 1 and it needs 2"),
        (0, 3, True, 0, "p is paused"),
        (0, 3, False, 700, "another 700 ms"),
        (0, 3, False, 0, "kept back for a wide request"),
    ],
)
def test_why_one_waits_is_said_in_words(
    used: int, capacity: int, *, paused: bool, relearning: int, words: str
) -> None:
    scope = ScopeState(
        scope="a", capacity=capacity, used=used, holder_count=1, next_expiry_ms=50, paused=paused
    )
    waiters = in_order([queued("a1", "a", 1), queued("a2", "a", 2)])
    sentence = why_waiting("p", PoolState([scope], 1, relearning), waiters[1], waiters)
    assert sentence.startswith("waits, place 2 of 2 in p (1 of tenant a before it): ")
    assert words in sentence
    assert sentence.endswith("it gives up in 900 ms")
