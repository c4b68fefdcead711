"""`WeightedLease`: one lease serves a whole process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from servicekit.errors import ServiceError
from sluicegate_client.slots import SlotLost, Slots, WeightedLease
from tests.support.fake_lease_service import FakeLeaseService, running_fake
from tests.support.waiting import eventually

POOL = "gateway:acme"
Make = Callable[[int], WeightedLease]


@pytest.fixture
async def fake() -> FakeLeaseService:
    return FakeLeaseService()


@pytest.fixture
async def make(fake: FakeLeaseService) -> AsyncIterator[Make]:
    made: list[WeightedLease] = []
    async with running_fake(fake) as address:
        slots = Slots(address, owner="test")

        def weighted(units: int) -> WeightedLease:
            made.append(slots.weighted(POOL, scopes=["poll"], units=units, ttl=timedelta(milliseconds=800)))
            return made[-1]

        yield weighted
        for lease in made:
            await lease.stop()
        await slots.drain()
        await slots.stop()


async def test_one_lease_serves_many_units(fake: FakeLeaseService, make: Make) -> None:
    lease = make(20)
    await lease.start()
    most = 0

    async def work() -> None:
        nonlocal most
        async with lease.unit():
            most = max(most, lease.in_use)
            await asyncio.sleep(0)

    await asyncio.gather(*(work() for _ in range(500)))
    assert len(fake.acquired) == 1
    assert most == 20
    assert (lease.held, lease.free, lease.in_use) == (20, 20, 0)


async def test_units_are_lent_in_order_of_arrival(make: Make) -> None:
    lease = make(1)
    await lease.start()
    order: list[int] = []

    async def work(number: int) -> None:
        async with lease.unit():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert order == list(range(20))


async def test_it_grows_and_shrinks(fake: FakeLeaseService, make: Make) -> None:
    lease = make(5)
    await lease.start()
    await eventually(lambda: lease.held == 5)
    lease.resize(12)
    await eventually(lambda: lease.held == 12)
    assert fake.used == 12
    lease.resize(3)
    assert lease.held == 3
    await eventually(lambda: fake.used == 3)
    lease.resize(0)
    await eventually(lambda: fake.used == 0)


async def test_units_in_use_are_given_back_when_they_are_free(fake: FakeLeaseService, make: Make) -> None:
    lease = make(4)
    await lease.start()
    async with lease.unit(), lease.unit(), lease.unit():
        lease.resize(1)
        assert lease.held == 3
    assert lease.held == 1
    await eventually(lambda: fake.used == 1)


async def test_a_lost_lease_stops_its_units_and_is_replaced(fake: FakeLeaseService, make: Make) -> None:
    lease = make(2)
    await lease.start()
    seen = []

    async def work() -> None:
        async with lease.unit() as unit:
            seen.append(unit.lease)
            fake.lost.add(unit.lease.token)
            await asyncio.Event().wait()

    with pytest.raises(SlotLost):
        await work()
    async with lease.unit() as again:
        assert again.lease.token != seen[0].token
        assert again.lease.fence > seen[0].fence
    assert lease.held == 2


async def test_waiting_units_survive_a_full_pool(fake: FakeLeaseService, make: Make) -> None:
    fake.capacity = 0
    lease = make(2)
    await lease.start()
    waiting = asyncio.create_task(use(lease))
    await eventually(lambda: lease.problem is not None)
    assert lease.lost
    assert lease.held == 0
    fake.capacity = 2
    await waiting
    await eventually(lambda: lease.held == 2)


async def use(lease: WeightedLease) -> None:
    async with lease.unit():
        pass


async def test_a_cancelled_wait_takes_no_unit(make: Make) -> None:
    lease = make(1)
    await lease.start()
    async with lease.unit():
        waiting = [asyncio.create_task(use(lease)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (lease.in_use, lease.free) == (0, 1)
    await use(lease)


async def test_draining_waits_for_units_and_gives_everything_back(fake: FakeLeaseService, make: Make) -> None:
    lease = make(2)
    await lease.start()
    finish = asyncio.Event()

    async def work() -> None:
        async with lease.unit():
            await finish.wait()

    working = [asyncio.create_task(work()) for _ in range(2)]
    await eventually(lambda: lease.in_use == 2)
    late = asyncio.create_task(use(lease))
    await asyncio.sleep(0)
    draining = asyncio.create_task(lease.drain())
    with pytest.raises(ServiceError, match="stops lending"):
        await late
    assert not draining.done()
    finish.set()
    await asyncio.gather(draining, *working)
    assert fake.used == 0
    with pytest.raises(ServiceError):
        await use(lease)


async def test_stopping_tells_the_units(fake: FakeLeaseService, make: Make) -> None:
    lease = make(1)
    await lease.start()

    async def work() -> None:
        async with lease.unit():
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await eventually(lambda: lease.in_use == 1)
    await lease.stop()
    with pytest.raises(SlotLost):
        await working
    await eventually(lambda: fake.used == 0)
