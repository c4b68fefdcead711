import inspect
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import nsq
import pytest
from nsq.message import Message as RawMessage

from servicekit.nsq.connection import BrokerConnection
from servicekit.nsq.message import Message


class StubConnection:
    def __init__(self) -> None:
        self.alive = True

    def connected(self) -> bool:
        return self.alive


@pytest.fixture
def sent() -> list[tuple[str, dict[str, Any]]]:
    return []


@pytest.fixture
def connection() -> StubConnection:
    return StubConnection()


@pytest.fixture
def message(sent: list[tuple[str, dict[str, Any]]], connection: StubConnection) -> Message:
    raw = RawMessage(b"0123456789abcdef", b"body", 1_700_000_000_123_456_789, -1)
    for name in ("finish", "requeue", "touch"):
        raw.on(name, lambda _name=name, **fields: sent.append((_name, fields)))
    return Message(raw, connection, received=0.0, on_end=lambda _message: None)  # type: ignore[arg-type]


def test_attempts_are_unsigned_and_the_time_is_an_instant(message: Message) -> None:
    assert message.attempts == 65_535
    assert message.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert message.id == "0123456789abcdef"


async def test_requeue_is_in_whole_milliseconds_and_without_backoff(
    message: Message, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    assert await message.requeue(timedelta(seconds=1.5))
    (name, fields) = sent[0]
    assert (name, fields["time_ms"], type(fields["time_ms"]), fields["backoff"]) == (
        "requeue",
        1500,
        int,
        False,
    )


async def test_a_message_ends_once(message: Message, sent: list[tuple[str, dict[str, Any]]]) -> None:
    assert await message.finish()
    assert not await message.finish()
    assert not await message.requeue()
    message.touch()
    assert message.ended
    assert [name for name, _ in sent] == ["finish"]


async def test_nothing_is_sent_on_a_dead_connection(
    message: Message, connection: StubConnection, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    connection.alive = False
    assert not await message.finish()
    assert sent == []


def test_pynsq_is_the_version_whose_private_methods_are_overridden() -> None:
    assert version("pynsq") == "0.9.1"
    for name in ("_connect_callback", "_start_read"):
        assert name in vars(nsq.AsyncConn)
        assert name in vars(BrokerConnection)
    assert list(inspect.signature(nsq.AsyncConn._connect_callback).parameters) == ["self", "fut"]
