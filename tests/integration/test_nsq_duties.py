"""The ten faults of pynsq, each closed by the adapter; both brokers, and faults on demand from the development one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from devengines.nsqd import BrokerProcess, DevbrokerProcess
from servicekit.clock import SystemClock
from servicekit.errors import Reason, ServiceError
from servicekit.nsq import Consumer, Message, NsqAdmin, NsqTuning, Publisher
from tests.support.broker import BROKERS, addresses, make_broker, new_topic, started
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


# Duty 1: a publish ends once, with nsqd's own answer


async def test_publish_returns_after_nsqd_has_the_message(
    broker: BrokerProcess, publisher: Publisher
) -> None:
    topic = new_topic()
    await publisher.publish(topic, b"one")
    await publisher.publish_many(topic, [b"two", b"three"])
    await publisher.publish_many(topic, [])
    assert (await NsqAdmin(addresses(broker)).stats())[topic].message_count == 3


async def test_unanswered_publish_fails_within_its_limit_and_the_next_one_is_not_confused(
    faulty: DevbrokerProcess,
) -> None:
    async with running_publisher(faulty) as publisher:
        faulty.set_faults(drop_replies=1)
        error = await assert_away(publisher.publish(new_topic(), b"unanswered"))
        assert error.metadata == {"stored": "unknown"}
        await eventually(lambda: publisher.ready)
        await publisher.publish(new_topic(), b"answered")


async def test_refused_publish_ends_once_and_alone_if_nothing_else_is_on_the_way(
    faulty: DevbrokerProcess,
) -> None:
    async with running_publisher(faulty) as publisher:
        faulty.set_faults(refuse_publishes=1)
        await assert_away(publisher.publish(new_topic(), b"refused"))
        await eventually(lambda: publisher.ready)
        await publisher.publish(new_topic(), b"accepted")


async def test_lost_connection_fails_every_publish_on_the_way(faulty: DevbrokerProcess) -> None:
    async with running_publisher(faulty) as publisher:
        faulty.set_faults(delay_replies=1.0)
        topic = new_topic()
        waiting = [asyncio.create_task(publisher.publish(topic, b"x")) for _ in range(50)]
        await eventually(lambda: faulty.set_faults(drop_connections="publishers")["dropped"])
        results = await asyncio.gather(*waiting, return_exceptions=True)
        faulty.set_faults(delay_replies=0)
        assert {getattr(result, "reason", None) for result in results} == {Reason.DEPENDENCY_AWAY}


async def test_cancelled_publish_does_not_shift_answers(broker: BrokerProcess, publisher: Publisher) -> None:
    topic = new_topic()
    tasks = [asyncio.create_task(publisher.publish(topic, b"%d" % number)) for number in range(200)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[1::2] == [None] * 100
    with pytest.raises(ServiceError):
        await publisher.publish(topic, b"")
    await publisher.publish(topic, b"last")


async def test_nothing_hangs_when_the_publisher_stops(faulty: DevbrokerProcess) -> None:
    async with running_publisher(faulty, replace(TUNING, publish_seconds=60.0)) as publisher:
        faulty.set_faults(mute=True)
        topic = new_topic()
        waiting = [asyncio.create_task(publisher.publish(topic, b"x" * 1000)) for _ in range(100)]
        await asyncio.sleep(0)
        await publisher.stop()
        faulty.set_faults(mute=False)
        async with asyncio.timeout(5):
            results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {getattr(result, "reason", None) for result in results} == {Reason.DEPENDENCY_AWAY}
        await assert_away(publisher.publish(topic, b"too late"))


# Duty 2: readiness, and a quick way back


async def test_publisher_and_consumer_come_back_after_the_broker_was_killed(
    mortal: BrokerProcess, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector()
    consumer = await start_consumer(mortal, topic, collector)
    async with running_publisher(mortal) as publisher:
        await publisher.publish(topic, b"before")
        await eventually(lambda: collector.bodies == [b"before"])
        mortal.kill()
        await eventually(lambda: not publisher.ready)
        error = await assert_away(publisher.publish(topic, b"during"))
        assert error.metadata == {"stored": "no"}
        mortal.start()
        await eventually(lambda: publisher.ready)  # pynsq's own writer takes 15 s
        await publisher.publish(topic, b"after")
        await eventually(lambda: b"after" in collector.bodies)
        assert consumer.connected


async def test_publisher_starts_without_a_broker(tmp_path: Path) -> None:
    process = make_broker("devbroker", tmp_path)
    process.start()
    process.stop()
    publisher = Publisher(addresses(process), SystemClock(), tuning=replace(TUNING, start_seconds=0.1))
    await publisher.start()
    assert not publisher.ready
    process.start()
    await eventually(lambda: publisher.ready)
    await publisher.stop()
    process.stop()


# Duty 3: bad input never reaches the wire


@pytest.mark.parametrize(
    ("topic", "body"),
    [
        ("bad/topic", b"x"),
        ("", b"x"),
        ("n" * 65, b"x"),
        ("t\n", b"x"),
        ("t", b""),
        ("t", bytes(1024 * 1024 + 1)),
    ],
    ids=["slash", "no-topic", "long-topic", "line-break", "empty", "too-large"],
)
async def test_bad_publish_fails_alone(publisher: Publisher, topic: str, body: bytes) -> None:
    good = new_topic()
    tasks = [asyncio.create_task(publisher.publish(good, b"good")) for _ in range(50)]
    with pytest.raises(ServiceError) as caught:
        await publisher.publish(topic, body)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert await asyncio.gather(*tasks) == [None] * 50
    assert publisher.ready


async def test_largest_bodies_and_more_than_one_mpub_holds(
    broker: BrokerProcess, publisher: Publisher
) -> None:
    topic = new_topic()
    await publisher.publish(topic, bytes(1024 * 1024))
    await publisher.publish_many(topic, [bytes(1024 * 1024)] * 7)
    await publisher.publish_many(topic, [b"x"] * 3000)
    assert (await NsqAdmin(addresses(broker)).stats())[topic].message_count == 3008


# Duty 4: stopped is stopped


async def test_stopped_consumer_and_publisher_leave_nothing_behind(broker: BrokerProcess) -> None:
    loop = asyncio.get_running_loop()
    topic = new_topic()
    publisher = Publisher(addresses(broker), SystemClock(), tuning=TUNING)
    consumer = Consumer(addresses(broker), topic, "c", Collector(), 10, tuning=TUNING)
    await publisher.start()
    await consumer.start()
    await publisher.publish(topic, b"x")
    await eventually(lambda: consumer.counts.received == 1)
    await consumer.drain()
    await consumer.stop()
    await publisher.drain()
    await publisher.stop()

    async def gone() -> bool:
        return bool((await channel(broker, topic)).client_count == 0)

    await eventually(gone)
    timers = [handle for handle in loop._scheduled if not handle.cancelled()]
    left = [task for task in asyncio.all_tasks() if "nsq" in task.get_name() or "connection" in repr(task)]
    assert (left, [handle for handle in timers if "nsq" in repr(handle) or "tornado" in repr(handle)]) == (
        [],
        [],
    )


async def test_drain_waits_for_handlers(
    broker: BrokerProcess, publisher: Publisher, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    release = asyncio.Event()

    async def slow(message: Message) -> None:
        await release.wait()
        await message.finish()

    consumer = await start_consumer(broker, topic, slow, max_in_flight=2)
    await publisher.publish_many(topic, [b"1", b"2", b"3"])
    await eventually(lambda: consumer.in_flight == 2)
    draining = asyncio.create_task(consumer.drain())

    async def not_ready() -> bool:
        return consumer.in_flight == 2 and not draining.done()

    await eventually(not_ready)
    release.set()
    await draining
    await consumer.stop()
    stats = await channel(broker, topic)  # drain returned after nsqd had read every FIN
    assert (stats.depth, stats.in_flight, stats.requeue_count, consumer.counts.received) == (1, 0, 0, 2)


async def test_drain_hands_back_what_handlers_could_not_finish(
    broker: BrokerProcess, publisher: Publisher, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    cancelled: list[bytes] = []

    async def stuck(message: Message) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.body)
            raise

    consumer = await start_consumer(broker, topic, stuck, tuning=replace(TUNING, drain_seconds=0.2))
    await publisher.publish_many(topic, [b"1", b"2"])
    await eventually(lambda: consumer.in_flight == 2)
    await consumer.drain()
    await consumer.stop()
    stats = await channel(broker, topic)
    assert (stats.depth, stats.in_flight, stats.deferred) == (2, 0, 0)
    second = Collector()
    await start_consumer(broker, topic, second)
    await eventually(lambda: sorted(second.bodies) == [b"1", b"2"])
    assert sorted(cancelled) == [b"1", b"2"]
    assert {message.attempts for message in second.messages} == {2}


async def test_drain_under_load_neither_loses_nor_leaves_in_flight(
    broker: BrokerProcess, publisher: Publisher, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    await publisher.publish_many(topic, [b"%d" % number for number in range(5000)])
    collector = Collector()
    consumer = await start_consumer(broker, topic, collector, max_in_flight=200)
    await eventually(lambda: len(collector.messages) > 500)
    await consumer.drain()
    await consumer.stop()
    stats = await channel(broker, topic)
    assert stats.in_flight == 0
    assert len(set(collector.bodies)) + stats.backlog == 5000


# Duty 5: a requeue takes the time it was given


async def test_requeue_delay_is_honoured(
    broker: BrokerProcess, publisher: Publisher, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    seen: list[tuple[int, float]] = []
    loop = asyncio.get_running_loop()

    async def requeue_twice(message: Message) -> None:
        seen.append((message.attempts, loop.time()))
        delays = {1: timedelta(), 2: timedelta(seconds=0.5)}
        if message.attempts in delays:
            await message.requeue(delays[message.attempts])
        else:
            await message.finish()

    await start_consumer(broker, topic, requeue_twice)
    await publisher.publish(topic, b"x")
    await eventually(lambda: len(seen) == 3, within=30)  # pynsq's own default is 90 s per attempt
    assert [attempts for attempts, _ in seen] == [1, 2, 3]
    assert seen[2][1] - seen[1][1] >= 0.4


# Duty 6: a failing handler stalls nobody


async def test_failing_handler_is_called_again_and_others_go_on(
    broker: BrokerProcess, publisher: Publisher, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector()
    failures: list[int] = []

    async def handler(message: Message) -> None:
        if message.body == b"bad" and message.attempts < 3:
            failures.append(message.attempts)
            raise ValueError("made up")
        await collector(message)

    consumer = await start_consumer(broker, topic, handler, max_in_flight=1)
    await publisher.publish_many(topic, [b"bad", *(b"%d" % number for number in range(20))])
    await eventually(lambda: len(collector.messages) == 21, within=30)  # nsqd looks at new channels every 5 s
    assert (failures, consumer.counts.failed) == ([1, 2], 2)

    async def done() -> bool:
        return await backlog(broker, topic) == 0

    await eventually(done)


async def test_handler_may_end_the_message_after_it_returned(
    broker: BrokerProcess, publisher: Publisher, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector(finish=False)
    consumer = await start_consumer(broker, topic, collector)
    await publisher.publish_many(topic, [b"1", b"2", b"3"])
    await eventually(lambda: consumer.in_flight == 3)
    for message in collector.messages:
        assert await message.finish()
        assert not await message.finish()
        assert not await message.requeue()
    assert consumer.in_flight == 0

    async def done() -> bool:
        return await backlog(broker, topic) == 0

    await eventually(done)


# Duties 7 and 9: no message is dropped for its attempts, and no backoff throttles the rest


async def test_message_is_never_dropped_and_requeues_do_not_throttle(
    broker: BrokerProcess, publisher: Publisher, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector()

    async def handler(message: Message) -> None:
        if message.body == b"stubborn" and message.attempts < 20:
            await message.requeue()
        else:
            await collector(message)

    consumer = await start_consumer(broker, topic, handler, max_in_flight=5)
    await publisher.publish_many(topic, [b"stubborn", *(b"%d" % number for number in range(100))])
    await eventually(lambda: len(collector.messages) == 101)
    assert max(message.attempts for message in collector.messages) == 20
    connection = consumer._link.connection
    assert connection is not None
    assert connection.last_rdy == 5


# Duty 8: what was in hand when the connection died comes again


async def test_message_of_a_lost_connection_comes_again(
    tmp_path: Path, start_consumer: StartConsumer
) -> None:
    for kind in BROKERS:
        for process in started(kind, tmp_path / kind, msg_timeout=1):
            topic = new_topic()
            collector = Collector(finish=False)
            consumer = await start_consumer(process, topic, collector)
            async with running_publisher(process) as publisher:
                await publisher.publish(topic, b"x")
            await eventually(lambda c=collector: c.messages)
            connection = consumer._link.connection
            assert connection is not None
            connection.stream.close()
            await eventually(lambda c=consumer: c.counts.lost == 1)
            assert not await collector.messages[0].finish()
            await eventually(lambda c=collector: len(c.messages) == 2)
            assert [message.attempts for message in collector.messages] == [1, 2]
            assert await collector.messages[1].finish()
            await consumer.stop()


# Duty 10: attempts, names, silence


async def test_names_resolve_without_blocking(broker: BrokerProcess) -> None:
    named = replace(addresses(broker), nsqd_tcp=f"localhost:{broker.tcp_port}")
    publisher = Publisher(named, SystemClock(), tuning=TUNING)
    await publisher.start()
    await eventually(lambda: publisher.ready)
    await publisher.publish(new_topic(), b"x")
    await publisher.stop()


async def test_silent_broker_is_noticed_and_used_again(
    mortal: BrokerProcess, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector()
    consumer = await start_consumer(mortal, topic, collector)
    async with running_publisher(mortal) as publisher:
        mortal.suspend()
        await assert_away(publisher.publish(topic, b"unanswered"))
        await eventually(lambda: not consumer.connected)
        mortal.proceed()
        await eventually(lambda: consumer.connected and publisher.ready)
        await publisher.publish(topic, b"back")
        await eventually(lambda: b"back" in collector.bodies)


async def test_held_message_is_touched(tmp_path: Path, start_consumer: StartConsumer) -> None:
    loop = asyncio.get_running_loop()
    for kind in BROKERS:
        for process in started(kind, tmp_path / kind, msg_timeout=2):
            topic = new_topic()
            collector = Collector(finish=False)
            await start_consumer(process, topic, collector, tuning=replace(TUNING, touch_seconds=0.4))
            async with running_publisher(process) as publisher:
                await publisher.publish(topic, b"x")
            await eventually(lambda c=collector: c.messages)
            until = loop.time() + 4.0
            await eventually(lambda u=until: loop.time() > u)
            stats = await channel(process, topic)
            assert (stats.timeout_count, len(collector.messages)) == (0, 1)


# Pausing


async def test_paused_consumer_takes_nothing_until_it_resumes(
    broker: BrokerProcess, publisher: Publisher, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector()
    consumer = await start_consumer(broker, topic, collector)
    consumer.pause()
    await publisher.publish_many(topic, [b"1", b"2"])

    async def waiting() -> bool:
        return bool((await channel(broker, topic)).depth == 2 - len(collector.messages))

    await eventually(waiting)
    assert consumer.paused
    consumer.resume(3)
    await eventually(lambda: sorted(collector.bodies) == [b"1", b"2"])
    connection = consumer._link.connection
    assert connection is not None
    assert connection.last_rdy == 3


async def test_duplicate_deliveries_reach_the_handler(
    faulty: DevbrokerProcess, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector()
    await start_consumer(faulty, topic, collector)
    faulty.set_faults(duplicate_deliveries=1)
    async with running_publisher(faulty) as publisher:
        await publisher.publish(topic, b"x")
    await eventually(lambda: collector.bodies == [b"x", b"x"])


async def test_lost_in_flight_answers_are_counted_as_late(
    faulty: DevbrokerProcess, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector(finish=False)
    consumer = await start_consumer(faulty, topic, collector)
    async with running_publisher(faulty) as publisher:
        await publisher.publish(topic, b"x")
        await eventually(lambda: collector.messages)
        assert faulty.set_faults(lose_in_flight=True)["lost"] >= 1
        await collector.messages[0].finish()
        await eventually(lambda: consumer.counts.late == 1)
        await publisher.publish(topic, b"y")
        await eventually(lambda: collector.bodies == [b"x", b"y"])


# Durability, of the real nsqd only


async def test_primed_topic_survives_a_kill(tmp_path: Path, start_consumer: StartConsumer) -> None:
    process = make_broker("nsqd", tmp_path)
    process.start()
    try:
        topic = new_topic()
        await NsqAdmin(addresses(process)).prime({topic: ["c"]})
        bodies = [b"%d" % number for number in range(1000)]
        async with running_publisher(process) as publisher:
            await publisher.publish_many(topic, bodies)
            process.kill()
            process.start()
        collector = Collector()
        await start_consumer(process, topic, collector, max_in_flight=100)
        await eventually(lambda: set(collector.bodies) == set(bodies))
    finally:
        process.stop()


async def test_priming_is_done_once_and_its_message_reaches_no_handler(
    broker: BrokerProcess, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    admin = NsqAdmin(addresses(broker))
    await admin.prime({topic: ["c"]})
    await admin.prime({topic: ["c"]})
    assert (await admin.stats())[topic].message_count == 1
    collector = Collector()
    consumer = await start_consumer(broker, topic, collector)
    await eventually(lambda: consumer.counts.received == 1)

    async def done() -> bool:
        return await admin.backlog(topic, "c") == 0

    await eventually(done)
    assert collector.messages == []
