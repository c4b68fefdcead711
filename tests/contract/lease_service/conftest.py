"""A private Valkey on a Unix socket; the time that scripts see is the test's, unless it asks for the real one."""

from collections.abc import AsyncIterator, Iterator

import pytest

import lease_service.store.redis as store
from devengines.valkey import program
from lease_service.store.redis import RedisSlots
from servicekit.redis import Redis
from tests.support.engines import made_or_skipped
from tests.support.lease import (
    Listener,
    RedisClock,
    SocketValkey,
    connected,
    load_timed_script,
    socket_valkey,
)
from tests.support.redis_cluster import ClusterEngine, redis_cluster


@pytest.fixture(scope="session")
def lease_valkey() -> Iterator[SocketValkey]:
    made_or_skipped(program)
    with socket_valkey() as engine:
        yield engine


@pytest.fixture(scope="session")
def lease_cluster() -> Iterator[ClusterEngine]:
    made_or_skipped(program)
    with redis_cluster() as engine:
        yield engine


@pytest.fixture
def topology(request: pytest.FixtureRequest) -> str:
    """`single`, unless a test asks for `cluster` by an indirect parameter."""
    chosen: str = getattr(request, "param", "single")
    return chosen


@pytest.fixture
async def server(topology: str, request: pytest.FixtureRequest) -> AsyncIterator[Redis]:
    engine = request.getfixturevalue("lease_cluster" if topology == "cluster" else "lease_valkey")
    async with connected(engine.url) as client:
        yield client


@pytest.fixture
async def clock(server: Redis) -> RedisClock:
    clock = RedisClock(server)
    await clock.advance(0)
    return clock


@pytest.fixture
async def leases(server: Redis, clock: RedisClock, monkeypatch: pytest.MonkeyPatch) -> RedisSlots:
    """Leases whose time is ``clock``."""
    monkeypatch.setattr(store, "load_script", load_timed_script)
    slots = RedisSlots(server)
    await slots.start()
    return slots


@pytest.fixture
async def real_leases(server: Redis) -> RedisSlots:
    """Leases in real time."""
    slots = RedisSlots(server)
    await slots.start()
    return slots


@pytest.fixture
async def listener(server: Redis, leases: RedisSlots) -> AsyncIterator[Listener]:
    async with Listener(server, leases) as listener:
        yield listener
