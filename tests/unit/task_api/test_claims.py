import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from servicekit.clock import SystemClock
from servicekit.errors import Reason, ServiceError
from task_api.domain.channels import Channels
from task_api.domain.claims import ClaimLimits, Claims
from task_api.domain.low_water import LowWater
from task_api.domain.model import (
    ChannelPolicy,
    Claimed,
    ClaimKey,
    ClaimRequest,
    EndedClaim,
    Renewed,
    Route,
    Slot,
    TextPiece,
    WriteOutcome,
)
from task_api.domain.signals import Signals
from task_api.domain.turns import Turns
from tests.support.waiting import eventually

REQUEST = ClaimRequest("w", ("c",), {"k": 1}, 5)


class Store:
    """Claims in memory, as far as these tests need them."""

    def __init__(self) -> None:
        self.ready = 0
        self.claiming: asyncio.Event | None = None
        self.fail_claim: Exception | None = None
        self.claimed: list[ClaimKey] = []
        self.released: list[ClaimKey] = []
        self.expired: list[ClaimKey] = []
        self.appended: list[TextPiece] = []

    async def count_ready(self, channel: str, request: ClaimRequest, limit: int, start: int) -> int:
        return min(self.ready, limit)

    async def claim(
        self,
        channel: str,
        request: ClaimRequest,
        owner: str,
        *,
        slots: Sequence[Slot],
        lease: timedelta,
        start: int,
    ) -> Sequence[Claimed]:
        if self.claiming is not None:
            await self.claiming.wait()
        if self.fail_claim is not None:
            raise self.fail_claim
        taken = [slot for _, slot in zip(range(self.ready), slots, strict=False)]
        self.ready -= len(taken)
        claimed = [_claimed(number, owner, slot, lease) for number, slot in enumerate(taken)]
        self.claimed += [item.key for item in claimed]
        return claimed

    async def renew(self, keys: Sequence[ClaimKey], lease: timedelta) -> Sequence[Renewed | None]:
        return [
            Renewed(f"slot{key.epoch}", lease, cancel_requested=False) if key.epoch else None for key in keys
        ]

    async def expire(self, keys: Sequence[ClaimKey]) -> None:
        self.expired += keys

    async def append_text(self, pieces: Sequence[TextPiece]) -> Sequence[bool | None]:
        self.appended += pieces
        return [True] * len(pieces)

    async def release(self, keys: Sequence[ClaimKey]) -> Sequence[EndedClaim | None]:
        self.released += keys
        return [EndedClaim(key, "c", f"slot{number}", terminal=False) for number, key in enumerate(keys)]

    async def own_ends(self, keys: Sequence[ClaimKey]) -> Sequence[str | None]:
        return [None] * len(keys)


class SlotBook:
    """Slots in memory."""

    def __init__(self, free: int = 10) -> None:
        self.free = free
        self.held: set[str] = set()
        self.lost: set[str] = set()
        self.away = False

    async def acquire(self, channel: str, *, count: int, owner: str) -> tuple[Sequence[Slot], timedelta]:
        granted = min(count, self.free - len(self.held))
        slots = [Slot(f"slot{len(self.held) + number}", number) for number in range(granted)]
        self.held |= {slot.token for slot in slots}
        return slots, timedelta() if granted == count else timedelta(milliseconds=50)

    async def renew(self, tokens: Sequence[str]) -> set[str]:
        if self.away:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "away")
        return self.lost & set(tokens)

    async def release(self, tokens: Sequence[str]) -> None:
        if self.away:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "away")
        self.held -= set(tokens)


class Wakes:
    """Notes nothing."""

    def ready(self, channels: Sequence[str]) -> None: ...

    def text(self, task_ids: Sequence[UUID]) -> None: ...


class ChannelBook:
    """One channel in memory."""

    def __init__(self) -> None:
        self.policy = ChannelPolicy(name="c", concurrency=5, max_backlog=5, max_attempts=3)
        self.reads = 0
        self.fail = False
        self.waiting = 0

    async def read(self) -> Sequence[ChannelPolicy]:
        self.reads += 1
        if self.fail:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "away")
        return [self.policy]

    async def routes(self) -> Sequence[Route]:
        return []

    async def backlog(self, name: str, limit: int) -> int:
        return min(self.waiting, limit)


def _claimed(number: int, owner: str, slot: Slot, lease: timedelta) -> Claimed:
    return Claimed(
        key=ClaimKey(UUID(int=number), owner, 1),
        slot=slot,
        tenant="t",
        channel="c",
        kind="k",
        payload="{}",
        payload_version=1,
        max_attempts=3,
        deadline_at=None,
        traceparent="",
        lease=lease,
        waited_seconds=0,
    )


class World:
    """Claims on fakes."""

    def __init__(self) -> None:
        self.store, self.slots, self.channels = Store(), SlotBook(), ChannelBook()
        self.ready: Signals[str] = Signals()
        self.reports: list[str] = []
        fakes: Any = (self.store, self.slots, self.channels)
        clock = SystemClock()
        self.claims = Claims(
            fakes[0],
            fakes[1],
            Channels(fakes[2], fakes[1], Wakes(), clock=clock),
            Wakes(),
            turns=Turns(fakes[0]),
            low_water=LowWater(clock),
            ready=self.ready,
            clock=clock,
            limits=ClaimLimits(timedelta(seconds=45), timedelta(seconds=30)),
            report=lambda what, _problem: self.reports.append(what),
        )


@pytest.fixture
def world() -> World:
    return World()


async def test_slots_that_no_task_needed_go_back(world: World) -> None:
    world.store.ready = 5
    world.slots.free = 3
    assert len(await world.claims.claim(REQUEST, timedelta())) == 3
    world.store.ready, original = 2, world.store.count_ready

    async def too_many(*arguments: Any) -> int:
        await original(*arguments)
        return 5

    world.store.count_ready = too_many  # type: ignore[method-assign]
    world.slots.held.clear()
    assert len(await world.claims.claim(REQUEST, timedelta())) == 2
    assert len(world.slots.held) == 2


async def test_a_claim_that_fails_gives_its_slots_back(world: World) -> None:
    world.store.ready, world.store.fail_claim = 5, ConnectionError("gone")
    with pytest.raises(ConnectionError):
        await world.claims.claim(REQUEST, timedelta())
    assert world.slots.held == set()


async def test_nothing_to_do_takes_no_slot(world: World) -> None:
    assert await world.claims.claim(REQUEST, timedelta()) == []
    assert world.slots.held == set()


async def test_a_caller_that_leaves_during_the_claim_leaves_nothing_claimed(world: World) -> None:
    world.store.ready, world.store.claiming = 3, asyncio.Event()
    call = asyncio.create_task(world.claims.claim(REQUEST, timedelta(seconds=60)))
    await eventually(lambda: world.slots.held)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    world.store.claiming.set()
    await eventually(lambda: len(world.store.released) == 3)
    assert world.store.released == world.store.claimed


async def test_a_wake_ends_the_wait_and_stopping_ends_it_empty(world: World) -> None:
    waiting = asyncio.create_task(world.claims.claim(REQUEST, timedelta(seconds=60)))
    await asyncio.sleep(0.01)
    world.store.ready = 1
    world.ready.notify(["c"])
    assert len(await asyncio.wait_for(waiting, 5)) == 1
    waiting = asyncio.create_task(world.claims.claim(REQUEST, timedelta(seconds=60)))
    await asyncio.sleep(0.01)
    world.claims.stop_claiming()
    assert await asyncio.wait_for(waiting, 5) == []


async def test_a_full_channel_is_tried_again_when_it_says_so(world: World) -> None:
    world.store.ready, world.slots.free = 2, 0
    waiting = asyncio.create_task(world.claims.claim(REQUEST, timedelta(seconds=60)))
    await asyncio.sleep(0.05)
    world.slots.free = 10
    assert len(await asyncio.wait_for(waiting, 5)) == 2


async def test_a_paused_or_unread_channel_gives_nothing(world: World) -> None:
    world.store.ready = 5
    world.channels.policy = ChannelPolicy(name="c", concurrency=5, max_backlog=5, max_attempts=3, paused=True)
    assert await world.claims.claim(REQUEST, timedelta()) == []
    other = World()
    other.store.ready, other.channels.fail = 5, True
    with pytest.raises(ServiceError):
        await other.claims.claim(REQUEST, timedelta())
    assert other.slots.held == set()


async def test_either_row_or_slot_lost_is_a_lost_claim(world: World) -> None:
    keys = [ClaimKey(UUID(int=1), "o", epoch) for epoch in (1, 0, 2)]
    world.slots.lost = {"slot2"}
    assert [renewal.held for renewal in await world.claims.renew(keys)] == [True, False, False]
    assert world.store.expired == [keys[2]]


async def test_an_unreachable_lease_service_renews_nothing(world: World) -> None:
    world.slots.away = True
    with pytest.raises(ServiceError):
        await world.claims.renew([ClaimKey(UUID(int=1), "o", 1)])


async def test_slots_that_can_not_be_released_do_not_fail_the_write(world: World) -> None:
    world.slots.away = True
    [result] = await world.claims.release([ClaimKey(UUID(int=1), "o", 1)])
    assert result.outcome is WriteOutcome.OK
    assert world.reports == ["slots were not released and run out by themselves"]


async def test_unstorable_text_is_refused_and_the_rest_is_stored(world: World) -> None:
    key = ClaimKey(UUID(int=1), "o", 1)
    pieces = [
        TextPiece(key, 1, "a"),
        TextPiece(key, 2, "b\x00"),
        TextPiece(key, 2**60, "c"),
        TextPiece(key, 3, "d"),
    ]
    results = await world.claims.append_text(pieces)
    assert [result.outcome.value for result in results] == ["ok", "refused", "refused", "ok"]
    assert [piece.text for piece in world.store.appended] == ["a", "d"]


async def test_the_backlog_cap_counts_its_own_additions_and_counts_again_before_refusing(
    world: World,
) -> None:
    channels, book = world.claims._channels, world.channels
    policy = await channels.get("c")
    for _ in range(5):
        await channels.admit(policy)
    with pytest.raises(ServiceError):  # none of them is stored yet, but all are on their way
        await channels.admit(policy)
    channels.settled(["c"] * 5)
    book.waiting = 5
    with pytest.raises(ServiceError) as caught:
        await channels.admit(policy)
    assert caught.value.reason is Reason.BACKLOG_FULL
    book.waiting = 4
    await channels.admit(policy)


async def test_policies_are_read_once_for_many_callers(world: World) -> None:
    channels = world.claims._channels
    await asyncio.gather(*(channels.get("c") for _ in range(20)))
    assert world.channels.reads == 1
    with pytest.raises(ServiceError) as caught:
        await channels.get("missing")
    assert caught.value.reason is Reason.NOT_FOUND
