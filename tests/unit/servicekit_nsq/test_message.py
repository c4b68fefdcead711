import inspect
import struct
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import nsq
import pytest
from tornado.iostream import StreamClosedError

from servicekit.nsq.connection import BrokerConnection
from servicekit.nsq.message import Message
from servicekit.nsq.tuning import NsqTuning


class StubConnection:
    def __init__(self) -> None:
        self.alive = True
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        if not self.alive:
            raise StreamClosedError
        self.sent.append(data)


@pytest.fixture
def connection() -> StubConnection:
    return StubConnection()


@pytest.fixture
def message(connection: StubConnection) -> Message:
    return Message(
        connection,  # type: ignore[arg-type]
        b"0123456789abcdef",
        b"body",
        attempts=65_535,
        timestamp_ns=1_700_000_000_123_456_789,
        received=0.0,
        on_end=lambda _message: None,
    )


def test_time_is_an_instant(message: Message) -> None:
    assert message.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert message.id == "0123456789abcdef"


async def test_attempts_are_read_unsigned() -> None:
    connection = BrokerConnection("127.0.0.1", 1, NsqTuning())
    seen: list[tuple[bytes, bytes, int]] = []
    connection.receiver = lambda _connection, message_id, body, attempts, _time: seen.append(
        (message_id, body, attempts)
    )
    payload = struct.pack(">lqH", 2, 0, 65_535) + b"0123456789abcdef" + b"body"
    frame = struct.pack(">l", len(payload)) + payload
    assert connection._dispatch(frame + frame[:7]) == frame[:7]
    assert seen == [(b"0123456789abcdef", b"body", 65_535)]


async def test_requeue_is_in_whole_milliseconds(message: Message, connection: StubConnection) -> None:
    assert await message.requeue(timedelta(seconds=1.5))
    assert connection.sent == [b"REQ 0123456789abcdef 1500\n"]


async def test_a_message_ends_once(message: Message, connection: StubConnection) -> None:
    message.touch()
    assert await message.finish()
    assert not await message.finish()
    assert not await message.requeue()
    message.touch()
    assert message.ended
    assert connection.sent == [b"TOUCH 0123456789abcdef\n", b"FIN 0123456789abcdef\n"]


async def test_a_dead_connection_is_no_error(message: Message, connection: StubConnection) -> None:
    connection.alive = False
    message.touch()
    assert not await message.finish()
    assert message.ended


def test_pynsq_is_the_version_whose_private_methods_are_overridden() -> None:
    assert version("pynsq") == "0.9.1"
    for name in ("_connect_callback", "_start_read"):
        assert name in vars(nsq.AsyncConn)
        assert name in vars(BrokerConnection)
    assert list(inspect.signature(nsq.AsyncConn._connect_callback).parameters) == ["self", "fut"]
