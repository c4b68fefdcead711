"""A private Valkey on a Unix socket, and a lease service on it, for tests of slots."""

import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from devengines.valkey import ValkeyProcess
from lease_service.domain.model import Claim, Policy, PoolPolicies
from lease_service.store.redis import RedisSlots
from servicekit.redis import Redis
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
