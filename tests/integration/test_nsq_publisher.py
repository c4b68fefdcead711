"""Faults 1 to 3 of pynsq, and how the adapter closes them: the publishing side, on both brokers."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from devengines.nsqd import BrokerProcess, DevbrokerProcess
from servicekit.clock import SystemClock
from servicekit.errors import Reason, ServiceError
from servicekit.nsq import NsqAdmin, Publisher
from tests.support.broker import addresses, make_broker, new_topic
from tests.support.nsq import (
    TUNING,
    Collector,
    StartConsumer,
    assert_away,
    broker,
    faulty,
    mortal,
    publisher,
    running_publisher,
    start_consumer,
)
from tests.support.waiting import eventually

__all__ = ["broker", "faulty", "mortal", "publisher", "start_consumer"]

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
