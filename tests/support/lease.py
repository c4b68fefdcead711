"""A private Valkey on a Unix socket, and a lease service on it, for tests of slots."""

import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from devengines.valkey import ValkeyProcess
from lease_service.domain.model import Claim, Policy, PoolPolicies, Wait
from lease_service.store.keys import PROBE_POOL, pool_keys
from lease_service.store.redis import RedisSlots
from lease_service.store.redis_scripts import load_script
from servicekit.ids import new_token
from servicekit.redis import Redis, Script
from servicekit.settings import RedisSettings
from servicekit.values import SecretUrl

POOL = "gateway:acme"


class SocketValkey(ValkeyProcess):
    """Listens on a Unix socket alone."""

    @property
    def path(self) -> Path:
        return self.data_dir / "s"

    @property
    def url(self) -> str:
        return f"unix://{self.path}?db=0"

    def _command(self) -> list[str]:
        command = super()._command()
        command[command.index("--port") + 1] = "0"
        return [*command, "--unixsocket", str(self.path)]

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self.path))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def socket_valkey() -> Iterator[SocketValkey]:
    """Run one; its folder has a short name because socket paths are limited to about 100 characters."""
    folder = tempfile.mkdtemp(prefix="slv")
    engine = SocketValkey(Path(folder))
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Redis]:
    """Lend a client of an emptied database."""
    server = Redis(RedisSettings(url=SecretUrl(url)))
    try:
        await server.client.flushall()
        yield server
    finally:
        await server.stop()


def policies_of(
    pool: str = POOL, *, version: int = 1, paused: bool = False, lifetime: int = 0, **capacities: int
) -> PoolPolicies:
    """Make policies with these capacities."""
    scopes = {
        scope: Policy(
            pool=pool,
            scope=scope,
            capacity=capacity,
            max_lifetime_ms=lifetime,
            paused=paused,
            version=version,
            updated_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for scope, capacity in capacities.items()
    }
    return PoolPolicies(pool, scopes)


def claim_of(
    *scopes: str, weight: int = 1, ttl_ms: int = 10_000, owner: str = "owner", pool: str = POOL
) -> Claim:
    """Make a claim."""
    return Claim(pool=pool, scopes=scopes or ("poll",), weight=weight, owner=owner, ttl_ms=ttl_ms, job="job")


async def open_pool(leases: RedisSlots, policies: PoolPolicies) -> None:
    """Make a pool known to Redis, as SetPolicy does for a new one."""
    await leases.push_policies(policies.pool, list(policies.scopes.values()), pool_is_new=True)


class RedisClock:
    """The time that scripts of :func:`load_timed_script` see; starts a little ahead of the engine's own."""

    KEY = "test-clock"

    def __init__(self, server: Redis) -> None:
        self._server = server
        self.now_ms = int(time.time() * 1000)

    async def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        seconds, rest = divmod(self.now_ms, 1000)
        for pool in (POOL, PROBE_POOL):  # beside the pool's keys, on a cluster too
            key = f"{self.KEY}{{{pool}}}"
            await self._server.client.hset(key, mapping={"s": seconds, "us": rest * 1000})


def load_timed_script(name: str) -> Script:
    """Load a script that reads the test's clock where it would read the engine's."""
    text = load_script(name).text
    clock = f"redis.call('HMGET', '{RedisClock.KEY}' .. string.match(KEYS[1], '{{.*}}'), 's', 'us')"
    timed = text.replace("redis.call('TIME')", clock)
    assert timed != text
    return Script.from_text(timed)


def tokens(count: int) -> list[str]:
    """Make fresh tokens."""
    return [new_token() for _ in range(count)]


async def weights(server: Redis, pool: str = POOL) -> dict[str, int]:
    """Read the used weights of a pool."""
    return {
        scope.decode(): int(used) for scope, used in (await server.client.hgetall(pool_keys(pool)[2])).items()
    }


def waiting(tenant: str = "default", *, wait_ms: int = 600_000, priority: int = 0, place: int = 0) -> Wait:
    """Make terms of waiting."""
    return Wait(wait_ms=wait_ms, tenant=tenant, priority=priority, place=place)


def with_rules(policies: PoolPolicies, **rules: Any) -> PoolPolicies:
    """Return the policies with other rules for the queue."""
    return replace(
        policies, scopes={scope: replace(policy, **rules) for scope, policy in policies.scopes.items()}
    )


class Listener:
    """Hears what this process is told about its waiters; without one they count as gone."""

    def __init__(self, server: Redis, leases: RedisSlots) -> None:
        self._channel = leases.channel
        self._reader = server.client.pubsub()

    async def __aenter__(self) -> Self:
        await self._reader.subscribe(self._channel)
        assert await self._reader.get_message(timeout=5)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._reader.aclose()  # type: ignore[no-untyped-call]

    async def heard(self) -> list[str]:
        """Return the tokens named since the last call."""
        found = []
        while message := await self._reader.get_message(timeout=0.05):
            found.append(message["data"].decode().split()[1])
        return found
