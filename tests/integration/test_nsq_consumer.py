"""Faults 4 to 10 of pynsq, and how the adapter closes them: the consuming side, on both brokers."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from devengines.nsqd import BrokerProcess, DevbrokerProcess
from servicekit.clock import SystemClock
from servicekit.nsq import Consumer, Message, NsqAdmin, Publisher
from tests.support.broker import BROKERS, addresses, make_broker, new_topic, started
from tests.support.nsq import (
    TUNING,
    Collector,
    StartConsumer,
    assert_away,
    backlog,
    broker,
    channel,
    faulty,
    mortal,
    publisher,
    running_publisher,
    start_consumer,
)
from tests.support.waiting import eventually

__all__ = ["broker", "faulty", "mortal", "publisher", "start_consumer"]

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
    assert (await channel(broker, topic)).in_flight == 0

    async def whole() -> bool:  # nsqd may still be moving messages from the topic to its channel
        return len(set(collector.bodies)) + int((await channel(broker, topic)).backlog) == 5000

    await eventually(whole)


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


async def test_rdy_that_nsqd_never_gives_back_is_won_again_by_connecting_afresh(
    faulty: DevbrokerProcess, start_consumer: StartConsumer
) -> None:
    topic = new_topic()
    collector = Collector()
    tuning = replace(TUNING, touch_seconds=0.4)
    consumer = await start_consumer(faulty, topic, collector, max_in_flight=3, tuning=tuning)
    consumer.resume(1)
    faulty.set_faults(repeated_ids=1)
    async with running_publisher(faulty) as publisher:
        await publisher.publish_many(topic, [b"1", b"2", b"3"])
        await eventually(lambda: set(collector.bodies) == {b"1", b"2", b"3"})
        consumer.resume(100)
        faulty.set_faults(repeated_ids=2)
        await publisher.publish_many(topic, [b"4", b"5"])
        await eventually(lambda: set(collector.bodies) >= {b"4", b"5"})
        await eventually(lambda: consumer.counts.late >= 3 and consumer.connected)


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
