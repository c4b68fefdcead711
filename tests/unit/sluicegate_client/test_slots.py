"""`Slots.hold`: nothing runs without a slot, and no slot outlives its work."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import grpc
import pytest

from servicekit.errors import Reason, ServiceError
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from sluicegate_client.slots import SlotLost, Slots, current_lease, half_window, slot_metadata
from tests.support.fake_lease_service import FakeLeaseService, running_fake
from tests.support.waiting import eventually

SHORT = timedelta(milliseconds=400)
POOL = "gateway:acme"


@pytest.fixture
async def fake() -> FakeLeaseService:
    return FakeLeaseService()


@pytest.fixture
async def slots(fake: FakeLeaseService) -> AsyncIterator[Slots]:
    async with running_fake(fake) as address:
        client = Slots(address, owner="test")
        yield client
        await client.drain()
        await client.stop()


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_slot_is_held_while_the_block_runs_and_given_back_after_it(
    fake: FakeLeaseService, slots: Slots
) -> None:
    async with slots.hold(POOL, scopes=["poll"], weight=3) as slot:
        assert fake.held == {slot.token: 3}
        assert slot.fence == 1
        assert current_lease() is slot.lease
        assert dict(slot_metadata(slot.lease))["sluicegate-slot-fence"] == "1"
        assert not slot.lost
    assert fake.held == {}
    assert current_lease() is None


async def test_a_slot_is_given_back_when_the_work_fails_or_is_cancelled(
    fake: FakeLeaseService, slots: Slots
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with slots.hold(POOL, scopes=["poll"]):
            raise ZeroDivisionError

    async def work() -> None:
        async with slots.hold(POOL, scopes=["poll"]):
            await forever()

    task = asyncio.create_task(work())
    await eventually(lambda: fake.held)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not fake.held)


async def test_no_slot_no_work(fake: FakeLeaseService, slots: Slots) -> None:
    fake.capacity = 0
    with pytest.raises(ServiceError) as refused:
        async with slots.hold(POOL, scopes=["poll"]):
            pytest.fail("ran without a slot")
    assert refused.value.reason is Reason.SLOT_UNAVAILABLE


async def test_waiting_ends_with_the_first_free_slot(fake: FakeLeaseService, slots: Slots) -> None:
    fake.capacity = 1
    async with slots.hold(POOL, scopes=["poll"]) as first:
        waiting = asyncio.create_task(enter(slots))
        await eventually(lambda: len(fake.acquired) >= 2)
    assert await waiting != first.token
    assert len(set(fake.acquired)) == len(fake.acquired), "every attempt has a fresh token"


async def enter(slots: Slots) -> str:
    async with slots.hold(POOL, scopes=["poll"], wait=timedelta(seconds=20)) as slot:
        return slot.token


async def test_waiting_ends_with_its_time(fake: FakeLeaseService, slots: Slots) -> None:
    fake.capacity = 0
    with pytest.raises(ServiceError):
        async with slots.hold(POOL, scopes=["poll"], wait=timedelta(milliseconds=500)):
            pytest.fail("ran without a slot")
    assert 1 < len(fake.acquired) <= 4


async def test_an_acquire_without_an_answer_does_not_run_and_gives_its_token_back(
    fake: FakeLeaseService, slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate_client.slots._CALL_SECONDS", 0.2)
    fake.late_grant = asyncio.Event()
    with pytest.raises(ServiceError) as unknown:
        async with slots.hold(POOL, scopes=["poll"]):
            pytest.fail("ran without a slot")
    assert unknown.value.reason is Reason.TIME_IS_UP
    await eventually(lambda: fake.released == fake.acquired)
    assert fake.held == {}


async def test_a_cancelled_acquire_gives_its_token_back(fake: FakeLeaseService, slots: Slots) -> None:
    fake.late_grant = asyncio.Event()
    task = asyncio.create_task(enter(slots))
    await fake.granted.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: fake.released == fake.acquired)


class ThreadedService(lease_pb2_grpc.LeaseServiceServicer):
    """Answers from threads, so that it goes on while the test blocks its event loop."""

    def __init__(self) -> None:
        self.renewals = 0

    def Acquire(self, request: Any, context: Any) -> Any:  # noqa: N802
        lease = wire.Lease(token=request.token, fence=1, remaining_ms=request.ttl_ms, weight=1)
        return wire.AcquireResponse(lease=lease)

    def Renew(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.renewals += 1
        result = wire.RenewResult(
            token=request.items[0].token, outcome=wire.RENEW_OUTCOME_OK, remaining_ms=400, weight=1
        )
        return wire.RenewResponse(results=[result])

    def Release(self, request: Any, context: Any) -> Any:  # noqa: N802
        return wire.ReleaseResponse(results=[wire.ReleaseResult(token=request.tokens[0], freed=True)])


async def test_leases_are_renewed_while_the_event_loop_is_blocked() -> None:
    # prefect 19068, dask 4057
    service = ThreadedService()
    server = grpc.server(ThreadPoolExecutor(2))
    lease_pb2_grpc.add_LeaseServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client = Slots(f"127.0.0.1:{port}", owner="test")
    try:
        async with client.hold(POOL, scopes=["poll"], ttl=SHORT) as slot:
            blocked_from = time.monotonic()
            while time.monotonic() < blocked_from + 3 * SHORT.total_seconds() or service.renewals < 6:
                assert time.monotonic() < blocked_from + 30
            assert not slot.lost
            await asyncio.sleep(0)
    finally:
        await client.stop()
        server.stop(None).wait()


async def test_work_is_cancelled_when_the_lease_is_lost(fake: FakeLeaseService, slots: Slots) -> None:
    async def work() -> None:
        async with slots.hold(POOL, scopes=["poll"], ttl=SHORT) as slot:
            fake.lost.add(slot.token)
            await forever()

    with pytest.raises(SlotLost) as lost:
        await work()
    assert lost.value.reason is Reason.SLOT_LOST
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await eventually(lambda: fake.released == fake.acquired)


@pytest.mark.parametrize("trouble", ["hang_renew", "fail_renew"])
async def test_work_is_cancelled_at_the_local_deadline_when_no_reply_comes(
    fake: FakeLeaseService, slots: Slots, trouble: str
) -> None:
    setattr(fake, trouble, True)
    began = time.monotonic()
    with pytest.raises(SlotLost):
        async with slots.hold(POOL, scopes=["poll"], ttl=3 * SHORT) as slot:
            await forever()
    assert slot.lease.deadline <= began + 6 * SHORT.total_seconds()
    assert fake.renewed


async def test_a_short_outage_of_renewals_is_survived(fake: FakeLeaseService, slots: Slots) -> None:
    fake.fail_renew = True
    async with slots.hold(POOL, scopes=["poll"], ttl=timedelta(seconds=2)) as slot:
        await eventually(lambda: len(fake.renewed) >= 2)
        fake.fail_renew = False
        before = slot.lease.deadline
        await eventually(lambda: slot.lease.deadline > before)


async def test_an_outer_cancellation_wins_over_the_loss(fake: FakeLeaseService, slots: Slots) -> None:
    async def work() -> None:
        async with slots.hold(POOL, scopes=["poll"], ttl=SHORT) as slot:
            slot.lease.lose("test")
            asyncio.get_running_loop().call_soon(task.cancel)
            await forever()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_release_goes_on(fake: FakeLeaseService, slots: Slots) -> None:
    # redis-py 3847
    entered = asyncio.Event()

    async def work() -> None:
        async with slots.hold(POOL, scopes=["poll"]):
            entered.set()
        pytest.fail("the cancellation was swallowed")

    task = asyncio.create_task(work())
    await entered.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not fake.held)


async def test_a_failed_release_is_repeated_in_the_background(fake: FakeLeaseService, slots: Slots) -> None:
    async with slots.hold(POOL, scopes=["poll"]):
        fake.fail_release = 5
    await eventually(lambda: not fake.held)


async def test_renewals_end_with_the_work(fake: FakeLeaseService, slots: Slots) -> None:
    # redisson 1626: the renewer outlives the work. One hold ends well, one is forgotten without its end.
    async with slots.hold(POOL, scopes=["poll"], ttl=SHORT):
        pass

    async def forget() -> str:
        return (await slots.hold(POOL, scopes=["poll"], ttl=SHORT).__aenter__()).token

    token = await asyncio.create_task(forget())
    gc.collect()
    async with slots.hold(POOL, scopes=["poll"], ttl=SHORT) as other:
        count = fake.renewed.count(token)
        await eventually(lambda: fake.renewed.count(other.token) >= 4)
        assert fake.renewed.count(token) <= count + 1


def test_pauses_lie_in_the_upper_half_of_the_window() -> None:
    assert all(0.5 <= half_window(1.0) <= 1.0 for _ in range(1_000))


async def test_a_ttl_that_can_not_be_kept_is_refused(slots: Slots) -> None:
    with pytest.raises(ValueError, match="at least 200 ms"):
        async with slots.hold(POOL, scopes=["poll"], ttl=timedelta(milliseconds=100)):
            pytest.fail("ran without a slot")
