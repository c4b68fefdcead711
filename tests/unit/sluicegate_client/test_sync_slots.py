"""`SyncSlots.hold`: the same promises as in an event loop, for threads."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from servicekit.errors import Reason, ServiceError
from sluicegate_client.local_lease import SlotLost
from sluicegate_client.sync_slots import SyncSlots
from tests.support.fake_lease_service import FakeLeaseService, running_fake
from tests.support.waiting import eventually

SHORT = timedelta(milliseconds=400)
POOL = "gateway:acme"


@pytest.fixture
async def fake() -> FakeLeaseService:
    return FakeLeaseService()


@pytest.fixture
async def slots(fake: FakeLeaseService) -> AsyncIterator[SyncSlots]:
    async with running_fake(fake) as address:
        client = SyncSlots(address, owner="thread")
        yield client
        await asyncio.to_thread(client.close)


async def test_a_thread_holds_a_slot_while_its_block_runs(fake: FakeLeaseService, slots: SyncSlots) -> None:
    def work() -> None:
        with slots.hold(POOL, scopes=["poll"], weight=3) as slot:
            assert fake.held == {slot.token: 3}
            assert slot.fence == 1
            assert ("sluicegate-slot-fence", "1") in slot.metadata
            slot.check()
        assert fake.held == {}

    await asyncio.to_thread(work)


async def test_a_slot_is_given_back_when_the_block_fails(fake: FakeLeaseService, slots: SyncSlots) -> None:
    def work() -> None:
        with slots.hold(POOL, scopes=["poll"]):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(work)
    assert fake.held == {}


async def test_a_refusal_is_the_same_error_as_in_a_loop(fake: FakeLeaseService, slots: SyncSlots) -> None:
    fake.capacity = 0

    def work() -> None:
        with slots.hold(POOL, scopes=["poll"]):
            pytest.fail("ran without a slot")

    with pytest.raises(ServiceError) as refused:
        await asyncio.to_thread(work)
    assert refused.value.reason is Reason.SLOT_UNAVAILABLE
    assert refused.value.metadata["scope"] == "poll"


async def test_many_threads_wait_for_one_slot(fake: FakeLeaseService, slots: SyncSlots) -> None:
    fake.capacity = 1
    inside, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with slots.hold(POOL, scopes=["poll"], wait=timedelta(seconds=30)):
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1

    await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
    assert most == 1
    assert fake.held == {}


async def test_a_lost_lease_is_told_to_who_asks_and_to_the_listener(
    fake: FakeLeaseService, slots: SyncSlots
) -> None:
    told = threading.Event()

    def work() -> None:
        with slots.hold(POOL, scopes=["poll"], ttl=SHORT, on_lost=lambda _: told.set()) as slot:
            fake.lost.add(slot.token)
            assert told.wait(10)
            assert slot.lost
            with pytest.raises(SlotLost):
                slot.check()

    with pytest.raises(SlotLost):
        await asyncio.to_thread(work)


async def test_a_thread_is_told_at_the_local_deadline_when_no_reply_comes(
    fake: FakeLeaseService, slots: SyncSlots
) -> None:
    fake.hang_renew = True
    told: list[float] = []

    def work() -> None:
        began = time.monotonic()
        with slots.hold(
            POOL, scopes=["poll"], ttl=SHORT, on_lost=lambda _: told.append(time.monotonic() - began)
        ) as slot:
            while not slot.lost:
                time.sleep(0.005)
            deadline = slot.lease.deadline - began
            assert deadline < SHORT.total_seconds()

    with pytest.raises(SlotLost):
        await asyncio.to_thread(work)
    await eventually(lambda: told)


async def test_a_thread_keeps_its_lease_over_many_renewals(fake: FakeLeaseService, slots: SyncSlots) -> None:
    def work() -> None:
        with slots.hold(POOL, scopes=["poll"], ttl=SHORT) as slot:
            ends_at = time.monotonic() + 30
            while len(fake.renewed) < 8:
                slot.check()
                assert time.monotonic() < ends_at
                time.sleep(0.005)

    await asyncio.to_thread(work)
    assert fake.held == {}
