from typing import Any

import pytest

from devbroker.channel import Channel, StoredMessage
from devbroker.faults import Faults
from devbroker.options import BrokerOptions
from devbroker.wire import CommandError, is_valid_name


class Client:
    def __init__(self, ready: int = 100) -> None:
        self.msg_timeout = 10.0
        self.in_flight_count = 0
        self.ready = ready
        self.delivered: list[StoredMessage] = []

    def is_ready(self) -> bool:
        return self.in_flight_count < self.ready

    def deliver(self, message: StoredMessage) -> None:
        self.in_flight_count += 1
        self.delivered.append(message)

    def released(self) -> None:
        self.in_flight_count -= 1

    def stats(self) -> dict[str, Any]:
        return {}

    def hang_up(self) -> None:
        self.ready = 0


class Time:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def channel(time: Time, faults: Faults) -> Channel:
    return Channel("c", BrokerOptions(max_msg_timeout=25.0, max_req_timeout=100.0), faults, now=time)


def message(number: int) -> StoredMessage:
    return StoredMessage(b"%016d" % number, b"body", 0)


def test_clients_take_turns(channel: Channel) -> None:
    clients = [Client(), Client()]
    for client in clients:
        channel.subscribe(client)
    for number in range(4):
        channel.put(message(number))
    assert [len(client.delivered) for client in clients] == [2, 2]


def test_touching_reaches_only_to_the_longest_timeout(channel: Channel, time: Time) -> None:
    client = Client()
    channel.subscribe(client)
    channel.put(message(1))
    for seconds in (8.0, 16.0, 24.0):
        time.seconds = seconds
        channel.touch(client, message(1).id)
        channel.expire()
    assert channel.stats()["timeout_count"] == 0
    time.seconds = 25.0
    channel.expire()
    assert (channel.stats()["timeout_count"], client.delivered[-1].attempts) == (1, 2)


def test_requeue_delay_is_clamped(channel: Channel, time: Time) -> None:
    client = Client()
    channel.subscribe(client)
    channel.put(message(1))
    channel.requeue(client, message(1).id, 1000.0)
    client.released()
    time.seconds = 100.0
    channel.expire()
    assert [delivered.attempts for delivered in client.delivered] == [2, 2]


def test_only_the_holder_may_answer(channel: Channel) -> None:
    holder, stranger = Client(), Client(ready=0)
    channel.subscribe(holder)
    channel.put(message(1))
    for command in (channel.finish, channel.touch):
        with pytest.raises(CommandError) as caught:
            command(stranger, message(1).id)
        assert not caught.value.fatal
    channel.finish(holder, message(1).id)
    with pytest.raises(CommandError, match="E_FIN_FAILED"):
        channel.finish(holder, message(1).id)


def test_losing_in_flight_drops_deferred_too_but_not_the_queue(channel: Channel) -> None:
    client = Client(ready=1)
    channel.subscribe(client)
    channel.put(message(1))
    channel.put(message(2))
    channel.put(message(3), 50.0)
    assert channel.lose_in_flight() == 2
    channel.pump()
    assert [delivered.id for delivered in client.delivered] == [message(1).id, message(2).id]


def test_duplicate_has_its_own_identity(channel: Channel, faults: Faults) -> None:
    client = Client()
    channel.subscribe(client)
    faults.set(duplicate_deliveries=1)
    channel.put(message(1))
    first, second = client.delivered
    assert first.body == second.body
    assert first.id != second.id
    channel.finish(client, first.id)
    channel.finish(client, second.id)


def test_faults_are_checked_and_used_up(faults: Faults) -> None:
    faults.set(drop_replies=1, mute=1)
    assert faults.mute is True
    assert [faults.take("drop_replies"), faults.take("drop_replies")] == [True, False]
    with pytest.raises(KeyError):
        faults.set(nonsense=1)
    with pytest.raises(ValueError, match="at least 0"):
        faults.set(delay_replies=-1)
    faults.reset()
    assert faults == Faults()


@pytest.mark.parametrize(
    ("name", "valid"), [("a.b-c_D9", True), ("t#ephemeral", True), ("", False), ("a\n", False)]
)
def test_names(*, name: str, valid: bool) -> None:
    assert is_valid_name(name) is valid
