"""One connection to Redis that many callers share, with as little Python per call as possible.

Commands of one turn of the event loop leave in one write, and answers are handed out as they arrive. Nothing is ever
sent twice: when a connection ends, every call on it fails, and its outcome is unknown.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis
import redis.exceptions
from redis.asyncio.connection import AbstractConnection

MOST_IN_FLIGHT = 256
"""Calls sent and not answered on one connection; more wait here, where a caller that gives up still costs nothing."""

Word = str | bytes | int | float
Greet = Callable[["Wire"], Awaitable[Any]]
"""Asked once per connection, before anybody else may use it; what it returns is kept as the wire's facts."""

_PLAIN_ERRORS: dict[str, type[redis.exceptions.ResponseError]] = {
    "NOSCRIPT": redis.exceptions.NoScriptError,
    "READONLY": redis.exceptions.ReadOnlyError,
}
_CLUSTER_ERRORS = {"MOVED": redis.exceptions.MovedError, "ASK": redis.exceptions.AskError}


class Wire(asyncio.Protocol):
    """A connection in use. Safe for any number of tasks of one event loop.

    Args:
        transport: connected and signed in.
        seconds: without any answer for that long, the connection counts as lost.
    """

    def __init__(self, transport: asyncio.Transport, *, seconds: float) -> None:
        self.facts: Any = None
        """What the greeting returned."""
        self._transport = transport
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=redis.exceptions.InvalidResponse, replyError=_error_of, notEnoughData=_NOTHING
        )
        self._waiting: deque[tuple[tuple[Word, ...], asyncio.Future[Any]]] = deque()
        self._sent: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._flushing = False
        self._watch: asyncio.TimerHandle | None = None
        self._lost: Exception | None = None
        transport.set_protocol(self)

    @property
    def closed(self) -> bool:
        """Whether it can't be used any more."""
        return self._lost is not None

    def submit(self, words: tuple[Word, ...]) -> "asyncio.Future[Any]":
        """Send one command with this turn of the event loop and return its answer to come.

        The answer is the driver's error when Redis refused. A future that is cancelled before it was sent is not sent.
        Raises what ended the connection when it has ended.
        """
        if self._lost is not None:
            raise redis.exceptions.ConnectionError("the connection to Redis has ended") from self._lost
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((words, future))
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return future

    def close(self, error: Exception | None = None) -> None:
        """End it now; calls without an answer fail."""
        self._end(error or redis.exceptions.ConnectionError("the connection to Redis was closed"))
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand out answers."""
        self._reader.feed(data)
        sent = self._sent
        try:
            while (answer := self._reader.gets()) is not _NOTHING:
                if isinstance(answer, hiredis.PushNotification) or not sent:
                    continue
                future = sent.popleft()[1]
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except redis.exceptions.InvalidResponse as error:
            self.close(error)
            return
        if self._waiting and not self._flushing:
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what has no answer."""
        self._end(exc or redis.exceptions.ConnectionError("Redis closed the connection"))

    def _flush(self) -> None:
        self._flushing = False
        if self._lost is not None:
            return
        waiting, sent, packed = self._waiting, self._sent, []
        now = self._loop.time()
        while waiting and len(sent) < MOST_IN_FLIGHT:
            words, future = waiting.popleft()
            if future.done():
                continue
            packed.append(hiredis.pack_command(words))  # type: ignore[arg-type]
            sent.append((now, future))
        if packed:
            self._transport.write(b"".join(packed))
            if self._watch is None:
                self._watch = self._loop.call_later(self._seconds, self._look)

    def _look(self) -> None:
        self._watch = None
        if not self._sent:
            return
        left = self._sent[0][0] + self._seconds - self._loop.time()
        if left <= 0:
            self.close(redis.exceptions.TimeoutError("Timeout: Redis did not answer"))
        else:
            self._watch = self._loop.call_later(left, self._look)

    def _end(self, error: Exception) -> None:
        if self._lost is not None:
            return
        self._lost = error
        if self._watch is not None:
            self._watch.cancel()
        if not isinstance(error, redis.exceptions.RedisError):
            error = redis.exceptions.ConnectionError(str(error))
        for _, future in [*self._sent, *self._waiting]:
            if not future.done():
                future.set_exception(error)
        self._sent.clear()
        self._waiting.clear()


class Pipe:
    """Keeps one wire to one server: made when it is needed, and again after it was lost.

    Args:
        make: makes an unconnected connection of the driver; it does addresses, TLS and signing in.
        seconds: most time to connect, and to wait for an answer.
        greet: see :data:`Greet`.
    """

    def __init__(
        self, make: Callable[[], AbstractConnection], *, seconds: float, greet: Greet | None = None
    ) -> None:
        self._make = make
        self._seconds = seconds
        self._greet = greet
        self._wire: Wire | None = None
        self._connection: AbstractConnection | None = None
        self._connecting: asyncio.Task[Wire] | None = None

    @property
    def present(self) -> Wire | None:
        """The wire if there is one now."""
        wire = self._wire
        return wire if wire is not None and wire._lost is None else None  # noqa: SLF001 - hot, and its own module

    async def wire(self) -> Wire:
        """Return the wire; connects when there is none, once for all who ask meanwhile.

        Raises what the driver raises, after the time to connect at the latest.
        """
        present = self.present
        if present is not None:
            return present
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="connect to Redis")
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    async def close(self) -> None:
        """End the wire; the next caller makes a new one."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
        await self._leave()

    async def _connect(self) -> Wire:
        await self._leave()
        connection = self._make()
        try:
            async with asyncio.timeout(self._seconds):
                await connection.connect()  # type: ignore[no-untyped-call]
                writer = connection._writer  # noqa: SLF001 - the driver signs in, and lends what it has opened
                assert writer is not None  # noqa: S101 - connected
                wire = Wire(writer.transport, seconds=self._seconds)  # type: ignore[arg-type]
                if self._greet is not None:
                    wire.facts = await self._greet(wire)
                self._connection = connection
        except TimeoutError as error:
            raise redis.exceptions.TimeoutError("Timeout: Redis could not be reached") from error
        finally:
            if self._connection is not connection:
                await connection.disconnect(nowait=True)
        self._wire = wire
        return wire

    def _connected(self, task: "asyncio.Task[Wire]") -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # told to those who wait; nobody may have waited

    async def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


_NOTHING = object()


def _error_of(text: str) -> Exception:
    code, _, rest = text.partition(" ")
    if code in _CLUSTER_ERRORS:
        return _CLUSTER_ERRORS[code](rest)
    return _PLAIN_ERRORS.get(code, redis.exceptions.ResponseError)(text)
