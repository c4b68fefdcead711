"""Keep one connection to nsqd open, for as long as somebody wants it."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from servicekit.clock import Clock
from servicekit.logs import get_logger
from servicekit.nsq.connection import BrokerConnection, abandon, open_connection
from servicekit.nsq.tuning import NsqTuning

_SILENT_HEARTBEATS = 2
_SILENCE_MARGIN = 1.0

_log = get_logger(__name__)


class Link:
    """Connect, watch, and connect again after a short random wait.

    Args:
        name: what the connection is for, in logs.
        address: nsqd's `host:port`.
        on_open: makes a fresh connection usable; raising OSError or TimeoutError means trying again.
        on_close: told once when a usable connection ended.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        clock: Clock,
        tuning: NsqTuning,
        on_open: Callable[[BrokerConnection], Awaitable[None]],
        on_close: Callable[[BrokerConnection], None],
    ) -> None:
        self.name = name
        self._connection: BrokerConnection | None = None
        self._address = address
        self._clock = clock
        self._tuning = tuning
        self._on_open = on_open
        self._on_close = on_close
        self._task: asyncio.Task[None] | None = None
        self._usable = asyncio.Event()
        self._last_status = clock.monotonic()
        self._away_since: float | None = None
        self._wanted = True

    @property
    def connection(self) -> BrokerConnection | None:
        """The connection, if it is usable and neither side has closed it."""
        connection = self._connection
        return None if connection is None or connection.stream.closed() else connection

    async def start(self) -> None:
        """Begin; waits at most `start_seconds` for the first connection and goes on without it."""
        self._task = asyncio.create_task(self._run(), name=f"nsq {self.name}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._tuning.start_seconds):
                await self._usable.wait()

    def release(self) -> None:
        """Use the present connection to its end, but do not open another one."""
        self._wanted = False

    async def stop(self) -> None:
        """Close the connection and end; nothing of it runs afterwards."""
        self._wanted = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while self._wanted:
            try:
                connection = await self._open()
            except (OSError, TimeoutError) as error:
                self._note_away(str(error) or "timed out")
            else:
                await self._use(connection)
            if self._wanted:
                await self._clock.sleep(
                    random.uniform(self._tuning.reconnect_minimum, self._tuning.reconnect_maximum)  # noqa: S311
                )

    async def _open(self) -> BrokerConnection:
        connection = await open_connection(self._address, self._tuning)
        try:
            await self._on_open(connection)
        except BaseException:
            abandon(connection)
            raise
        return connection

    async def _use(self, connection: BrokerConnection) -> None:
        self._note_connected()
        self._connection = connection
        self._usable.set()
        try:
            await self._watch(connection)
        finally:
            self._connection = None
            self._usable.clear()
            abandon(connection)
            self._on_close(connection)
        self._note_away("connection lost")

    async def _watch(self, connection: BrokerConnection) -> None:
        """Return when the connection ended, ending it if nsqd fell silent."""
        limit = _SILENT_HEARTBEATS * self._tuning.heartbeat_seconds + _SILENCE_MARGIN
        while not connection.ended.done():
            await asyncio.wait([connection.ended], timeout=self._tuning.heartbeat_seconds / 2)
            if connection.silent_seconds() > limit:
                _log.warning("nsqd is silent: connection closed", link=self.name, seconds=round(limit))
                connection.close()
                return
            self._note_status(connected=True)

    def _note_connected(self) -> None:
        away = 0.0 if self._away_since is None else self._clock.monotonic() - self._away_since
        self._away_since = None
        _log.info("connected to nsqd", link=self.name, address=self._address, away_seconds=round(away, 1))

    def _note_away(self, why: str) -> None:
        if not self._wanted:
            return
        if self._away_since is None:
            self._away_since = self._clock.monotonic()
            _log.warning("nsqd is away", link=self.name, address=self._address, why=why)
        self._note_status(connected=False)

    def _note_status(self, *, connected: bool) -> None:
        now = self._clock.monotonic()
        if now - self._last_status < self._tuning.status_seconds:
            return
        self._last_status = now
        _log.info("nsq status", link=self.name, connected=connected)
