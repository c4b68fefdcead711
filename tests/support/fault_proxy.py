"""A small TCP proxy that does to connections what networks do: cut, delay, lose replies, go silent, move elsewhere.

A reply that is lost takes every later one of its connection with it: TCP has no holes.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

_CHUNK = 65_536
_HOST = "127.0.0.1"


class _Link:
    """One connection of a client and the one to the server behind it."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.deaf = False
        self.silent = False

    def cut(self) -> None:
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()


class FaultProxy:
    """Listens on a free port and hands everything on, except for the faults that are on.

    Args:
        port: where the server is, on this machine; :meth:`move` changes it.
    """

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        """Seconds by which each piece of a reply is late."""
        self.refuse = False
        """Whether new connections are ended at once."""
        self.database = "0"
        """The logical database that :attr:`url` names."""
        self.port = 0
        self.connections = 0
        """How many connections there have been."""
        self._target = port
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, _HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"redis://{_HOST}:{self.port}/{self.database}"

    def cut(self) -> None:
        """End every connection at once, as a restart of the network does."""
        for link in list(self._links):
            link.cut()

    def lose_replies(self) -> None:
        """Let requests of the present connections arrive, but none of their replies from now on."""
        for link in self._links:
            link.deaf = True

    def go_silent(self) -> None:
        """Let nothing pass on the present connections, either way, and close nothing: half-open connections."""
        for link in self._links:
            link.silent = True

    def move(self, port: int) -> None:
        """Serve from another server from now on: an address that follows a failover."""
        self._target = port
        self.cut()

    @contextmanager
    def partitioned(self) -> Iterator[None]:
        """Let nobody through while a block runs."""
        self.refuse = True
        self.cut()
        try:
            yield
        finally:
            self.refuse = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        link = _Link(writer)
        self._links.add(link)
        self.connections += 1
        try:
            if not self.refuse:
                await self._link(link, reader)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            link.cut()
            self._links.discard(link)
            self._tasks.discard(task)

    async def _link(self, link: _Link, from_client: asyncio.StreamReader) -> None:
        from_server, link.server = await asyncio.open_connection(_HOST, self._target)
        pumps = [
            asyncio.create_task(self._pump(link, from_client, link.server, replies=False)),
            asyncio.create_task(self._pump(link, from_server, link.client, replies=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if replies and self.delay:
                    await asyncio.sleep(self.delay)
                if link.silent or (replies and link.deaf):
                    continue
                writer.write(data)
                await writer.drain()
