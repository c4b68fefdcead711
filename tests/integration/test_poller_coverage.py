"""Coverage: what the real nsqd loses is polled again, and nothing is while it may only be late."""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis

from devengines.nsqd import NsqdProcess, build_nsqd
from poller.store import keys
from servicekit.metrics import Metric, counter
from servicekit.nsq import NsqAdmin
from servicekit.settings import NsqSettings
from sluicegate.poller.v1 import poller_pb2 as wire
from sluicegate_client.messages import CARD_COLLECTION, CARD_INGEST
from tests.integration.test_poller import World, consuming, lease_service_settings, set_mode, world
from tests.support.waiting import eventually

__all__ = ["lease_service_settings", "world"]

INTERVAL = timedelta(hours=1)
CARDS = 8
KINDS = 3


@pytest.fixture
async def nsqd(world: World, tmp_path: Path) -> AsyncIterator[NsqdProcess]:
    binary = build_nsqd()
    if binary is None:
        pytest.skip("missing engine: nsqd is neither on PATH nor can it be built with go")
    server = NsqdProcess(tmp_path / "nsqd", binary=binary)
    await asyncio.to_thread(server.start)
    world.settings["nsq"] = (server.tcp_address, server.http_address)
    world.nsq = NsqSettings(nsqd_tcp=server.tcp_address, nsqd_http=server.http_address)
    await create_topics(world)
    yield server
    await asyncio.to_thread(server.stop)


async def create_topics(world: World) -> None:
    admin = NsqAdmin(world.nsq)
    await admin.create(CARD_INGEST, "ingest_service")
    await admin.create(CARD_COLLECTION, "collection_writer")


def arrived(world: World) -> dict[str, int]:
    """Count the observations of each card that came through the broker or, while it was away, by RPC."""
    found = {str(item.observation_id): item.card_id for item in world.observed}
    found |= {item.observation_id: item.card_id for item in world.ingest.applied.values()}
    return dict(Counter(found.values()))


async def waiting(world: World) -> int:
    return (await NsqAdmin(world.nsq).stats())[CARD_INGEST].channels["ingest_service"].depth


def gaps_counted() -> float:
    return float(counter(Metric.COVERAGE_GAPS).labels(account="harbor")._value.get())


async def half_an_hour_passes(redis: Redis, cards: list[str]) -> None:
    """Make what was handed on older than half an interval."""
    then = datetime.now(UTC) - timedelta(minutes=40)
    await redis.hset(keys.published("harbor"), mapping=dict.fromkeys(cards, int(then.timestamp() * 1000)))


async def test_what_a_killed_nsqd_lost_is_polled_again_but_nothing_while_it_may_be_late(
    world: World, nsqd: NsqdProcess, redis_url: str, tmp_path: Path
) -> None:
    """nsqd is killed and its files are removed; its messages come again, each card once, without waiting an hour."""
    cards = world.add("harbor", CARDS, poll_interval_s=int(INTERVAL.total_seconds()))
    for card in cards:
        world.ingest.cards[card].observed_at.FromDatetime(datetime.now(UTC) - 3 * INTERVAL)
    redis = Redis.from_url(redis_url)
    async with world.poller(sync__repoll_below="5") as stub:
        await set_mode(stub, wire.INGEST_MODE_ASYNC)
        await eventually(lambda: scheduled(redis), within=30)
        await redis.zadd(keys.due("harbor"), dict.fromkeys(cards, 0), xx=True)
        await eventually(lambda: all_wait(world), within=30)
        await eventually(lambda: handed_on(redis), within=30)
        before = gaps_counted()
        await half_an_hour_passes(redis, cards)
        await eventually(
            lambda: gaps_counted() >= before + 3 * CARDS, within=30
        )  # three rounds looked at them
        assert await waiting(world) == CARDS * KINDS  # and polled none: they wait in the queue

        await asyncio.to_thread(nsqd.kill)
        shutil.rmtree(tmp_path / "nsqd")
        await asyncio.to_thread(nsqd.start)
        await create_topics(world)
        async with consuming(world):
            await eventually(lambda: set(arrived(world)) == set(cards), within=30)
            counted = gaps_counted()
            await eventually(lambda: gaps_counted() >= counted + 3 * CARDS, within=30)
    assert arrived(world) == dict.fromkeys(cards, KINDS)  # three rounds later still once
    await redis.aclose()


async def scheduled(redis: Redis) -> bool:
    return bool(await redis.zcard(keys.due("harbor")) == CARDS)


async def handed_on(redis: Redis) -> bool:
    return bool(await redis.hlen(keys.published("harbor")) == CARDS)


async def all_wait(world: World) -> bool:
    return await waiting(world) == CARDS * KINDS
