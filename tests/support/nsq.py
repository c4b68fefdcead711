"""Fixtures and helpers of the NSQ adapter's tests; a test module imports the fixtures it uses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devengines.nsqd import BrokerProcess, DevbrokerProcess
from servicekit.clock import SystemClock
from servicekit.errors import Reason, ServiceError
from servicekit.nsq import Consumer, Message, NsqAdmin, NsqTuning, Publisher
from tests.support.broker import BROKERS, addresses, started
from tests.support.waiting import eventually

TUNING = NsqTuning(heartbeat_seconds=1, publish_seconds=1.5, drain_seconds=10.0, failure_delay=0.2)

StartConsumer = Callable[..., Awaitable[Consumer]]


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    yield from started(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevbrokerProcess]:
    for process in started("devbroker", tmp_path_factory.mktemp("faulty")):
        assert isinstance(process, DevbrokerProcess)
        yield process


@pytest.fixture(params=BROKERS)
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    yield from started(request.param, tmp_path)


@pytest.fixture
async def publisher(broker: BrokerProcess) -> AsyncIterator[Publisher]:
    async with running_publisher(broker) as running:
        yield running


@pytest.fixture
async def start_consumer() -> AsyncIterator[StartConsumer]:
    """Start consumers that are stopped at the end of the test."""
    consumers: list[Consumer] = []

    async def start(
        broker: BrokerProcess,
        topic: str,
        handler: Callable[[Message], Awaitable[Any]],
        *,
        max_in_flight: int = 10,
        tuning: NsqTuning = TUNING,
    ) -> Consumer:
        consumer = Consumer(addresses(broker), topic, "c", handler, max_in_flight, tuning=tuning)
        consumers.append(consumer)
        await consumer.start()
        return consumer

    yield start
    for consumer in consumers:
        await consumer.stop()


@asynccontextmanager
async def running_publisher(broker: BrokerProcess, tuning: NsqTuning = TUNING) -> AsyncIterator[Publisher]:
    publisher = Publisher(addresses(broker), SystemClock(), tuning=tuning)
    await publisher.start()
    await eventually(lambda: publisher.ready)
    try:
        yield publisher
    finally:
        await publisher.stop()


class Collector:
    """Keep what came, and finish it if told to."""

    def __init__(self, *, finish: bool = True) -> None:
        self.messages: list[Message] = []
        self._finish = finish

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)
        if self._finish:
            await message.finish()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


async def backlog(broker: BrokerProcess, topic: str) -> int:
    return await NsqAdmin(addresses(broker)).backlog(topic, "c")


async def channel(broker: BrokerProcess, topic: str) -> Any:
    return (await NsqAdmin(addresses(broker)).stats())[topic].channels["c"]


async def assert_away(publishing: Awaitable[None]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await publishing
    assert caught.value.reason is Reason.DEPENDENCY_AWAY
    return caught.value
