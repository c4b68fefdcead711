"""Waiting over gRPC: pushed grants, ends of waits, several replicas, sessions, and what operators see of the queue."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
import redis.asyncio

from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.ids import new_token
from sluicegate.errors.v1 import errors_pb2
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from sluicegate_client.slots import Slots
from sluicegate_client.sync_slots import SyncSlots
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.waiting import eventually

POOL = "gateway:acme"
WAIT_MS = 20_000


@pytest.fixture
async def address(database: str, redis_url: str) -> AsyncIterator[str]:
    async with running_lease_service(lease_settings(database, redis_url)) as address:
        yield address


@pytest.fixture
async def stub(address: str) -> AsyncIterator[Any]:
    channel = Channel(address, name="lease_service")
    yield lease_pb2_grpc.LeaseServiceStub(channel.raw)
    await channel.stop()


@pytest.fixture
async def other_stub(stub: Any, database: str, redis_url: str) -> AsyncIterator[Any]:
    """Another replica."""
    async with running_lease_service(lease_settings(database, redis_url)) as address:
        channel = Channel(address, name="lease_service")
        yield lease_pb2_grpc.LeaseServiceStub(channel.raw)
        await channel.stop()


async def set_policy(stub: Any, capacity: int, scope: str = "poll", **fields: Any) -> wire.Policy:
    request = wire.SetPolicyRequest(pool=POOL, scope=scope, capacity=capacity, actor="test", **fields)
    policy: wire.Policy = (await stub.SetPolicy(request)).policy
    return policy


def asked(**fields: Any) -> wire.AcquireRequest:
    defaults = {"pool": POOL, "token": new_token(), "scopes": ["poll"], "weight": 1, "owner": "test"}
    return wire.AcquireRequest(**(defaults | {"ttl_ms": 60_000} | fields))


def waits(stub: Any, **fields: Any) -> "asyncio.Task[Any]":
    """Begin to wait."""
    request = asked(**({"wait_ms": WAIT_MS} | fields))
    return asyncio.ensure_future(stub.Acquire(request, timeout=WAIT_MS / 1000 + 2))


async def release(stub: Any, *tokens: str) -> None:
    await stub.Release(wire.ReleaseRequest(pool=POOL, tokens=tokens))


async def queued(stub: Any, count: int) -> list[wire.Waiter]:
    """Wait until that many wait."""

    async def all_of_them() -> Any:
        answer = await stub.ListWaiters(wire.ListWaitersRequest(pool=POOL))
        return (answer.waiters,) if answer.total == count else None

    (waiters,) = await eventually(all_of_them)
    return list(waiters)


async def test_a_waiting_acquire_is_answered_when_a_slot_falls_free(stub: Any, other_stub: Any) -> None:
    await set_policy(stub, 1)
    held = (await stub.Acquire(asked())).lease
    first = waits(stub)
    await queued(stub, 1)
    second = waits(other_stub)
    await queued(stub, 2)
    await release(other_stub, held.token)
    lease = (await first).lease
    assert lease.fence > held.fence
    assert lease.remaining_ms == 60_000
    assert lease.ticket
    assert not second.done()
    await release(stub, lease.token)
    assert (await second).lease.fence > lease.fence


async def test_a_free_slot_is_granted_without_waiting(stub: Any) -> None:
    await set_policy(stub, 1)
    assert (await waits(stub)).lease.weight == 1


async def test_an_expired_lease_and_growth_reach_waiters(stub: Any) -> None:
    await set_policy(stub, 1)
    await stub.Acquire(asked(ttl_ms=300))
    first, second = waits(stub), waits(stub)
    await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    await set_policy(stub, 2)
    await asyncio.gather(first, second)


async def test_a_wait_ends_with_its_time(stub: Any) -> None:
    await set_policy(stub, 1)
    held = (await stub.Acquire(asked())).lease
    with pytest.raises(ServiceError) as over:
        await waits(stub, wait_ms=200)
    assert over.value.reason is Reason.SLOT_UNAVAILABLE
    assert (over.value.metadata["cause"], over.value.metadata["scope"]) == ("wait_over", "poll")
    await queued(stub, 0)
    await release(stub, held.token)
    assert (await stub.Acquire(asked())).lease.weight == 1


async def test_cancelling_ends_the_wait_at_once(stub: Any) -> None:
    await set_policy(stub, 1)
    held = (await stub.Acquire(asked())).lease
    first, second = waits(stub), waits(stub)
    await queued(stub, 2)
    first.cancel()
    await queued(stub, 1)
    await release(stub, held.token)
    assert (await second).lease.weight == 1


async def test_too_many_waiters_are_refused_at_once(stub: Any) -> None:
    await set_policy(stub, 0, max_waiting=2, max_waiting_per_tenant=1)
    first = waits(stub, tenant="a")
    await queued(stub, 1)
    with pytest.raises(ServiceError) as refused:
        await waits(stub, tenant="a")
    assert refused.value.reason is Reason.BACKLOG_FULL
    second = waits(stub, tenant="b")
    await queued(stub, 2)
    with pytest.raises(ServiceError) as refused:
        await waits(stub, tenant="c")
    assert refused.value.reason is Reason.BACKLOG_FULL
    kept = await set_policy(stub, 2)
    assert (kept.max_waiting, kept.max_waiting_per_tenant) == (2, 1)
    await asyncio.gather(first, second)


async def test_shares_of_tenants_are_kept_and_changed_one_by_one(stub: Any) -> None:
    await set_policy(stub, 1, shares=[wire.TenantShare(tenant="gold", weight=3)])
    changed = await set_policy(stub, 1, shares=[wire.TenantShare(tenant="silver", weight=2)])
    assert {share.tenant: share.weight for share in changed.shares} == {"gold": 3, "silver": 2}
    changed = await set_policy(stub, 1, shares=[wire.TenantShare(tenant="gold", weight=0)])
    assert {share.tenant: share.weight for share in changed.shares} == {"silver": 2}


@pytest.mark.parametrize(
    "fields",
    [{"wait_ms": -1}, {"wait_ms": 600_001}, {"priority": 11}, {"priority": -11}, {"tenant": "t" * 129}],
)
async def test_terms_of_waiting_have_bounds(stub: Any, fields: dict[str, Any]) -> None:
    await set_policy(stub, 1)
    with pytest.raises(ServiceError) as refused:
        await stub.Acquire(asked(**fields))
    assert refused.value.reason is Reason.INVALID_FIELD


async def test_a_replica_that_stops_sends_its_waiters_away(database: str, redis_url: str, stub: Any) -> None:
    await set_policy(stub, 1)
    held = (await stub.Acquire(asked())).lease
    async with running_lease_service(lease_settings(database, redis_url)) as address:
        channel = Channel(address, name="lease_service")
        leaving = waits(lease_pb2_grpc.LeaseServiceStub(channel.raw))
        await queued(stub, 1)
    with pytest.raises(ServiceError) as sent_away:
        await leaving
    assert sent_away.value.reason is Reason.DEPENDENCY_AWAY
    await channel.stop()
    await queued(stub, 0)
    await release(stub, held.token)


async def test_lost_messages_are_made_good(stub: Any, redis_url: str) -> None:
    await set_policy(stub, 1)
    held = (await stub.Acquire(asked(ttl_ms=1_000))).lease
    waiting = waits(stub)
    await queued(stub, 1)
    administrator = redis.asyncio.Redis.from_url(redis_url)
    await administrator.client_kill_filter(_type="pubsub")
    await release(stub, held.token)
    lease = (await waiting).lease
    assert lease.fence > held.fence
    await administrator.aclose()


async def test_waiters_are_listed_in_order_and_in_pages(stub: Any) -> None:
    await set_policy(stub, 0, shares=[wire.TenantShare(tenant="gold", weight=2)])
    tasks = []
    for number in range(7):
        tasks.append(waits(stub, tenant="gold" if number % 2 else "plain", job=f"job{number}"))
        await queued(stub, number + 1)
    tasks.append(waits(stub, priority=5, job="urgent"))
    found = await queued(stub, 8)
    assert [waiter.job for waiter in found] == [
        *("urgent", "job0", "job1", "job3", "job2", "job5", "job4", "job6")
    ]
    assert [waiter.position for waiter in found] == list(range(1, 9))
    assert (found[1].tenant, found[1].scopes, found[1].weight, found[1].owner) == (
        "plain",
        ["poll"],
        1,
        "test",
    )
    assert 0 < found[0].remaining_ms <= WAIT_MS
    page = await stub.ListWaiters(wire.ListWaitersRequest(pool=POOL, page_size=5))
    rest = await stub.ListWaiters(
        wire.ListWaitersRequest(pool=POOL, page_size=5, page_token=page.next_page_token)
    )
    assert [len(page.waiters), len(rest.waiters)] == [5, 3]
    assert not rest.next_page_token
    await set_policy(stub, 8)
    await asyncio.gather(*tasks)


async def test_explain_says_why_one_waits(stub: Any) -> None:
    await set_policy(stub, 2)
    held = (await stub.Acquire(asked(weight=2))).lease
    first = waits(stub)
    await queued(stub, 1)
    token = new_token()
    second = waits(stub, token=token)
    await queued(stub, 2)
    answer = await stub.Explain(wire.ExplainRequest(pool=POOL, token=token))
    assert "place 2 of 2" in answer.verdict
    assert "it needs 1 of poll, of which 2 of 2 are held by 1 leases" in answer.verdict
    assert answer.waiter.token == token
    assert answer.scopes[0].waiting_count == 2
    await stub.PausePool(wire.PausePoolRequest(pool=POOL, actor="me"))
    answer = await stub.Explain(wire.ExplainRequest(pool=POOL, token=token))
    assert "is paused" in answer.verdict
    answer = await stub.Explain(wire.ExplainRequest(pool=POOL, token=held.token))
    assert "does not wait" in answer.verdict
    await stub.ResumePool(wire.ResumePoolRequest(pool=POOL, actor="me"))
    await release(stub, held.token)
    await asyncio.gather(first, second)


async def test_force_release_sends_a_waiter_away(stub: Any, other_stub: Any) -> None:
    await set_policy(stub, 0)
    token = new_token()
    waiting = waits(other_stub, token=token)
    await queued(stub, 1)
    answer = await stub.ForceRelease(
        wire.ForceReleaseRequest(pool=POOL, token=token, actor="me", reason="stuck")
    )
    assert answer.freed
    with pytest.raises(ServiceError) as sent_away:
        await waiting
    assert sent_away.value.reason is Reason.SLOT_LOST


async def test_a_pool_is_drained(stub: Any, database: str) -> None:
    await set_policy(stub, 3)
    held = [(await stub.Acquire(asked())).lease.token for _ in range(3)]
    request = wire.DrainPoolRequest(pool=POOL, actor="me", reason="maintenance")
    left = await stub.DrainPool(request)
    assert (left.held, left.scopes[0].used) == (3, 3)
    waiting = waits(stub)
    await queued(stub, 1)
    request.wait_ms = 15_000
    draining = asyncio.ensure_future(stub.DrainPool(request, timeout=17))
    await release(stub, *held)
    left = await draining
    assert (left.held, left.waiting) == (0, 1)
    assert not waiting.done()
    await stub.ResumePool(wire.ResumePoolRequest(pool=POOL, actor="me"))
    await waiting
    connection = await asyncpg.connect(database)
    notes = [
        row["note"] for row in await connection.fetch("SELECT note FROM slot_audit WHERE kind = 'drain'")
    ]
    assert sorted(notes) == ["0 leases left; maintenance", "3 leases left; maintenance"]
    await connection.close()


async def test_hold_waits_in_the_queue_longer_than_its_ttl(stub: Any, address: str) -> None:
    await set_policy(stub, 1)
    held = (await stub.Acquire(asked())).lease
    slots = Slots(address, owner="holder")
    ttl = timedelta(milliseconds=300)

    async def work() -> float:
        async with slots.hold(POOL, scopes=["poll"], ttl=ttl, wait=timedelta(seconds=20), priority=3) as slot:
            return slot.lease.deadline - time.monotonic()

    working = asyncio.ensure_future(work())
    [waiter] = await queued(stub, 1)
    assert (waiter.owner, waiter.priority) == ("holder", 3)

    async def older_than_its_ttl() -> bool:
        return bool((await queued(stub, 1))[0].age_ms > 600)

    await eventually(older_than_its_ttl)
    await release(stub, held.token)
    assert 0 < await working <= 0.3
    await slots.drain()
    await slots.stop()


async def test_a_thread_waits_in_the_queue(stub: Any, address: str) -> None:
    await set_policy(stub, 1)
    held = (await stub.Acquire(asked())).lease

    def work() -> int:
        with (
            SyncSlots(address, owner="thread") as slots,
            slots.hold(POOL, scopes=["poll"], wait=timedelta(seconds=20)) as slot,
        ):
            return slot.fence

    working = asyncio.ensure_future(asyncio.to_thread(work))
    await queued(stub, 1)
    await release(stub, held.token)
    assert await working > held.fence


class Stream:
    """One session; results by request id."""

    def __init__(self, stub: Any) -> None:
        self.call = stub.Session()
        self.results: dict[int, wire.SessionResult] = {}
        self.lost: list[str] = []
        self.count = 0
        self.messages = 0
        self.reader = asyncio.ensure_future(self.read())

    async def read(self) -> None:
        async for response in self.call:
            self.messages += 1
            for result in response.results:
                if result.request_id:
                    self.results[result.request_id] = result
                else:
                    self.lost.append(result.loss.token)

    async def send(self, *operations: Any) -> list[int]:
        """Send one message; returns the request ids."""
        items = []
        for operation in operations:
            self.count += 1
            name = {wire.AcquireRequest: "acquire", wire.RenewRequest: "renew"}.get(
                type(operation), "release"
            )
            items.append(wire.SessionItem(request_id=self.count, **{name: operation}))
        await self.call.write(wire.SessionRequest(items=items))
        return [item.request_id for item in items]

    async def ask(self, *operations: Any) -> list[wire.SessionResult]:
        """Send one message and wait for all of its results."""
        ids = await self.send(*operations)
        await eventually(lambda: all(identity in self.results for identity in ids))
        return [self.results[identity] for identity in ids]


@pytest.fixture
async def stream(stub: Any) -> AsyncIterator[Stream]:
    await set_policy(stub, 3)
    stream = Stream(stub)
    yield stream
    stream.call.cancel()
    await asyncio.wait({stream.reader})


def renewing(*tokens: str) -> wire.RenewRequest:
    return wire.RenewRequest(pool=POOL, items=[wire.RenewItem(token=token) for token in tokens])


def releasing(*tokens: str) -> wire.ReleaseRequest:
    return wire.ReleaseRequest(pool=POOL, tokens=tokens)


async def test_a_session_takes_renews_and_releases_in_batches(stream: Stream) -> None:
    results = await stream.ask(*(asked() for _ in range(5)))
    held = [result.acquire.lease.token for result in results if result.HasField("acquire")]
    refused = [result.error for result in results if result.HasField("error")]
    assert len(held) == 3
    assert [error.reason for error in refused] == [errors_pb2.REASON_SLOT_UNAVAILABLE] * 2
    assert refused[0].metadata["scope"] == "poll"
    assert refused[0].retry_after_ms > 0
    first, second = await stream.ask(renewing(held[0], new_token()), renewing(*held[1:]))
    assert [item.outcome for item in first.renew.results] == [wire.RENEW_OUTCOME_OK, wire.RENEW_OUTCOME_LOST]
    assert [item.token for item in second.renew.results] == held[1:]
    [result] = await stream.ask(releasing(*held))
    assert [item.freed for item in result.release.results] == [True] * 3


async def test_errors_of_one_item_leave_the_others_and_the_stream_alone(stream: Stream) -> None:
    unknown, wide, good = await stream.ask(asked(pool="gateway:nobody"), asked(weight=9), asked())
    assert unknown.error.reason == errors_pb2.REASON_NOT_FOUND
    assert wide.error.reason == errors_pb2.REASON_INVALID_FIELD
    assert good.acquire.lease.weight == 1


async def test_grants_are_pushed_on_a_session_and_a_release_ends_a_wait(stream: Stream, stub: Any) -> None:
    held = [result.acquire.lease.token for result in await stream.ask(*(asked() for _ in range(3)))]
    requests = [asked(wait_ms=WAIT_MS) for _ in range(3)]
    ids = await stream.send(*requests)
    await queued(stub, 3)
    [result] = await stream.ask(releasing(requests[1].token))
    assert not result.release.results[0].freed
    await eventually(lambda: ids[1] in stream.results)
    assert stream.results[ids[1]].error.reason == errors_pb2.REASON_SLOT_LOST
    await release(stub, *held[:2])
    await eventually(lambda: ids[0] in stream.results and ids[2] in stream.results)
    assert stream.results[ids[2]].acquire.lease.token == requests[2].token


async def test_losses_are_pushed_on_a_session(stream: Stream, other_stub: Any) -> None:
    [short, forced] = await stream.ask(asked(ttl_ms=300), asked())
    token = forced.acquire.lease.token
    await other_stub.ForceRelease(
        wire.ForceReleaseRequest(pool=POOL, token=token, actor="me", reason="stuck")
    )
    await eventually(lambda: set(stream.lost) == {short.acquire.lease.token, token})


async def test_a_renewal_elsewhere_is_no_loss(stream: Stream, stub: Any) -> None:
    [result] = await stream.ask(asked(ttl_ms=400))
    lease = result.acquire.lease
    request = wire.RenewRequest(pool=POOL, items=[wire.RenewItem(token=lease.token, ttl_ms=60_000)])
    await stub.Renew(request)
    [short] = await stream.ask(asked(ttl_ms=600))
    await eventually(lambda: stream.lost)
    assert stream.lost == [short.acquire.lease.token]


async def test_the_end_of_a_session_ends_its_waits_and_releases_nothing(stream: Stream, stub: Any) -> None:
    await stream.ask(*(asked() for _ in range(3)))
    await stream.send(asked(wait_ms=WAIT_MS))
    await queued(stub, 1)
    await stream.call.done_writing()
    await asyncio.wait_for(stream.reader, 10)
    await queued(stub, 0)
    answer = await stub.Explain(wire.ExplainRequest(pool=POOL))
    assert answer.scopes[0].used == 3


async def test_a_malformed_item_ends_the_session(stream: Stream) -> None:
    await stream.send(asked(token="short"))
    with pytest.raises(ServiceError) as ended:
        await asyncio.wait_for(stream.reader, 10)
    assert ended.value.reason is Reason.INVALID_FIELD
