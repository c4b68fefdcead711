"""Waiting when replicas of the service die or hang, and when keys live on several servers."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from devengines.ports import free_port
from devengines.valkey import program
from servicekit.grpc_client import Channel
from servicekit.ids import new_token
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from tests.support.engines import made_or_skipped
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.redis_cluster import redis_cluster
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
POOL = "gateway:acme"
WAIT_SECONDS = 60
MANY, WAVE = 10_000, 250


class Replica:
    """A replica in a process of its own."""

    def __init__(self, database: str, redis_url: str) -> None:
        self.port = free_port()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLUICEGATE_")},
            "SLUICEGATE_POSTGRES_DSN": database,
            "SLUICEGATE_REDIS_URL": redis_url,
            "SLUICEGATE_LOG_LEVEL": "ERROR",
            "LEASE_SERVICE_METRICS_PORT": "0",
            "LEASE_SERVICE_GRPC__PORT": str(self.port),
        }
        self.channel = Channel(f"127.0.0.1:{self.port}")
        self.stub: Any = lease_pb2_grpc.LeaseServiceStub(self.channel.raw)
        self.process: Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lease_service"), env=self.environment, cwd=ROOT
        )
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as waiting:
            await asyncio.wait_for(waiting.channel_ready(), 60)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def stop(self) -> None:
        await self.channel.stop()
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            await self.process.wait()


@asynccontextmanager
async def two_replicas(database: str, redis_url: str) -> AsyncIterator[tuple[Replica, Replica]]:
    first, second = Replica(database, redis_url), Replica(database, redis_url)
    try:
        await asyncio.gather(first.start(), second.start())
        yield first, second
    finally:
        await asyncio.gather(first.stop(), second.stop())


def asked(pool: str = POOL, wait_seconds: int = 0) -> wire.AcquireRequest:
    return wire.AcquireRequest(
        pool=pool,
        token=new_token(),
        scopes=["poll"],
        weight=1,
        owner="test",
        ttl_ms=60_000,
        wait_ms=wait_seconds * 1000,
    )


def waits(stub: Any, pool: str = POOL) -> "asyncio.Task[Any]":
    return asyncio.ensure_future(stub.Acquire(asked(pool, WAIT_SECONDS), timeout=WAIT_SECONDS + 2))


async def set_capacity(stub: Any, capacity: int, pool: str = POOL) -> None:
    await stub.SetPolicy(
        wire.SetPolicyRequest(pool=pool, scope="poll", capacity=capacity, actor="test"), timeout=10
    )


async def queued(stub: Any, count: int, pool: str = POOL) -> None:
    async def so_many() -> bool:
        answer = await stub.ListWaiters(wire.ListWaitersRequest(pool=pool))
        return bool(answer.total == count)

    await eventually(so_many, within=20)


async def release(stub: Any, token: str, pool: str = POOL) -> None:
    await stub.Release(wire.ReleaseRequest(pool=pool, tokens=[token]))


async def test_waiters_of_a_killed_replica_are_passed_over_at_once(database: str, redis_url: str) -> None:
    # redisson 3004: dead waiters block the fair queue
    async with two_replicas(database, redis_url) as (dying, living):
        await set_capacity(living.stub, 1)
        held = (await living.stub.Acquire(asked())).lease
        lost = [waits(dying.stub) for _ in range(50)]
        await queued(living.stub, 50)
        waiting = waits(living.stub)
        await queued(living.stub, 51)
        dying.send(signal.SIGKILL)
        await asyncio.gather(*lost, return_exceptions=True)
        await release(living.stub, held.token)
        lease = (await asyncio.wait_for(waiting, 30)).lease
        # One lost grant at most was given before the server noticed that the connection had gone.
        assert lease.fence > held.fence
        await queued(living.stub, 0)


async def test_a_replica_that_hangs_loses_one_grant_and_then_its_turn_until_it_wakes(
    database: str, redis_url: str
) -> None:
    async with two_replicas(database, redis_url) as (hanging, living):
        await set_capacity(living.stub, 1)
        held = (await living.stub.Acquire(asked())).lease
        first = [waits(hanging.stub) for _ in range(5)]
        await queued(living.stub, 5)
        waiting = waits(living.stub)
        await queued(living.stub, 6)
        hanging.send(signal.SIGSTOP)
        await release(living.stub, held.token)
        lease = (await asyncio.wait_for(waiting, 30)).lease
        assert not any(task.done() for task in first)
        hanging.send(signal.SIGCONT)
        await queued(living.stub, 5)
        await set_capacity(living.stub, 6)
        leases = await asyncio.wait_for(asyncio.gather(*first), 30)
        assert len({answer.lease.fence for answer in leases}) == 5
        await release(living.stub, lease.token)


async def test_requests_wait_in_every_pool_of_a_cluster(database: str) -> None:
    made_or_skipped(program)
    with await asyncio.to_thread(redis_cluster) as engine:
        settings = lease_settings(database, engine.url)
        async with running_lease_service(settings) as one, running_lease_service(settings) as other:
            channels = Channel(one), Channel(other)
            stub, other_stub = (lease_pb2_grpc.LeaseServiceStub(channel.raw) for channel in channels)
            pools = [f"gateway:account{number}" for number in range(9)]

            async def hand_over(pool: str) -> None:
                await set_capacity(stub, 1, pool)
                held = (await stub.Acquire(asked(pool))).lease
                waiting = waits(other_stub, pool)
                await queued(stub, 1, pool)
                await release(stub, held.token, pool)
                lease = (await asyncio.wait_for(waiting, 30)).lease
                assert lease.fence > held.fence

            await asyncio.gather(*(hand_over(pool) for pool in pools))
            for channel in channels:
                await channel.stop()


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_ten_thousand_requests_wait_and_are_served_one_after_the_other(
    database: str, redis_url: str
) -> None:
    async with two_replicas(database, redis_url) as (first, second):
        await set_capacity(first.stub, 0)
        served = 0

        async def work(number: int) -> None:
            nonlocal served
            stub = (first, second)[number % 2].stub
            request = asked(wait_seconds=500)
            await stub.Acquire(request, timeout=502)
            served += 1
            await release(stub, request.token)

        async def all_wait() -> bool:
            scopes = (await first.stub.Explain(wire.ExplainRequest(pool=POOL))).scopes
            return bool(scopes[0].waiting_count == len(tasks))

        tasks: list[asyncio.Task[None]] = []
        while (
            len(tasks) < MANY
        ):  # in waves: a server takes no more than a thousand calls that it has not begun
            tasks += [asyncio.create_task(work(number)) for number in range(WAVE)]
            await eventually(all_wait, within=60)
        await set_capacity(first.stub, 50)
        await asyncio.gather(*tasks)
        assert served == MANY
        await queued(first.stub, 0)
