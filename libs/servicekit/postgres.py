"""PostgreSQL 15 to 18: one bounded pool per process, no hidden retries, time limits on every statement and lock."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from servicekit.errors import Reason, ServiceError
from servicekit.resources import load_store_file
from servicekit.settings import PostgresSettings
from servicekit.sqlstate import POSTGRES_ERRORS, FailureClass, classify
from servicekit.values import hide_passwords

__all__ = [
    "POSTGRES_ERRORS",
    "Connection",
    "FailureClass",
    "InitHook",
    "Pool",
    "Postgres",
    "classify",
    "load_sql",
]

_CLOSE_SECONDS = 5.0
_PROBE = "SELECT pg_is_in_recovery(), txid_current_if_assigned() IS NULL"

if TYPE_CHECKING:
    _AnyPool = asyncpg.Pool[asyncpg.Record]
else:
    _AnyPool = asyncpg.Pool  # generic for type checkers only

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
"""A connection as the pool lends it."""

InitHook: TypeAlias = Callable[[Any], Awaitable[None]]
"""Prepares a new connection, for example by setting type codecs."""


class Pool(_AnyPool):
    """asyncpg's pool with a time limit on waiting for a connection.

    A connection is handed back without asyncpg's RESET round trip. Open transactions are still rolled back, but session
    state is not cleared: use ``SET LOCAL`` and transaction-level advisory locks only, and LISTEN on a connection of
    your own.
    """

    acquire_seconds: float = 5.0

    async def _acquire(self, timeout: float | None) -> Connection:  # noqa: ASYNC109 - asyncpg's signature
        limit = self.acquire_seconds if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                connection: Connection = await super()._acquire(None)  # type: ignore[misc] # not in the stubs
        except TimeoutError:
            raise ServiceError(
                Reason.DEPENDENCY_AWAY,
                f"no database connection was free within {limit:g} s",
                retry_after=timedelta(seconds=1),
            ) from None
        return connection


class Postgres:
    """The process's connection pool. A Component.

    Args:
        settings: address, sizes and time limits.
        application_name: shown in ``pg_stat_activity``; the service's name.
        init: runs on every new connection.
    """

    name = "postgres"

    def __init__(
        self, settings: PostgresSettings, application_name: str, *, init: InitHook | None = None
    ) -> None:
        self._settings = settings
        self._application_name = application_name
        self._init = init
        self._pool: Pool | None = None

    @property
    def pool(self) -> Pool:
        """The pool; only between ``start`` and ``stop``."""
        if self._pool is None:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "the database pool is not open")
        return self._pool

    async def start(self) -> None:
        """Open the pool.

        Raises:
            ServiceError: DEPENDENCY_AWAY when nothing answers, WRONG_STATE when the server refuses this user or
                database; the message says what to do.
        """
        pool = self._make_pool()
        try:
            await pool
        except asyncpg.PostgresError as error:
            _abandon(pool)
            raise self._refused(error) from error
        except (asyncpg.InterfaceError, ValueError) as error:
            _abandon(pool)
            raise ServiceError(
                Reason.WRONG_STATE, f"the address of PostgreSQL can't be used: {hide_passwords(str(error))}"
            ) from error
        except (OSError, ServiceError) as error:
            _abandon(pool)
            raise ServiceError(
                Reason.DEPENDENCY_AWAY,
                f"PostgreSQL at {self.address} does not answer; start it or set SLUICEGATE_POSTGRES_DSN",
            ) from error
        self._pool = pool

    async def drain(self) -> None:
        """Do nothing: who holds connections drains before this."""

    async def stop(self) -> None:
        """Close the pool; connections still in use are cut after 5 s."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[Connection]:
        """Lend a connection inside a transaction: committed at the end, rolled back on any error."""
        async with self.pool.acquire() as connection, connection.transaction(**options):
            yield connection

    async def health_check(self) -> bool:
        """Run a statement on a pooled connection; False on a standby, which can't write."""
        row = await self.pool.fetchrow(_PROBE)
        return row is not None and not row[0]

    @property
    def address(self) -> str:
        """Where the server is, for messages: no user, no password."""
        url = urlsplit(self._settings.dsn.get_secret_value())
        return f"{url.netloc.rpartition('@')[2] or 'its socket'}{url.path}"

    def _make_pool(self) -> Pool:
        settings = self._settings
        pool = Pool(
            settings.dsn.get_secret_value(),
            min_size=settings.min_size,
            max_size=settings.max_size,
            max_queries=50_000,
            max_inactive_connection_lifetime=300.0,
            loop=None,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            init=cast("Any", self._init),
            reset=_keep_session,
            timeout=settings.connect_timeout.total_seconds(),
            server_settings={
                "application_name": self._application_name,
                "timezone": "UTC",
                "jit": "off",
                "statement_timeout": _milliseconds(settings.statement_timeout),
                "lock_timeout": _milliseconds(settings.lock_timeout),
                "idle_in_transaction_session_timeout": _milliseconds(settings.idle_in_transaction_timeout),
            },
        )
        pool.acquire_seconds = settings.acquire_timeout.total_seconds()
        return pool

    def _refused(self, error: asyncpg.PostgresError) -> ServiceError:
        away = classify(error) is FailureClass.INFRASTRUCTURE
        return ServiceError(
            Reason.DEPENDENCY_AWAY if away else Reason.WRONG_STATE,
            f"PostgreSQL at {self.address} refused the connection: {hide_passwords(str(error))} "
            f"(SQLSTATE {error.sqlstate}); check SLUICEGATE_POSTGRES_DSN and that the migrations have run",
        )


def load_sql(package: str, name: str) -> str:
    """Return a service's statement ``store/sql/<name>.sql``; read once.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return load_store_file(package, "sql", name)


async def _keep_session(_connection: object) -> None:
    """Stand in for asyncpg's RESET statement."""


def _abandon(pool: Pool) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):
        pool.terminate()


def _milliseconds(value: timedelta) -> str:
    return str(int(value / timedelta(milliseconds=1)))
