"""Drive one other task queue the way `benchmarks/tasks.py` drives this one; `enqueue` prints its seconds.

Run inside the peer's own environment: python task_peer.py PEER VARIANT MODE COUNT, with REDIS_URL, POSTGRES_DSN and
MARKS in the environment. Modes: setup, enqueue, trickle (one by one with pauses), work (until it is ended). Every
handler writes when its task was sent and when it started to the file MARKS, and does nothing else. Needs nothing of
this project.
"""

# ruff: noqa: PLC0415 - each environment has the libraries of one peer alone

import asyncio
import os
import random
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

IN_FLIGHT = 16
BATCH = 500
URL, DSN = os.environ.get("REDIS_URL", ""), os.environ.get("POSTGRES_DSN", "")
MARKS = os.open(os.environ.get("MARKS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark(sent: float) -> None:
    os.write(MARKS, struct.pack("dd", sent, time.time()))


@dataclass
class Producer:
    """How a peer takes tasks in: one by one, and many at once where it can."""

    one: Callable[[], Awaitable[Any]]
    many: Callable[[int], Awaitable[Any]] | None = None


async def enqueue(producer: Producer, count: int, *, tuned: bool) -> float:
    began = time.perf_counter()
    if tuned and producer.many is not None:
        for start in range(0, count, BATCH):
            await producer.many(min(BATCH, count - start))
    else:
        left = iter(range(count))

        async def some() -> None:
            for _ in left:
                await producer.one()

        await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
    return time.perf_counter() - began


async def trickle(producer: Producer, count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(random.uniform(0.01, 0.05))
        await producer.one()


async def produce(producer: Producer, mode: str, count: int, *, tuned: bool) -> None:
    if mode == "enqueue":
        print(await enqueue(producer, count, tuned=tuned), flush=True)
    else:
        await trickle(producer, count)


async def procrastinate(mode: str, count: int, *, tuned: bool) -> None:
    import procrastinate as library

    app = library.App(connector=library.PsycopgConnector(conninfo=DSN, max_size=20))

    @app.task(name="noop", queue="bench")
    async def noop(sent: float) -> None:
        mark(sent)

    async with app.open_async():
        if mode == "setup":
            await app.schema_manager.apply_schema_async()
        elif mode == "work":
            more = {"concurrency": 50, "delete_jobs": "always"} if tuned else {}
            await app.run_worker_async(queues=["bench"], **more)
        else:
            await produce(
                Producer(
                    lambda: noop.defer_async(sent=time.time()),
                    lambda size: noop.batch_defer_async(*[{"sent": time.time()} for _ in range(size)]),
                ),
                mode,
                count,
                tuned=tuned,
            )


async def pgqueuer(mode: str, count: int, *, tuned: bool) -> None:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgPoolDriver
    from pgqueuer.queries import Queries

    async with asyncpg.create_pool(DSN, min_size=2, max_size=16) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        if mode == "setup":
            await queries.install()
        elif mode == "work":
            queue = PgQueuer(driver)

            @queue.entrypoint("noop")
            async def noop(job: Any) -> None:
                mark(float(job.payload))

            await (queue.run(batch_size=100) if tuned else queue.run())
        else:
            await produce(
                Producer(
                    lambda: queries.enqueue("noop", repr(time.time()).encode()),
                    lambda size: queries.enqueue(
                        ["noop"] * size, [repr(time.time()).encode()] * size, [0] * size
                    ),
                ),
                mode,
                count,
                tuned=tuned,
            )


@dataclass
class Noop:
    sent: float


async def awa(mode: str, count: int, *, tuned: bool) -> None:
    import awa as library

    client = library.AsyncClient(DSN, 16)
    if mode == "setup":
        await client.migrate()
    elif mode == "work":

        @client.task(Noop, queue="bench")
        async def noop(job: Any) -> None:
            mark(job.args.sent)

        await client.start([("bench", 64 if tuned else 4)])
        await asyncio.Event().wait()
    else:
        await produce(
            Producer(
                lambda: client.insert(Noop(time.time()), queue="bench"),
                lambda size: client.insert_many_copy([Noop(time.time())] * size, queue="bench"),
            ),
            mode,
            count,
            tuned=tuned,
        )


async def taskiq(mode: str, count: int, *, tuned: bool) -> None:
    from taskiq.api import run_receiver_task
    from taskiq_redis import RedisStreamBroker

    broker = RedisStreamBroker(URL, consumer_id="0", xread_count=500 if tuned else 100)

    @broker.task(task_name="noop")
    async def noop(sent: float) -> None:
        mark(sent)

    broker.is_worker_process = mode == "work"
    await broker.startup()
    if mode == "work":
        limits = {"max_async_tasks": 500, "max_prefetch": 500} if tuned else {}
        await run_receiver_task(broker, **limits)
    elif mode != "setup":
        await produce(Producer(lambda: noop.kiq(time.time())), mode, count, tuned=tuned)
    await broker.shutdown()


async def saq(mode: str, count: int, *, tuned: bool) -> None:
    from saq import Queue, Worker

    queue = Queue.from_url(URL)

    async def noop(_: Any, *, sent: float) -> None:
        mark(sent)

    if mode == "work":
        await Worker(queue, functions=[("noop", noop)], concurrency=100 if tuned else 10).start()
    elif mode != "setup":
        await produce(Producer(lambda: queue.enqueue("noop", sent=time.time())), mode, count, tuned=tuned)


async def dramatiq(mode: str, count: int, *, tuned: bool) -> None:
    import dramatiq as library
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=URL)
    library.set_broker(broker)
    actor = library.actor(mark, actor_name="noop", queue_name="bench")
    if mode == "work":
        library.Worker(broker, worker_threads=16 if tuned else 8).start()
        await asyncio.Event().wait()
    elif mode != "setup":

        async def send() -> None:
            actor.send(time.time())

        await produce(Producer(send), mode, count, tuned=tuned)


async def celery(mode: str, count: int, *, tuned: bool) -> None:
    from celery import Celery

    app = Celery("bench", broker=URL, set_as_current=True)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64 if tuned else 4)
    task = app.task(mark, name="noop")
    if mode == "work":
        quick = ["-P", "threads", "-c", "16", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        app.worker_main(["worker", "-l", "ERROR", *(quick if tuned else [])])
    elif mode != "setup":

        async def send() -> None:
            task.delay(time.time())

        await produce(Producer(send), mode, count, tuned=tuned)


PEERS = {
    "procrastinate": procrastinate,
    "pgqueuer": pgqueuer,
    "awa": awa,
    "dramatiq": dramatiq,
    "celery": celery,
    "taskiq": taskiq,
    "saq": saq,
}


def main() -> None:
    name, variant, mode, count = sys.argv[1:]
    asyncio.run(PEERS[name](mode, int(count), tuned=variant == "tuned"))


if __name__ == "__main__":
    main()
