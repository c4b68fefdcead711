"""LeaseService over gRPC: codes, typed errors, bad input that takes nothing."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.ids import new_token
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.waiting import eventually

POOL = "gateway:acme"


@pytest.fixture
async def lease_address(database: str, redis_url: str) -> AsyncIterator[str]:
    async with running_lease_service(lease_settings(database, redis_url)) as address:
        yield address


@pytest.fixture
async def stub(lease_address: str) -> AsyncIterator[Any]:
    channel = Channel(lease_address, name="lease_service")
    yield lease_pb2_grpc.LeaseServiceStub(channel.raw)
    await channel.stop()


async def set_policy(stub: Any, scope: str = "poll", capacity: int = 2, **fields: Any) -> wire.Policy:
    request = wire.SetPolicyRequest(pool=POOL, scope=scope, capacity=capacity, actor="test", **fields)
    policy: wire.Policy = (await stub.SetPolicy(request)).policy
    return policy


def acquire_request(**fields: Any) -> wire.AcquireRequest:
    defaults = {
        "pool": POOL,
        "token": new_token(),
        "scopes": ["poll"],
        "weight": 1,
        "ttl_ms": 10_000,
        "owner": "test",
    }
    return wire.AcquireRequest(**(defaults | fields))


async def reason_of(call: Any) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await call
    return caught.value


async def used(stub: Any) -> dict[str, int]:
    answer = await stub.Explain(wire.ExplainRequest(pool=POOL))
    return {scope.scope: scope.used for scope in answer.scopes}


async def test_a_lease_from_grant_to_release(stub: Any) -> None:
    await set_policy(stub)
    request = acquire_request()
    lease = (await stub.Acquire(request)).lease
    assert (lease.token, lease.weight, lease.remaining_ms) == (request.token, 1, 10_000)
    renewed = await stub.Renew(
        wire.RenewRequest(pool=POOL, items=[wire.RenewItem(token=request.token, ttl_ms=20_000)])
    )
    assert renewed.results[0].outcome == wire.RENEW_OUTCOME_OK
    assert renewed.results[0].remaining_ms == 20_000
    holders = (await stub.ListHolders(wire.ListHoldersRequest(pool=POOL))).holders
    assert [(holder.token, holder.owner, holder.fence) for holder in holders] == [
        (request.token, "test", lease.fence)
    ]
    release = wire.ReleaseRequest(pool=POOL, tokens=[request.token])
    assert [result.freed for result in (await stub.Release(release)).results] == [True]
    assert [result.freed for result in (await stub.Release(release)).results] == [False]
    assert await used(stub) == {"poll": 0}


async def test_a_refusal_names_scope_usage_and_when_to_try_again(stub: Any) -> None:
    await set_policy(stub, "poll", 5)
    await set_policy(stub, "stop_resume", 1)
    await stub.Acquire(acquire_request(scopes=["poll", "stop_resume"]))
    error = await reason_of(stub.Acquire(acquire_request(scopes=["poll", "stop_resume"])))
    assert error.reason is Reason.SLOT_UNAVAILABLE
    assert {name: error.metadata[name] for name in ("scope", "used", "capacity")} == {
        "scope": "stop_resume",
        "used": "1",
        "capacity": "1",
    }
    assert error.retry_after is not None
    assert 0 < error.retry_after.total_seconds() <= 2


async def test_a_batch_returns_what_there_is(stub: Any) -> None:
    await set_policy(stub, capacity=3)
    request = wire.AcquireBatchRequest(
        pool=POOL, tokens=[new_token() for _ in range(5)], scopes=["poll"], weight=1, owner="test"
    )
    answer = await stub.AcquireBatch(request)
    assert [lease.token for lease in answer.leases] == request.tokens[:3]
    assert answer.limiting_scope == "poll"
    assert answer.retry_after_ms > 0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pool": ""}, Reason.INVALID_FIELD),
        ({"pool": "a{b}c"}, Reason.INVALID_FIELD),
        ({"pool": "p" * 129}, Reason.INVALID_FIELD),
        ({"pool": "gateway:nobody"}, Reason.NOT_FOUND),
        ({"token": "short"}, Reason.INVALID_FIELD),
        ({"token": ""}, Reason.INVALID_FIELD),
        ({"token": "G" * 32}, Reason.INVALID_FIELD),
        ({"scopes": []}, Reason.INVALID_FIELD),
        ({"scopes": ["a", "b", "c", "d", "e"]}, Reason.INVALID_FIELD),
        ({"scopes": ["poll", "poll"]}, Reason.INVALID_FIELD),
        ({"scopes": ["poll", "a,b"]}, Reason.INVALID_FIELD),
        ({"scopes": ["unknown"]}, Reason.NOT_FOUND),
        ({"weight": 0}, Reason.INVALID_FIELD),
        ({"weight": -1}, Reason.INVALID_FIELD),
        ({"weight": 3}, Reason.INVALID_FIELD),
        ({"weight": 2_000_000}, Reason.INVALID_FIELD),
        ({"ttl_ms": -1}, Reason.INVALID_FIELD),
        ({"ttl_ms": 3_600_001}, Reason.INVALID_FIELD),
        ({"owner": ""}, Reason.INVALID_FIELD),
        ({"owner": "o" * 129}, Reason.INVALID_FIELD),
    ],
)
async def test_bad_input_takes_nothing(stub: Any, fields: dict[str, Any], reason: Reason) -> None:
    await set_policy(stub)
    error = await reason_of(stub.Acquire(acquire_request(**fields)))
    assert error.reason is reason
    assert await used(stub) == {"poll": 0}


async def test_a_token_of_another_owner_and_a_spent_one_are_refused(stub: Any) -> None:
    await set_policy(stub)
    request = acquire_request()
    first = await stub.Acquire(request)
    assert (await stub.Acquire(request)).lease.fence == first.lease.fence
    other = await reason_of(stub.Acquire(acquire_request(token=request.token, owner="other")))
    assert other.reason is Reason.KEY_REUSED
    await stub.Release(wire.ReleaseRequest(pool=POOL, tokens=[request.token]))
    assert (await reason_of(stub.Acquire(request))).reason is Reason.SLOT_LOST
    assert await used(stub) == {"poll": 0}


async def test_policies_are_versioned(stub: Any) -> None:
    first = await set_policy(stub, capacity=5)
    same = await set_policy(stub, capacity=5)
    assert same.version == first.version
    second = await set_policy(stub, capacity=3, expected_version=first.version)
    assert second.version > first.version
    error = await reason_of(set_policy(stub, capacity=9, expected_version=first.version))
    assert error.reason is Reason.STALE_VERSION
    assert error.metadata["version"] == str(second.version)
    found = (await stub.GetPolicy(wire.GetPolicyRequest(pool=POOL))).policies
    assert [(policy.scope, policy.capacity, policy.version) for policy in found] == [
        ("poll", 3, second.version)
    ]
    assert (await stub.GetPolicy(wire.GetPolicyRequest())).policies == found
    assert not (await stub.GetPolicy(wire.GetPolicyRequest(pool="unknown"))).policies


async def test_growth_takes_effect_at_once(stub: Any) -> None:
    await set_policy(stub, capacity=1)
    await stub.Acquire(acquire_request())
    assert (await reason_of(stub.Acquire(acquire_request()))).reason is Reason.SLOT_UNAVAILABLE
    await set_policy(stub, capacity=2)
    await stub.Acquire(acquire_request())


async def test_a_paused_pool_grants_nothing_until_it_is_resumed(stub: Any) -> None:
    await set_policy(stub)
    pause = {"pool": POOL, "actor": "operator", "reason": "maintenance"}
    paused = await stub.PausePool(wire.PausePoolRequest(**pause))
    assert [policy.paused for policy in paused.policies] == [True]
    error = await reason_of(stub.Acquire(acquire_request()))
    assert error.reason is Reason.PAUSED
    assert error.retry_after is not None
    assert "paused" in (await stub.Explain(wire.ExplainRequest(pool=POOL))).verdict
    later = await set_policy(stub, "stop_resume", 1)
    assert later.paused
    resumed = await stub.ResumePool(wire.ResumePoolRequest(**pause))
    assert [policy.paused for policy in resumed.policies] == [False, False]
    await stub.Acquire(acquire_request())
    missing = await reason_of(stub.PausePool(wire.PausePoolRequest(**(pause | {"pool": "unknown"}))))
    assert missing.reason is Reason.NOT_FOUND


async def test_an_operator_takes_a_lease_away(stub: Any) -> None:
    await set_policy(stub, capacity=1)
    lease = (await stub.Acquire(acquire_request())).lease
    force = wire.ForceReleaseRequest(pool=POOL, token=lease.token, actor="operator", reason="stuck")
    answer = await stub.ForceRelease(force)
    assert answer.freed
    assert answer.fence > lease.fence
    assert not (await stub.ForceRelease(force)).freed
    renewed = await stub.Renew(wire.RenewRequest(pool=POOL, items=[wire.RenewItem(token=lease.token)]))
    assert renewed.results[0].outcome == wire.RENEW_OUTCOME_LOST
    assert (await stub.Acquire(acquire_request())).lease.fence > answer.fence


async def test_explain_says_why_a_request_would_wait(stub: Any) -> None:
    await set_policy(stub, capacity=1)
    assert (await stub.Explain(wire.ExplainRequest(pool=POOL))).verdict.startswith("granted")
    await stub.Acquire(acquire_request())
    answer = await stub.Explain(wire.ExplainRequest(pool=POOL))
    assert answer.verdict.startswith("refused: poll is full: 1 of 1 held by 1 leases")
    assert 0 < answer.scopes[0].next_expiry_ms <= 10_000
    assert (await reason_of(stub.Explain(wire.ExplainRequest(pool="unknown")))).reason is Reason.NOT_FOUND


async def test_holders_come_in_pages(stub: Any) -> None:
    await set_policy(stub, capacity=10)
    wanted = {(await stub.Acquire(acquire_request())).lease.token for _ in range(7)}
    seen: list[str] = []
    page = ""
    while True:
        answer = await stub.ListHolders(wire.ListHoldersRequest(pool=POOL, page_size=3, page_token=page))
        seen += [holder.token for holder in answer.holders]
        page = answer.next_page_token
        if not page:
            break
    assert len(seen) == 7
    assert set(seen) == wanted
    bad = await reason_of(stub.ListHolders(wire.ListHoldersRequest(pool=POOL, page_token="nonsense")))
    assert bad.reason is Reason.INVALID_FIELD


async def test_an_expired_lease_frees_its_slot(stub: Any) -> None:
    await set_policy(stub, capacity=1)
    lease = (await stub.Acquire(acquire_request(ttl_ms=150))).lease

    async def second() -> Any:
        try:
            return await stub.Acquire(acquire_request())
        except ServiceError:
            return None

    answer = await eventually(second)
    assert answer.lease.fence > lease.fence
    release = await stub.Release(wire.ReleaseRequest(pool=POOL, tokens=[lease.token]))
    assert not release.results[0].freed


async def test_audit_reaches_the_database_once(stub: Any, database: str) -> None:
    await set_policy(stub, capacity=3, reason="to begin with")
    leases = [(await stub.Acquire(acquire_request())).lease for _ in range(3)]
    await stub.Release(wire.ReleaseRequest(pool=POOL, tokens=[leases[0].token]))
    await stub.ForceRelease(
        wire.ForceReleaseRequest(pool=POOL, token=leases[1].token, actor="me", reason="stuck")
    )
    connection = await asyncpg.connect(database)
    try:

        async def kinds() -> Any:
            found = [
                row["kind"] for row in await connection.fetch("SELECT kind FROM slot_audit ORDER BY kind")
            ]
            return found if len(found) >= 6 else None

        assert await eventually(kinds) == ["force", "grant", "grant", "grant", "policy", "release"]
        note = await connection.fetchval("SELECT note FROM slot_audit WHERE kind = 'force'")
        assert note == "by me: stuck"
    finally:
        await connection.close()


async def test_a_longer_ttl_is_remembered_before_it_is_granted(stub: Any, database: str) -> None:
    await set_policy(stub, capacity=3)
    lease = (await stub.Acquire(acquire_request(ttl_ms=600_000))).lease
    connection = await asyncpg.connect(database)
    try:
        assert await connection.fetchval("SELECT longest_ttl_ms FROM slot_policy") == 600_000
        items = [wire.RenewItem(token=lease.token, ttl_ms=900_000)]
        assert (await stub.Renew(wire.RenewRequest(pool=POOL, items=items))).results[
            0
        ].remaining_ms == 900_000
        assert await connection.fetchval("SELECT longest_ttl_ms FROM slot_policy") == 900_000
    finally:
        await connection.close()
