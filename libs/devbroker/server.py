"""Listen on TCP and HTTP."""

import asyncio
import contextlib
import time

from aiohttp import web

from devbroker.broker import Broker
from devbroker.faults import Faults
from devbroker.http_api import HttpApi
from devbroker.options import BrokerOptions
from devbroker.session import Session


class DevBroker:
    """Run one broker in this event loop.

    `tcp_port` and `http_port` may be 0 for any free port; after `start()` they are the ports in use.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        tcp_port: int = 0,
        http_port: int = 0,
        options: BrokerOptions | None = None,
    ) -> None:
        self.host = host
        self.tcp_port = tcp_port
        self.http_port = http_port
        self.faults = Faults()
        self.started_at = time.time()
        self.broker = Broker(options or BrokerOptions(), self.faults)
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._scanner: asyncio.Task[None] | None = None

    @property
    def tcp_address(self) -> str:
        """The `host:port` for clients."""
        return f"{self.host}:{self.tcp_port}"

    @property
    def http_address(self) -> str:
        """The `host:port` for statistics and control."""
        return f"{self.host}:{self.http_port}"

    async def start(self) -> None:
        """Listen on both ports.

        Raises:
            OSError: a port is taken.
        """
        self._server = await asyncio.start_server(self._accept, self.host, self.tcp_port)
        self.tcp_port = self._server.sockets[0].getsockname()[1]
        self._runner = web.AppRunner(HttpApi(self).application(), access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.http_port)
        await site.start()
        self.http_port = self._runner.addresses[0][1]
        self._scanner = asyncio.create_task(self._scan())

    async def stop(self) -> None:
        """Hang up on every client and stop listening; all messages are gone."""
        if self._scanner is not None:
            self._scanner.cancel()
        if self._server is not None:
            self._server.close()
        self.drop_connections()
        if self._sessions:
            await asyncio.wait(self._sessions.values(), timeout=2.0)
        if self._runner is not None:
            await self._runner.cleanup()

    def drop_connections(self, *, consumers: bool = True, publishers: bool = True) -> int:
        """Hang up on clients of the given kinds and return how many that were."""
        chosen = [s for s in self._sessions if (consumers if s.is_consumer else publishers)]
        for session in chosen:
            session.hang_up()
        return len(chosen)

    def lose_in_flight(self) -> int:
        """Drop everything in flight or deferred, as a killed nsqd does, and return how many that were."""
        return self.broker.lose_in_flight()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.faults.refuse_connections:
            writer.close()
            return
        session = Session(self.broker, reader, writer)
        task = asyncio.current_task()
        if task is not None:
            self._sessions[session] = task
        try:
            await session.run()
        finally:
            self._sessions.pop(session, None)
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(self.broker.options.queue_scan_interval)
            self.broker.expire()
