"""Batched apply against one transaction per observation: the same code, rules and engines, in one run.

Run: python benchmarks/ingest.py [--observations 6000] [--in-flight 30 400] [--durable]. Two rates each: database
only, and end to end through the broker (decode, apply, collection record published, Redis written, FIN). Only the
ratios mean something: broker, database, Redis and the service share the machine's cores.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvloop
from peers.interruption import end_cleanly

from devengines.migrate import migrate
from devengines.nsqd import DevbrokerProcess, NsqdProcess, build_nsqd
from devengines.postgres import PostgresProcess
from devengines.valkey import ValkeyProcess
from ingest_service.clients import CollectionClient
from ingest_service.consumer import IngestConsumer, observation_of
from ingest_service.domain.applying import Applier
from ingest_service.domain.deciding import Window
from ingest_service.domain.fleet import Account, Card
from ingest_service.domain.lanes import Answer, Lanes
from ingest_service.domain.observations import Observation
from ingest_service.domain.settling import Settler
from ingest_service.domain.state import Changes
from ingest_service.publisher import Aftermath, batch_scope
from ingest_service.store.postgres_apply import PostgresApplyStore
from ingest_service.store.postgres_fleet import PostgresFleetStore
from ingest_service.store.postgres_parking import ParkingStore
from ingest_service.store.postgres_session import prepare_session
from ingest_service.store.redis import Caches
from servicekit.breaker import Breaker
from servicekit.clock import SystemClock
from servicekit.grpc_client import Channel
from servicekit.ids import uuid7
from servicekit.nsq import NsqAdmin, Publisher
from servicekit.postgres import Postgres
from servicekit.redis import Redis
from servicekit.settings import NsqSettings, PostgresSettings, RedisSettings
from servicekit.values import SecretUrl
from sluicegate_client.messages import CARD_COLLECTION, CARD_INGEST, ObservationMessage

CARDS = 1_000
WORKERS = 30


class Nothing:
    """Follows a commit with nothing."""

    async def run(self, changes: Changes, *, started_at: datetime) -> None:
        del changes, started_at


class PerMessage:
    """Stands where the lanes stand: one transaction per observation, 30 at a time."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier
        self._workers = asyncio.Semaphore(WORKERS)

    async def apply(self, observation: Observation, *, hold: bool) -> Answer:
        del hold
        async with self._workers:
            verdicts = await self._applier.apply([observation])
        return verdicts[observation.observation_id]  # type: ignore[return-value]

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@dataclass
class Bench:
    postgres: Postgres
    redis: Redis
    nsq: NsqSettings
    publisher: Publisher
    clock: SystemClock

    def applier(self, after: Any) -> Applier:
        return Applier(PostgresApplyStore(self.postgres), after, clock=self.clock, window=Window())

    def lanes(self, after: Any) -> Lanes:
        async def probe() -> bool:
            return True

        gate = Breaker(probe, lambda: None, lambda: None)
        return Lanes(self.applier(after), gate, count=2, most_waiting=100_000, scope=batch_scope)


def make_messages(count: int) -> list[ObservationMessage]:
    """Make a poll's worth of messages: traffic, now and then a status, about 2 KB each."""
    start = datetime.now(UTC) - timedelta(hours=2)
    made = []
    for index in range(count):
        at = start + timedelta(milliseconds=index)
        status = index % 10 == 9
        made.append(
            ObservationMessage(
                observation_id=uuid7(at),
                card_id=f"c{index * 7919 % CARDS}",
                account_id="acme",
                kind="network" if status else "traffic",
                observed_at=at,
                published_at=at,
                reading={"status": "online" if index % 20 < 10 else "offline"}
                if status
                else {"total_bytes": 1_000 + index},
                raw='{"usage":"' + "x" * 1500 + '"}',
            )
        )
    return made


async def in_flight(items: Sequence[Any], limit: int, work: Callable[[Any], Awaitable[Any]]) -> float:
    """Keep so many calls running until all items are done; return items per second."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(limit)))
    return len(items) / (time.perf_counter() - begun)


async def database_only(bench: Bench, *, batched: bool, count: int, limit: int) -> float:
    observations = [observation_of(message) for message in make_messages(count)]
    target: Any = bench.lanes(Nothing()) if batched else PerMessage(bench.applier(Nothing()))
    await target.start()
    rate = await in_flight(observations, limit, lambda item: target.apply(item, hold=True))
    await target.stop()
    return rate


async def end_to_end(bench: Bench, *, batched: bool, count: int, limit: int) -> float:
    """Publish a backlog, then start the consumer and wait until the channel is empty."""
    messages = make_messages(count)
    await bench.publisher.publish_many(CARD_INGEST, [message.encode() for message in messages])
    collection = CollectionClient(Channel("127.0.0.1:9", name="collection_writer"))
    caches = Caches(bench.redis)
    after = Aftermath(bench.publisher, collection, caches, bench.clock)
    target: Any = bench.lanes(after) if batched else PerMessage(bench.applier(after))

    async def probe() -> bool:
        return True

    consumer = IngestConsumer(
        bench.nsq,
        concurrency=limit,
        lanes=target,
        settler=Settler(ParkingStore(bench.postgres), bench.clock),
        caches=caches,
        breaker=Breaker(probe, lambda: None, lambda: None),
        clock=bench.clock,
    )
    await target.start()
    wanted = {message.observation_id for message in messages}
    last = max(wanted)
    begun = time.perf_counter()
    await consumer.start()
    while not await applied_all(bench, last, count):  # noqa: ASYNC110 - no signal says so
        await asyncio.sleep(0.02)
    while consumer.in_flight:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - begun
    await consumer.drain()
    await consumer.stop()
    await target.stop()
    return count / seconds


async def applied_all(bench: Bench, last: Any, count: int) -> bool:
    """Look at one key while the run lasts, and count only at its end."""
    if not await bench.postgres.pool.fetchval("SELECT 1 FROM ingest_inbox WHERE observation_id = $1", last):
        return False
    since = datetime.now(UTC) - timedelta(days=1)
    found = await bench.postgres.pool.fetchval(
        "SELECT count(*) FROM ingest_inbox WHERE observed_at > $1", since
    )
    return bool(found >= count)


async def clear(bench: Bench) -> None:
    await bench.postgres.pool.execute(
        "TRUNCATE ingest_inbox, usage_cycle, usage_daily, ingest_outbox, ingest_audit; "
        "UPDATE card SET network_status = '', network_observed_at = NULL, network_observation_id = NULL"
    )
    await bench.postgres.pool.execute("VACUUM card")
    await bench.redis.client.flushdb()


async def prepare(bench: Bench) -> None:
    today = datetime.now(UTC).date()
    for days in range(-1, 2):
        await bench.postgres.pool.execute("SELECT ingest_create_partition($1)", today + timedelta(days=days))
    store = PostgresFleetStore(bench.postgres)
    account = Account(
        account_id="acme",
        name="",
        gateway_kind="generic_http",
        gateway_url="http://127.0.0.1:9",
        credential_name="",
        reset_day=1,
        time_zone="Asia/Shanghai",
        poll_interval_s=60,
        enabled=True,
        poll_limit=1,
        stop_resume_limit=1,
    )
    now = datetime.now(UTC)
    await store.save_accounts([account], actor="bench", now=now)
    cards = [
        Card(card_id=f"c{index}", account_id="acme", msisdn="", lifecycle="active", polling_enabled=True)
        for index in range(CARDS)
    ]
    await store.save_cards(cards, actor="bench", now=now)
    admin = NsqAdmin(bench.nsq)
    await admin.create(CARD_INGEST, "ingest_service")
    await admin.create(CARD_COLLECTION)


async def compare(bench: Bench, name: str, run: Any, options: argparse.Namespace) -> None:
    for limit in options.in_flight:
        rates: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(options.rounds):
            for batched in (False, True):
                await clear(bench)
                count = options.observations if batched else options.observations // 4
                rates[batched].append(await run(bench, batched=batched, count=count, limit=limit))
        batched_rate, single_rate = (statistics.median(rates[batched]) for batched in (True, False))
        print(
            f"{name:14} {limit:4} in flight: batched {batched_rate:8.0f}/s, per message {single_rate:7.0f}/s, "
            f"ratio {batched_rate / single_rate:5.1f}"
        )


async def main(options: argparse.Namespace, folder: Path) -> None:
    binary = build_nsqd()
    broker: Any = (
        NsqdProcess(folder / "nsqd", binary=binary) if binary else DevbrokerProcess(folder / "broker")
    )
    postgres = PostgresProcess(folder / "postgres", fast=not options.durable)
    valkey = ValkeyProcess(folder / "valkey")
    engines = (broker, postgres, valkey)
    try:
        for engine in engines:
            engine.start()
        migrate(postgres.dsn)
        clock = SystemClock()
        nsq = NsqSettings(nsqd_tcp=broker.tcp_address, nsqd_http=broker.http_address)
        bench = Bench(
            Postgres(
                PostgresSettings(dsn=SecretUrl(postgres.dsn), min_size=WORKERS, max_size=WORKERS + 5),
                "bench",
                init=prepare_session,
            ),
            Redis(RedisSettings(url=SecretUrl(valkey.url))),
            nsq,
            Publisher(nsq, clock),
            clock,
        )
        await bench.postgres.start()
        await bench.publisher.start()
        await prepare(bench)
        print(f"broker {broker.name}, fsync {'on' if options.durable else 'off'}, {CARDS} cards, 2 lanes")
        await compare(bench, "database only", database_only, options)
        await compare(bench, "end to end", end_to_end, options)
        await bench.publisher.stop()
        await bench.redis.stop()
        await bench.postgres.stop()
    finally:
        for engine in engines:
            engine.stop()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=6_000)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[30, 400])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--durable", action="store_true", help="fsync on, as in production")
    return parser.parse_args()


if __name__ == "__main__":
    end_cleanly()
    with tempfile.TemporaryDirectory(prefix="slg") as name:
        uvloop.run(main(arguments(), Path(name)))
