"""The network between the service and Redis misbehaves: every call ends in time, and what is unknown is given back."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from devengines.valkey import ValkeyProcess
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.ids import new_token
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from tests.support.fault_proxy import FaultProxy
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.waiting import eventually

POOL = "gateway:faulty"
PROMISED_SECONDS = 2.0


@pytest.fixture
async def proxy(valkey_server: ValkeyProcess, redis_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(valkey_server.port) as proxy:
        proxy.database = redis_url.rpartition("/")[2]
        yield proxy


@pytest.fixture
async def stub(proxy: FaultProxy, database: str) -> AsyncIterator[Any]:
    async with running_lease_service(lease_settings(database, proxy.url)) as address:
        channel = Channel(address)
        stub: Any = lease_pb2_grpc.LeaseServiceStub(channel.raw)
        await stub.SetPolicy(wire.SetPolicyRequest(pool=POOL, scope="poll", capacity=1, actor="test"))
        yield stub
        await channel.stop()


async def acquire(stub: Any, token: str | None = None) -> Any:
    request = wire.AcquireRequest(
        pool=POOL, token=token or new_token(), scopes=["poll"], weight=1, ttl_ms=600_000, owner="test"
    )
    return (await stub.Acquire(request)).lease


async def fails_in_time(call: Any) -> ServiceError:
    began = time.monotonic()
    with pytest.raises(ServiceError) as failed:
        await call
    assert time.monotonic() - began < PROMISED_SECONDS + 1  # a second for a busy machine
    return failed.value


async def used(stub: Any) -> int:
    return int((await stub.Explain(wire.ExplainRequest(pool=POOL))).scopes[0].used)


async def free_again(stub: Any) -> Any:
    async def granted() -> Any:
        try:
            return await acquire(stub)
        except ServiceError as error:
            if error.reason not in (Reason.DEPENDENCY_AWAY, Reason.SLOT_UNAVAILABLE):
                raise
            return None

    return await eventually(granted)


async def test_a_lost_reply_leaves_no_slot_behind(stub: Any, proxy: FaultProxy) -> None:
    # redis-py 261, redis-rb 668: the script ran, nobody heard of it.
    token = new_token()
    proxy.lose_replies()
    failed = await fails_in_time(acquire(stub, token))
    assert failed.reason is Reason.DEPENDENCY_AWAY
    assert (await free_again(stub)).token != token
    with pytest.raises(ServiceError) as spent:
        await acquire(stub, token)
    assert spent.value.reason is Reason.SLOT_LOST


@pytest.mark.parametrize("fault", ["cut", "go_silent", "lose_replies"])
async def test_renewals_and_releases_end_in_time_and_work_again(
    stub: Any, proxy: FaultProxy, fault: str
) -> None:
    lease = await acquire(stub)
    renew = wire.RenewRequest(pool=POOL, items=[wire.RenewItem(token=lease.token, ticket=lease.ticket)])
    proxy.delay = 0.2
    getattr(proxy, fault)()
    began = time.monotonic()
    try:
        await stub.Renew(renew)
    except ServiceError as error:
        assert error.reason is Reason.DEPENDENCY_AWAY  # noqa: PT017 - it may also have been in time
    assert time.monotonic() - began < PROMISED_SECONDS + 1
    proxy.delay = 0.0

    async def renewed() -> bool:
        try:
            answer = await stub.Renew(renew)
        except ServiceError:
            return False
        return bool(answer.results[0].outcome == wire.RENEW_OUTCOME_OK)

    assert await eventually(renewed)
    assert (await stub.Release(wire.ReleaseRequest(pool=POOL, tokens=[lease.token]))).results[0].freed
    assert await used(stub) == 0


async def test_a_partition_grants_nothing_and_is_over_when_it_is_over(stub: Any, proxy: FaultProxy) -> None:
    with proxy.partitioned():
        for _ in range(2):
            assert (await fails_in_time(acquire(stub))).reason is Reason.DEPENDENCY_AWAY
    assert await free_again(stub)


async def test_scripts_flushed_while_ping_is_green_run_at_once_again(
    stub: Any, valkey_server: ValkeyProcess
) -> None:
    # groupmq 16
    with redis.Redis.from_url(valkey_server.url) as client:
        for _ in range(3):
            client.script_flush()
            lease = await acquire(stub)
            client.script_flush()
            assert (await stub.Release(wire.ReleaseRequest(pool=POOL, tokens=[lease.token]))).results[0].freed
