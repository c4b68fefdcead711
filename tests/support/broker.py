"""Start brokers for tests and speak the raw protocol with them."""

import asyncio
import itertools
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from devengines.nsqd import BrokerProcess, DevbrokerProcess, NsqdProcess, build_nsqd

BROKERS = ("devbroker", "nsqd")
RESPONSE, ERROR, MESSAGE = 0, 1, 2

_numbers = itertools.count()


@dataclass(frozen=True)
class Addresses:
    """Name one broker's addresses."""

    nsqd_tcp: str
    nsqd_http: str


def make_broker(kind: str, folder: Path, *, msg_timeout: int = 60) -> BrokerProcess:
    """Return a broker that was not started; skips the test if there is no nsqd."""
    if kind == "devbroker":
        return DevbrokerProcess(folder, flags=(f"--msg-timeout={msg_timeout}",))
    if build_nsqd() is None:
        pytest.skip("nsqd is neither on PATH nor can it be built with go")
    return NsqdProcess(folder, flags=(f"--msg-timeout={msg_timeout}s",))


def started(kind: str, folder: Path, *, msg_timeout: int = 60) -> Iterator[BrokerProcess]:
    """Yield a running broker and stop it afterwards: the body of a fixture."""
    broker = make_broker(kind, folder, msg_timeout=msg_timeout)
    broker.start()
    yield broker
    broker.proceed()
    broker.stop()


def addresses(broker: BrokerProcess) -> Addresses:
    """Return the addresses of a running broker."""
    return Addresses(nsqd_tcp=broker.tcp_address, nsqd_http=broker.http_address)


def new_topic() -> str:
    """Return a topic name that no other test uses."""
    return f"topic.{next(_numbers)}"


@dataclass(frozen=True)
class RawMessage:
    """One message frame."""

    id: bytes
    body: bytes
    attempts: int
    timestamp_ns: int


class RawClient:
    """Speak protocol V2 byte by byte, so that a broker is judged without the adapter."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: str, magic: bytes = b"  V2") -> Self:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(magic)
        return cls(reader, writer)

    def send(self, line: str, body: bytes | None = None) -> None:
        payload = b"" if body is None else struct.pack(">i", len(body)) + body
        self.writer.write(line.encode("latin-1") + b"\n" + payload)

    async def frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(10):
            size, kind = struct.unpack(">ii", await self.reader.readexactly(8))
            return kind, await self.reader.readexactly(size - 4)

    async def ask(self, line: str, body: bytes | None = None) -> tuple[int, bytes]:
        self.send(line, body)
        return await self.frame()

    async def identify(self, **fields: Any) -> dict[str, Any]:
        body = json.dumps({"feature_negotiation": True, **fields}).encode()
        kind, data = await self.ask("IDENTIFY", body)
        assert kind == RESPONSE, data
        found: dict[str, Any] = json.loads(data)
        return found

    async def subscribe(self, topic: str, channel: str = "c", ready: int = 1) -> None:
        assert await self.ask(f"SUB {topic} {channel}") == (RESPONSE, b"OK")
        self.send(f"RDY {ready}")

    async def message(self) -> RawMessage:
        kind, data = await self.frame()
        while kind == RESPONSE and data == b"_heartbeat_":
            self.send("NOP")
            kind, data = await self.frame()
        assert kind == MESSAGE, data
        timestamp_ns, attempts = struct.unpack(">qH", data[:10])
        return RawMessage(data[10:26], data[26:], attempts, timestamp_ns)

    async def is_closed(self) -> bool:
        """Wait for the broker to hang up."""
        async with asyncio.timeout(10):
            while True:
                try:
                    if not await self.reader.read(4096):
                        return True
                except ConnectionError:
                    return True

    async def close(self) -> None:
        self.writer.close()


def bodies_of(*bodies: bytes) -> bytes:
    """Return an MPUB payload."""
    parts = [struct.pack(">i", len(bodies))]
    parts += [struct.pack(">i", len(body)) + body for body in bodies]
    return b"".join(parts)


Faults = Callable[..., dict[str, Any]]
