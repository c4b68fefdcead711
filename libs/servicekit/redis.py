"""Redis 7 or Valkey 8 and 9: one bounded client per process, no retries, and scripts called by their digest."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, cast
from urllib.parse import urlsplit

import redis.asyncio
import redis.exceptions
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from servicekit.errors import Reason, ServiceError
from servicekit.failures import is_away, translate
from servicekit.redis_errors import redis_failure
from servicekit.redis_wire import Greet, Pipe, Wire
from servicekit.resources import load_store_file
from servicekit.settings import RedisSettings
from servicekit.values import hide_passwords

Argument = str | bytes | int | float
NO_EVICTION = "noeviction"
CLUSTER_PREFIX = "redis+cluster"
"""``redis+cluster://host:port`` (``rediss+cluster`` with TLS) names any node of a Redis Cluster."""


translate((redis.exceptions.RedisError,), redis_failure)


class Redis:
    """The process's Redis client. A Component.

    Args:
        settings: address, socket timeout and the most connections. With a ``redis+cluster://`` address every key goes
            to the node that owns it.
        greet: asked on each connection of :meth:`wire` before anything else is sent there.
    """

    name = "redis"

    def __init__(self, settings: RedisSettings, *, greet: Greet | None = None) -> None:
        self._settings = settings
        self._greet = greet
        self._seconds = settings.socket_timeout.total_seconds()
        self._pipes: dict[str, Pipe] = {}
        self._cluster: redis.asyncio.RedisCluster | None = None
        url = settings.url.get_secret_value()
        if url.split("://", 1)[0] in (CLUSTER_PREFIX, "rediss+cluster"):
            self._cluster = self._make_cluster(url.replace("+cluster", "", 1))
        self.client: redis.asyncio.Redis = (
            cast("redis.asyncio.Redis", self._cluster)  # the same commands, each sent to the keys' owner
            if self._cluster is not None
            else redis.asyncio.Redis(connection_pool=self._make_pool(url))
        )
        """The client; connects on first use, safe to hand out before ``start``."""
        self._alive = Script.from_text(files("servicekit").joinpath("lua", "alive.lua").read_text(), self)

    async def start(self) -> None:
        """Make the server work once.

        Raises:
            ServiceError: DEPENDENCY_AWAY when it does not answer, WRONG_STATE when it refuses; says what to do.
        """
        try:
            await self.health_check()
        except (
            redis.exceptions.AuthenticationError,
            redis.exceptions.AuthorizationError,
            redis.exceptions.ReadOnlyError,
        ) as error:
            raise self._refused(error) from error
        except (redis.exceptions.RedisError, OSError) as error:
            if not is_away(error):
                raise self._refused(error) from error
            raise ServiceError(
                Reason.DEPENDENCY_AWAY,
                f"Redis at {self.address} does not answer; start it or set SLUICEGATE_REDIS_URL",
            ) from error

    async def drain(self) -> None:
        """Do nothing: who uses the client drains before this."""

    async def stop(self) -> None:
        """Close every connection."""
        pipes, self._pipes = self._pipes, {}
        for pipe in pipes.values():
            await pipe.close()
        await self.client.aclose()
        if self._cluster is None:
            await self.client.connection_pool.disconnect()

    async def wire(self, key: str) -> Wire:
        """Return the shared connection to the server that owns a key; connects when there is none.

        Raises what the driver raises, within twice the socket timeout.
        """
        pipe = self._pipes.get("") if self._cluster is None else self._pipes.get(await self._owner(key))
        if pipe is None:
            pipe = self._add_pipe(key)
        return pipe.present or await pipe.wire()

    async def wires(self) -> list[Wire]:
        """Return a connection to every server that may own keys."""
        if self._cluster is None:
            return [await self.wire("")]
        await self._cluster.initialize()
        return [await self._pipe_of(node).wire() for node in self._cluster.get_primaries()]

    def listener(self) -> redis.asyncio.Redis:
        """Return a client of one connection, for a subscription; its owner closes it.

        In a cluster it is connected to one node: what is published anywhere reaches every node.
        """
        if self._cluster is None:
            return redis.asyncio.Redis(connection_pool=self._make_pool(self._settings.url.get_secret_value()))
        node = self._cluster.get_random_node()
        settings = {**node.connection_kwargs, "retry": Retry(NoBackoff(), 0)}
        pool = redis.asyncio.ConnectionPool(connection_class=node.connection_class, **settings)
        return redis.asyncio.Redis(connection_pool=pool)

    async def moved(self) -> None:
        """Look again which server owns which keys; after a MOVED answer."""
        if self._cluster is not None:
            await self._cluster.nodes_manager.initialize()

    async def health_check(self) -> bool:
        """Run a script that a server which can't write refuses; raises what the driver raises."""
        await self._alive(keys=[], args=[])
        return True

    async def maxmemory_policy(self) -> str | None:
        """Return the server's eviction policy, or None where CONFIG is not allowed (managed servers)."""
        try:
            answer = await self.client.config_get("maxmemory-policy")
        except redis.exceptions.ResponseError:
            return None
        for value in answer.values():
            return value.decode() if isinstance(value, bytes) else str(value)
        return None

    def script(self, package: str, name: str) -> "Script":
        """Return a service's script ``store/lua/<name>.lua``, bound to this client."""
        return Script(package, name, self)

    @property
    def is_cluster(self) -> bool:
        """Whether keys live on several servers."""
        return self._cluster is not None

    @property
    def address(self) -> str:
        """Where the server is, for messages: no user, no password."""
        url = urlsplit(self._settings.url.get_secret_value())
        return f"{url.netloc.rpartition('@')[2]}{url.path}"

    async def _owner(self, key: str) -> str:
        assert self._cluster is not None  # noqa: S101 - asked by `wire` alone
        await self._cluster.initialize()
        node = self._cluster.get_node_from_key(key)
        if node is None:
            raise redis.exceptions.ClusterDownError(f"CLUSTERDOWN no node owns {key}")
        return str(node.name)

    def _add_pipe(self, key: str) -> Pipe:
        if self._cluster is None:
            pool = self.client.connection_pool
            pipe = self._pipes[""] = self._make_pipe(pool.make_connection)
            return pipe
        return self._pipe_of(self._cluster.get_node_from_key(key))

    def _pipe_of(self, node: Any) -> Pipe:
        pipe = self._pipes.get(node.name)
        if pipe is None:
            settings = {**node.connection_kwargs, "retry": Retry(NoBackoff(), 0)}
            pipe = self._pipes[node.name] = self._make_pipe(lambda: node.connection_class(**settings))
        return pipe

    def _make_pipe(self, make: Callable[[], AbstractConnection]) -> Pipe:
        return Pipe(make, seconds=self._seconds, greet=self._greet)

    def _make_pool(self, url: str) -> redis.asyncio.ConnectionPool:
        return redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=self._settings.max_connections,
            timeout=self._seconds,
            socket_timeout=self._seconds,
            socket_connect_timeout=self._seconds,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )

    def _make_cluster(self, url: str) -> redis.asyncio.RedisCluster:
        return redis.asyncio.RedisCluster.from_url(
            url,
            max_connections=self._settings.max_connections,
            socket_timeout=self._seconds,
            socket_connect_timeout=self._seconds,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )

    def _refused(self, error: Exception) -> ServiceError:
        return ServiceError(
            Reason.WRONG_STATE,
            f"Redis at {self.address} refused: {hide_passwords(str(error))}; check SLUICEGATE_REDIS_URL",
        )


class Script:
    """One Lua operation of a service, called by its digest and loaded when the server does not know it.

    Args:
        package: the service's package.
        name: the file's name in ``store/lua`` without ``.lua``.
        client: where it runs; may be left out and given with each call.
    """

    def __init__(self, package: str, name: str, client: "Redis | redis.asyncio.Redis | None" = None) -> None:
        self._set(load_store_file(package, "lua", name), client)

    @classmethod
    def from_text(cls, text: str, client: "Redis | redis.asyncio.Redis | None" = None) -> "Script":
        """Make a script from its source."""
        script = cls.__new__(cls)
        script._set(text, client)  # noqa: SLF001 - of this very class
        return script

    async def __call__(
        self,
        *,
        keys: Sequence[str | bytes],
        args: Sequence[Argument] = (),
        client: "Redis | redis.asyncio.Redis | None" = None,
    ) -> Any:
        """Run it and return Redis' answer.

        One round trip; three when the server has lost its scripts. That is safe: a script it does not know did not
        run. Raises what the driver raises, at the latest after the socket timeout.
        """
        target = self._target(client)
        try:
            return await self._run(target, keys, args)
        except redis.exceptions.NoScriptError:
            await target.script_load(self.text)
            return await self._run(target, keys, args)

    async def load(self, client: "Redis | redis.asyncio.Redis | None" = None) -> None:
        """Make the server know the script; needed before it is queued in a pipeline."""
        await self._target(client).script_load(self.text)

    def queue(
        self,
        pipeline: "redis.asyncio.client.Pipeline",
        *,
        keys: Sequence[str | bytes],
        args: Sequence[Argument] = (),
    ) -> None:
        """Add a run of the script to a pipeline; call :meth:`load` first."""
        pipeline.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)

    async def _run(
        self, target: redis.asyncio.Redis, keys: Sequence[str | bytes], args: Sequence[Argument]
    ) -> Any:
        execute: Callable[..., Awaitable[Any]] = target.execute_command
        return await execute("EVALSHA", self.sha, len(keys), *keys, *args)

    def _set(self, text: str, client: "Redis | redis.asyncio.Redis | None") -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._client = client

    def _target(self, client: "Redis | redis.asyncio.Redis | None") -> redis.asyncio.Redis:
        chosen = client if client is not None else self._client
        if chosen is None:
            raise TypeError("this script is bound to no client: give one to Script() or to the call")
        return chosen.client if isinstance(chosen, Redis) else chosen
