"""Measure the NSQ adapter against pynsq's own Writer and Reader, in one run, on one broker; print ratios.

Run `python benchmarks/broker.py [--broker nsqd|devbroker] [--messages N] [--rounds N]`. Only the ratios mean something:
the absolute rates are those of one machine, shared with whatever else runs on it.
"""

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nsq
from peers.interruption import end_cleanly

from devengines.nsqd import BrokerProcess, DevbrokerProcess, NsqdProcess
from servicekit.clock import SystemClock
from servicekit.nsq import Consumer, Message, NsqTuning, Publisher

BODY = b"x" * 2000
IN_FLIGHT = 500
CONCURRENT = 200
BATCH = 200

Measure = Callable[[BrokerProcess, str, int], Awaitable[float]]


class Addresses:
    def __init__(self, broker: BrokerProcess) -> None:
        self.nsqd_tcp = broker.tcp_address
        self.nsqd_http = broker.http_address


async def adapter_publish(broker: BrokerProcess, topic: str, count: int) -> float:
    publisher = await running_publisher(broker)
    rate = await timed(count, lambda: in_parallel(count, lambda: publisher.publish(topic, BODY)))
    await publisher.stop()
    return rate


async def adapter_publish_many(broker: BrokerProcess, topic: str, count: int) -> float:
    publisher = await running_publisher(broker)
    batches = count // BATCH
    rate = await timed(
        count, lambda: in_parallel(batches, lambda: publisher.publish_many(topic, [BODY] * BATCH), 4)
    )
    await publisher.stop()
    return rate


async def pynsq_publish(broker: BrokerProcess, topic: str, count: int) -> float:
    writer = await running_writer(broker)

    async def publish() -> None:
        await acknowledged(lambda done: writer.pub(topic, BODY, callback=done))

    rate = await timed(count, lambda: in_parallel(count, publish))
    close(writer)
    return rate


async def pynsq_publish_many(broker: BrokerProcess, topic: str, count: int) -> float:
    writer = await running_writer(broker)

    async def publish() -> None:
        await acknowledged(lambda done: writer.mpub(topic, [BODY] * BATCH, callback=done))

    rate = await timed(count, lambda: in_parallel(count // BATCH, publish, 4))
    close(writer)
    return rate


async def adapter_consume(broker: BrokerProcess, topic: str, count: int) -> float:
    await adapter_publish_many(broker, topic, count)
    done = asyncio.Event()
    left = count

    async def handle(message: Message) -> None:
        nonlocal left
        await message.finish()
        left -= 1
        if not left:
            done.set()

    consumer = Consumer(Addresses(broker), topic, "c", handle, IN_FLIGHT)

    async def consume() -> None:
        await consumer.start()
        await done.wait()

    rate = await timed(count, consume)
    await consumer.drain()
    await consumer.stop()
    return rate


async def pynsq_consume(broker: BrokerProcess, topic: str, count: int) -> float:
    await adapter_publish_many(broker, topic, count)
    done = asyncio.Event()
    left = count

    def handle(_message: Any) -> bool:
        nonlocal left
        left -= 1
        if not left:
            done.set()
        return True

    readers: list[Any] = []

    async def consume() -> None:
        readers.append(
            nsq.Reader(
                topic,
                "c",
                handle,
                nsqd_tcp_addresses=[broker.tcp_address],
                max_in_flight=IN_FLIGHT,
                max_tries=0,
            )
        )
        await done.wait()

    rate = await timed(count, consume)
    readers[0].set_max_in_flight(0)
    close(readers[0])
    return rate


async def running_publisher(broker: BrokerProcess) -> Publisher:
    publisher = Publisher(Addresses(broker), SystemClock(), tuning=NsqTuning(publish_seconds=60.0))
    await publisher.start()
    assert publisher.ready
    return publisher


async def running_writer(broker: BrokerProcess) -> Any:
    writer = nsq.Writer([broker.tcp_address])
    while not writer.conns:  # noqa: ASYNC110 - pynsq's writer offers nothing to wait on
        await asyncio.sleep(0.01)
    return writer


async def acknowledged(send: Callable[[Callable[[Any, Any], None]], Any]) -> None:
    """Wait for nsqd's own answer, as the adapter does."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_connection: Any, answer: Any) -> None:
        assert answer == b"OK", answer
        future.set_result(None)

    send(done)
    await future


def close(client: Any) -> None:
    for connection in list(client.conns.values()):
        connection.close()


async def in_parallel(count: int, call: Callable[[], Awaitable[None]], workers: int = CONCURRENT) -> None:
    left = count

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    await asyncio.gather(*(work() for _ in range(workers)))


async def timed(count: int, run: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    await run()
    return count / (time.perf_counter() - started)


PAIRS: dict[str, tuple[Measure, Measure]] = {
    f"publish, {CONCURRENT} at a time": (adapter_publish, pynsq_publish),
    f"publish_many of {BATCH}, 4 at a time": (adapter_publish_many, pynsq_publish_many),
    f"consume, {IN_FLIGHT} in flight": (adapter_consume, pynsq_consume),
}


def measure(broker: BrokerProcess, call: Measure, topic: str, count: int) -> float:
    return asyncio.run(call(broker, topic, count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=["nsqd", "devbroker"], default="nsqd")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    logging.getLogger("nsq").setLevel(
        logging.CRITICAL
    )  # its Writer and Reader log their own closing as errors
    kind = {"nsqd": NsqdProcess, "devbroker": DevbrokerProcess}[arguments.broker]
    with tempfile.TemporaryDirectory() as folder:
        broker = kind(Path(folder))
        try:
            broker.start()
            for name, (ours, theirs) in PAIRS.items():
                rates: list[tuple[float, float]] = []
                for index in range(arguments.rounds):
                    topic = f"t{abs(hash(name)) % 1000}.{index}"
                    rates.append(
                        (
                            measure(broker, ours, topic + ".a", arguments.messages),
                            measure(broker, theirs, topic + ".p", arguments.messages),
                        )
                    )
                mine, other = (statistics.median(column) for column in zip(*rates, strict=True))
                print(f"{name}: adapter {mine:,.0f}/s, pynsq {other:,.0f}/s, ratio {mine / other:.2f}")
        finally:
            broker.stop()


if __name__ == "__main__":
    end_cleanly()
    main()
