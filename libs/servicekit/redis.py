"""Redis 7 or Valkey 8 and 9: one bounded client per process, no retries, and scripts called by their digest."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from servicekit.errors import Reason, ServiceError
from servicekit.failures import is_away
from servicekit.resources import load_store_file
from servicekit.settings import RedisSettings
from servicekit.values import hide_passwords

Argument = str | bytes | int | float
NO_EVICTION = "noeviction"


class Redis:
    """The process's Redis client. A Component.

    Args:
        settings: address, socket timeout and the most connections.
    """

    name = "redis"

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        seconds = settings.socket_timeout.total_seconds()
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            settings.url.get_secret_value(),
            max_connections=settings.max_connections,
            timeout=seconds,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )
        self.client: redis.asyncio.Redis = redis.asyncio.Redis(connection_pool=pool)
        """The client; connects on first use, safe to hand out before ``start``."""
        self._alive = Script.from_text(files("servicekit").joinpath("lua", "alive.lua").read_text(), self)

    async def start(self) -> None:
        """Make the server work once.

        Raises:
            ServiceError: DEPENDENCY_AWAY when it does not answer, WRONG_STATE when it refuses; says what to do.
        """
        try:
            await self.health_check()
        except (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError) as error:
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
        await self.client.aclose()
        await self.client.connection_pool.disconnect()

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
    def address(self) -> str:
        """Where the server is, for messages: no user, no password."""
        url = urlsplit(self._settings.url.get_secret_value())
        return f"{url.netloc.rpartition('@')[2]}{url.path}"

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
