"""A replica is promoted, a primary comes back empty, a cluster loses a node: no slot too many, live leases live on."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis

from devengines.valkey import ValkeyProcess, program
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.ids import new_token
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from tests.support.engines import made_or_skipped
from tests.support.fault_proxy import FaultProxy
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.redis_cluster import redis_cluster
from tests.support.waiting import eventually

POOL = "tasks"
CAPACITY = 10
LEARNS_MS = 4_000
TTL_MS = 3_000


class Pair:
    """A primary, its replica, and the address that follows a failover."""

    def __init__(self, folder: Path) -> None:
        self.primary = ValkeyProcess(folder / "primary")
        self.replica = ValkeyProcess(folder / "replica")

    def start(self) -> None:
        self.primary.start()
        self.replica.start()
        self.tell(self.primary, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
        self.tell(self.replica, "REPLICAOF", "127.0.0.1", str(self.primary.port))

    def tell(self, engine: ValkeyProcess, *command: str) -> Any:
        with redis.Redis(port=engine.port) as client:
            return client.execute_command(*command)

    def is_level(self) -> bool:
        answer = self.tell(self.replica, "INFO", "replication")
        return answer["master_link_status"] == "up"

    def promote(self) -> None:
        self.tell(self.replica, "REPLICAOF", "NO", "ONE")

    def stop(self) -> None:
        for engine in (self.primary, self.replica):
            engine.proceed()
            engine.stop()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made_or_skipped(program)
    folder = Path(tempfile.mkdtemp(prefix="slf"))
    pair = Pair(folder)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def stub_of(address: str) -> AsyncIterator[Any]:
    channel = Channel(address)
    try:
        yield lease_pb2_grpc.LeaseServiceStub(channel.raw)
    finally:
        await channel.stop()


def must_be_away(error: ServiceError) -> None:
    if error.reason is not Reason.DEPENDENCY_AWAY:
        raise error


async def prepare(stub: Any, database: str, pool: str = POOL) -> None:
    await stub.SetPolicy(wire.SetPolicyRequest(pool=pool, scope="workers", capacity=CAPACITY, actor="test"))
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("UPDATE slot_policy SET longest_ttl_ms = $1", LEARNS_MS)
    finally:
        await connection.close()


class Client:
    """Holds leases and renews them as the SDK does: with the newest ticket of each."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub
        self.tickets: dict[str, bytes] = {}
        self.fences: list[int] = []
        self.lost: list[str] = []

    async def acquire(self) -> wire.Lease:
        request = wire.AcquireRequest(
            pool=POOL, token=new_token(), scopes=["workers"], weight=1, ttl_ms=TTL_MS, owner="client"
        )
        lease: wire.Lease = (await self.stub.Acquire(request)).lease
        self.tickets[lease.token] = lease.ticket
        self.fences.append(lease.fence)
        return lease

    async def refusal(self) -> ServiceError:
        with pytest.raises(ServiceError) as refused:
            await self.acquire()
        return refused.value

    async def release(self, token: str) -> None:
        del self.tickets[token]
        await self.stub.Release(wire.ReleaseRequest(pool=POOL, tokens=[token]))

    async def renew(self) -> None:
        items = [wire.RenewItem(token=token, ticket=ticket) for token, ticket in self.tickets.items()]
        if not items:
            return
        for result in (await self.stub.Renew(wire.RenewRequest(pool=POOL, items=items))).results:
            if result.outcome == wire.RENEW_OUTCOME_LOST:
                if self.tickets.pop(result.token, None) is not None:
                    self.lost.append(result.token)
            elif result.token in self.tickets:
                self.tickets[result.token] = result.ticket

    async def keep_renewing(self) -> None:
        while True:
            try:
                await self.renew()
            except ServiceError as error:
                must_be_away(error)
            await asyncio.sleep(TTL_MS / 1000 / 8)


async def used(stub: Any) -> int:
    state = await stub.Explain(wire.ExplainRequest(pool=POOL))
    return int(state.scopes[0].used)


async def test_primary_dies_right_after_the_grants_and_the_replica_is_promoted(
    pair: Pair, database: str
) -> None:
    # redisson 3994, 4706: the replica has never heard of the last grants.
    async with FaultProxy(pair.primary.port) as proxy:
        settings = lease_settings(database, proxy.url)
        async with running_lease_service(settings) as address, stub_of(address) as stub:
            await prepare(stub, database)
            client = Client(stub)
            await eventually(pair.is_level)
            renewing = asyncio.create_task(client.keep_renewing())
            released = await client.acquire()
            for _ in range(4):
                await client.acquire()
            await asyncio.to_thread(pair.tell, pair.primary, "WAIT", "1", "5000")
            pair.replica.suspend()
            await client.release(released.token)
            for _ in range(CAPACITY - 4):
                await client.acquire()
            assert (await client.refusal()).metadata["scope"] == "workers"

            await asyncio.to_thread(pair.primary.kill)
            pair.replica.proceed()
            await asyncio.to_thread(pair.promote)
            proxy.move(pair.replica.port)

            async def answers() -> ServiceError | None:
                refused = await client.refusal()
                return refused if refused.reason is Reason.SLOT_UNAVAILABLE else None

            refused = await eventually(answers, within=20)
            assert refused.metadata["cause"] == "relearning"
            assert 0 < refused.retry_after.total_seconds() <= LEARNS_MS / 1000
            refusals = 0

            async def is_full_again() -> bool:
                nonlocal refusals
                refused = await client.refusal()  # nobody gets in meanwhile
                refusals += 1
                return "cause" not in refused.metadata and refused.reason is Reason.SLOT_UNAVAILABLE

            await eventually(is_full_again, within=30)
            assert refusals > 3
            assert client.lost == []
            assert len(client.tickets) == CAPACITY
            assert await used(stub) == CAPACITY
            before = max(client.fences)
            renewing.cancel()
            await client.release(next(iter(client.tickets)))
            assert (await client.acquire()).fence > before


async def test_a_restart_with_lost_data_loses_no_live_lease(pair: Pair, database: str) -> None:
    async with FaultProxy(pair.primary.port) as proxy:
        first = lease_settings(database, proxy.url)
        second = lease_settings(database, proxy.url)
        async with (
            running_lease_service(first) as one,
            running_lease_service(second) as two,
            stub_of(one) as stub,
            stub_of(two) as other_stub,
        ):
            await prepare(stub, database)
            client = Client(stub)
            for _ in range(3):
                await client.acquire()
            silent = await client.acquire()  # its holder shows no ticket
            del client.tickets[silent.token]
            await asyncio.to_thread(pair.primary.kill)
            with pytest.raises(ServiceError) as away:
                await client.renew()
            assert away.value.reason is Reason.DEPENDENCY_AWAY
            await asyncio.to_thread(pair.primary.start)
            client.stub = other_stub  # any replica of the service knows the tickets
            await client.renew()
            assert (len(client.tickets), client.lost) == (3, [])
            items = [wire.RenewItem(token=silent.token)]
            answer = await stub.Renew(wire.RenewRequest(pool=POOL, items=items))
            assert answer.results[0].outcome == wire.RENEW_OUTCOME_LOST
            assert (await client.refusal()).metadata["cause"] == "relearning"


async def test_a_restart_that_is_trusted_goes_on_at_once(database: str) -> None:
    made_or_skipped(program)
    folder = Path(tempfile.mkdtemp(prefix="slf"))
    engine = ValkeyProcess(folder, durable=True)
    try:
        engine.start()
        settings = lease_settings(database, engine.url, slots__relearn_after_restart="false")
        async with running_lease_service(settings) as address, stub_of(address) as stub:
            await prepare(stub, database)
            client = Client(stub)
            held = await client.acquire()
            await asyncio.to_thread(engine.stop)
            await asyncio.to_thread(engine.start)

            async def again() -> wire.Lease | None:
                try:
                    return await client.acquire()
                except ServiceError as error:
                    must_be_away(error)
                    return None

            assert (await eventually(again)).fence > held.fence
            await client.renew()
            assert client.lost == []
    finally:
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def test_a_grant_that_no_replica_confirms_is_given_back(pair: Pair, database: str) -> None:
    settings = lease_settings(database, pair.primary.url, slots__confirm_within="100ms")
    async with running_lease_service(settings) as address, stub_of(address) as stub:
        await prepare(stub, database)
        client = Client(stub)
        await eventually(pair.is_level)

        async def confirmed() -> bool:
            try:
                await client.acquire()
            except ServiceError as error:
                must_be_away(error)
                return False
            return True

        await eventually(confirmed)
        pair.replica.suspend()
        refused = await asyncio.gather(*(client.refusal() for _ in range(5)))
        assert {error.reason for error in refused} == {Reason.DEPENDENCY_AWAY}
        assert await used(stub) == 1
        pair.replica.proceed()
        await eventually(confirmed)


async def test_a_replica_is_no_place_for_slots(pair: Pair, database: str) -> None:
    await eventually(pair.is_level)
    settings = lease_settings(database, pair.replica.url)
    with pytest.raises(Exception, match="replica"):
        async with running_lease_service(settings):
            pytest.fail("started on a replica")


async def test_a_cluster_serves_every_pool_and_loses_only_those_of_a_lost_node(database: str) -> None:
    made_or_skipped(program)
    with await asyncio.to_thread(redis_cluster) as engine:
        settings = lease_settings(database, engine.url)
        async with running_lease_service(settings) as address, stub_of(address) as stub:
            pools = [f"gateway:account{number}" for number in range(12)]
            for pool in pools:
                await prepare(stub, database, pool)

            async def round_trip(pool: str) -> bool:
                request = wire.AcquireRequest(
                    pool=pool, token=new_token(), scopes=["workers"], weight=2, ttl_ms=TTL_MS, owner="client"
                )
                try:
                    lease = (await stub.Acquire(request)).lease
                    items = [wire.RenewItem(token=lease.token, ticket=lease.ticket)]
                    renewed = (await stub.Renew(wire.RenewRequest(pool=pool, items=items))).results[0]
                    assert renewed.outcome == wire.RENEW_OUTCOME_OK
                    freed = await stub.Release(wire.ReleaseRequest(pool=pool, tokens=[lease.token]))
                except ServiceError as error:
                    must_be_away(error)
                    return False
                return bool(freed.results[0].freed)

            assert all(await asyncio.gather(*(round_trip(pool) for pool in pools)))
            engine.nodes[2].suspend()
            found = await asyncio.gather(*(round_trip(pool) for pool in pools))
            assert any(found)
            assert not all(found)
            engine.nodes[2].proceed()

            async def all_work() -> bool:
                return all(await asyncio.gather(*(round_trip(pool) for pool in pools)))

            await eventually(all_work, within=20)
