"""Tame one pynsq connection: bounded connect, no blocking DNS, bulk reads, combined writes, one end.

The overridden private methods are those of pynsq 0.9.1; a unit test fails if another version renames them.
"""

import asyncio
import logging
import struct
import time
from collections.abc import Callable
from typing import Any

from nsq import AsyncConn, event, protocol
from tornado.iostream import StreamClosedError

from servicekit.nsq.tuning import NsqTuning, split_address

_READ_BYTES = 64 * 1024
_LENGTH = struct.Struct(">l")
_HEAD = struct.Struct(">ll")
_MESSAGE_HEAD = struct.Struct(">qH16s")
_OUTPUT_BUFFER_MILLISECONDS = 25
_USER_AGENT = "sluicegate"

_log = logging.getLogger(__name__)

# (connection, id, body, attempts, nanoseconds since 1970)
Receiver = Callable[["BrokerConnection", bytes, bytes, int, int], None]


class BrokerConnection(AsyncConn):  # type: ignore[misc] # pynsq has no types
    """Be one connection to nsqd, from connecting to its end.

    Attributes:
        opened: done once nsqd answered IDENTIFY, or failed.
        ended: done once the socket is closed, whoever closed it.
        last_activity: monotonic seconds of the last bytes from nsqd.
        receiver: called with each message; pynsq's own message objects are slow and read attempts signed.
    """

    def __init__(self, host: str, port: int, tuning: NsqTuning) -> None:
        super().__init__(
            host,
            port,
            timeout=tuning.connect_seconds,
            heartbeat_interval=tuning.heartbeat_seconds,
            user_agent=_USER_AGENT,
            output_buffer_timeout=_OUTPUT_BUFFER_MILLISECONDS,
        )
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.last_activity = time.monotonic()
        self.receiver: Receiver | None = None
        self._unsent: list[bytes] = []
        self._reading: asyncio.Task[None] | None = None
        self.on(event.READY, self._on_ready)
        self.on(event.ERROR, self._on_error)
        self.on(event.CLOSE, self._on_close)

    def send(self, data: bytes) -> None:
        """Write at the end of this turn of the loop, together with whatever else is sent in it."""
        if self.stream is None or self.stream.closed():
            raise StreamClosedError
        self._unsent.append(data)
        if len(self._unsent) == 1:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Write what was sent and close the socket; may be called at any time, also twice."""
        self._flush()
        if self.stream is not None:
            self.stream.close()

    def silent_seconds(self) -> float:
        """Return for how long nothing came, not even a heartbeat."""
        return time.monotonic() - self.last_activity

    def _connect_callback(self, fut: Any) -> None:
        if fut.cancelled() or fut.exception() is not None:
            return  # the close event tells; pynsq would raise into the event loop
        super()._connect_callback(fut)

    def _start_read(self) -> None:
        self._reading = self._loop.create_task(self._read())

    async def _read(self) -> None:
        pending = b""
        try:
            while True:
                chunk = await self.stream.read_bytes(_READ_BYTES, partial=True)
                self.last_activity = time.monotonic()
                pending = self._dispatch(pending + chunk if pending else chunk)
        except StreamClosedError:
            self.close()

    def _dispatch(self, data: bytes) -> bytes:
        """Trigger one event per whole frame and return the rest."""
        start = 0
        while len(data) - start >= _LENGTH.size:
            end = start + _LENGTH.size + _LENGTH.unpack_from(data, start)[0]
            if end > len(data):
                break
            try:
                self._take_frame(data, start, end)
            except Exception:  # noqa: BLE001 - the shell around frame handlers
                _log.exception("a handler of an NSQ frame failed")
            start = end
        return data[start:]

    def _take_frame(self, data: bytes, start: int, end: int) -> None:
        """Pass a message to the receiver and every other frame to pynsq."""
        if self.receiver is None or _HEAD.unpack_from(data, start)[1] != protocol.FRAME_TYPE_MESSAGE:
            self.trigger(event.DATA, conn=self, data=data[start + _LENGTH.size : end])
            return
        head = start + _HEAD.size
        timestamp_ns, attempts, message_id = _MESSAGE_HEAD.unpack_from(data, head)
        self.receiver(self, message_id, data[head + _MESSAGE_HEAD.size : end], attempts, timestamp_ns)

    def _flush(self) -> None:
        data, self._unsent = self._unsent, []
        if data and self.stream is not None and not self.stream.closed():
            self.stream.write(b"".join(data))

    def _on_ready(self, **_: Any) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def _on_error(self, error: Exception, **_: Any) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(f"nsqd refused the connection: {error}"))

    def _on_close(self, **_: Any) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if not self.opened.done():
            cause = self.stream.error if self.stream is not None else None
            self.opened.set_exception(ConnectionError(f"can't connect: {cause or 'connection closed'}"))


async def open_connection(address: str, tuning: NsqTuning) -> BrokerConnection:
    """Connect and negotiate within `tuning.connect_seconds`.

    Raises:
        OSError: the name does not resolve, nsqd does not listen, or it refused.
        TimeoutError: it took too long.
    """
    connection: BrokerConnection | None = None
    try:
        async with asyncio.timeout(tuning.connect_seconds):
            host, port = await _resolve(address)
            connection = BrokerConnection(host, port, tuning)
            connection.connect()
            await asyncio.shield(connection.opened)
    except BaseException:
        if connection is not None:
            abandon(connection)
        raise
    return connection


def abandon(connection: BrokerConnection) -> None:
    """Close a connection nobody will look at any more."""
    connection.close()
    if connection.opened.done() and not connection.opened.cancelled():
        connection.opened.exception()
    connection.opened.cancel()


def error_text(error: object) -> str:
    """Return nsqd's own text of a pynsq error, such as `E_BAD_TOPIC ...`."""
    if isinstance(error, protocol.Error) and error.args and isinstance(error.args[0], bytes):
        return error.args[0].decode("utf-8", "replace")
    return str(error)


async def _resolve(address: str) -> tuple[str, int]:
    """Resolve off the loop's thread: pynsq's connect would block on a name."""
    host, port = split_address(address)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
    return str(found[0][4][0]), port
