"""collection_writer with a real PostgreSQL and both brokers: nothing lost, nothing twice, whatever breaks."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from collection_writer.app import build
from collection_writer.consumer import CollectionConsumer
from collection_writer.settings import Settings
from devengines.migrate import migrate
from devengines.nsqd import DevbrokerProcess, NsqdProcess
from devengines.postgres import PostgresProcess
from servicekit import telemetry
from servicekit.clock import SystemClock
from servicekit.nsq import NsqAdmin, Publisher
from servicekit.settings import NsqSettings, TelemetrySettings
from sluicegate_client.messages import CARD_COLLECTION
from tests.support.collection import instants, message, writer_settings
from tests.support.running import running
from tests.support.waiting import eventually

CHANNEL = "collection_writer"


@pytest.fixture
async def nsq(broker_server: NsqdProcess | DevbrokerProcess) -> NsqSettings:
    settings = NsqSettings(nsqd_tcp=broker_server.tcp_address, nsqd_http=broker_server.http_address)
    admin = NsqAdmin(settings)
    if CARD_COLLECTION in await admin.stats():
        await admin.delete_topic(CARD_COLLECTION)
    await admin.create(CARD_COLLECTION, CHANNEL)
    return settings


@pytest.fixture
async def publisher(nsq: NsqSettings) -> AsyncIterator[Publisher]:
    one = Publisher(nsq, SystemClock())
    await one.start()
    await eventually(lambda: one.ready)
    yield one
    await one.drain()
    await one.stop()


def settings_for(database: str, nsq: NsqSettings, **variables: str) -> Settings:
    return writer_settings(database, (nsq.nsqd_tcp, nsq.nsqd_http), **variables)


async def rows(database: str) -> int:
    connection = await asyncpg.connect(database)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM collection_record"))
    finally:
        await connection.close()


async def is_empty(nsq: NsqSettings) -> bool:
    return await NsqAdmin(nsq).backlog(CARD_COLLECTION, CHANNEL) == 0


async def test_messages_become_rows_once_and_are_finished(
    database: str, nsq: NsqSettings, publisher: Publisher
) -> None:
    bodies = [message(at).encode() for at in instants(450)]
    async with running(build(settings_for(database, nsq, batch__max_age="100ms"))):
        await publisher.publish_many(CARD_COLLECTION, bodies + bodies[:100])
        await eventually(lambda: is_empty(nsq), within=20)
    assert await rows(database) == 450


async def test_bad_messages_go_to_quarantine_and_the_others_are_stored(
    database: str, nsq: NsqSettings, publisher: Publisher
) -> None:
    newer = json.dumps({"schema_version": "2.0", "shape": "unknown"}).encode()
    far = message(instants(1)[0].replace(year=9999)).encode()
    async with running(build(settings_for(database, nsq, batch__max_age="100ms"))):
        good = [message(at).encode() for at in instants(50)]
        await publisher.publish_many(CARD_COLLECTION, [b"no JSON", newer, far, *good])
        await eventually(lambda: is_empty(nsq), within=20)
    assert await rows(database) == 50
    connection = await asyncpg.connect(database)
    kept = await connection.fetch("SELECT body, sqlstate FROM collection_quarantine")
    await connection.close()
    assert {(row["body"], row["sqlstate"]) for row in kept} == {
        (b"no JSON", None),
        (newer, None),
        (far, "23514"),
    }


async def test_stopping_writes_what_is_held(database: str, nsq: NsqSettings, publisher: Publisher) -> None:
    """No flush would be due for a minute; the drain makes it."""
    app = build(settings_for(database, nsq, batch__max_age="1m"))
    consumer = next(part for part in app.components if isinstance(part, CollectionConsumer))
    async with running(app):
        await publisher.publish_many(CARD_COLLECTION, [message(at).encode() for at in instants(30)])
        await eventually(lambda: consumer.in_flight == 30)
        assert await rows(database) == 0
    assert await rows(database) == 30
    assert await is_empty(nsq)


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[PostgresProcess]:
    server = PostgresProcess(tmp_path / "postgres", fast=True)
    server.start()
    migrate(server.dsn)
    yield server
    server.stop()


async def test_a_database_that_stops_and_comes_back_loses_nothing(
    own_postgres: PostgresProcess, nsq: NsqSettings, publisher: Publisher
) -> None:
    database = own_postgres.dsn
    bodies = [message(at).encode() for at in instants(900)]
    async with running(build(settings_for(database, nsq, batch__max_age="50ms"))):
        await publisher.publish_many(CARD_COLLECTION, bodies[:300])
        await eventually(lambda: is_empty(nsq), within=20)
        await asyncio.to_thread(own_postgres.stop)
        await publisher.publish_many(CARD_COLLECTION, bodies[300:])

        async def some_in_hand() -> bool:
            return (await NsqAdmin(nsq).stats())[CARD_COLLECTION].channels[CHANNEL].in_flight > 0

        await eventually(some_in_hand)
        await asyncio.to_thread(own_postgres.start)
        await eventually(lambda: is_empty(nsq), within=60)
        channel = (await NsqAdmin(nsq).stats())[CARD_COLLECTION].channels[CHANNEL]
        assert (channel.requeue_count, channel.deferred) == (0, 0)
    assert await rows(database) == 900


async def test_stopping_while_the_database_is_away_hands_back(
    own_postgres: PostgresProcess, nsq: NsqSettings, publisher: Publisher
) -> None:
    async with running(build(settings_for(own_postgres.dsn, nsq, batch__max_age="50ms"))):
        await asyncio.to_thread(own_postgres.stop)
        await publisher.publish_many(CARD_COLLECTION, [message(at).encode() for at in instants(20)])

        async def some_in_hand() -> bool:
            return (await NsqAdmin(nsq).stats())[CARD_COLLECTION].channels[CHANNEL].in_flight > 0

        await eventually(some_in_hand)
    channel = (await NsqAdmin(nsq).stats())[CARD_COLLECTION].channels[CHANNEL]
    assert (channel.in_flight, channel.backlog) == (0, 20)
    await asyncio.to_thread(own_postgres.start)
    async with running(build(settings_for(own_postgres.dsn, nsq, batch__max_age="50ms"))):
        await eventually(lambda: is_empty(nsq), within=20)
    assert await rows(own_postgres.dsn) == 20


async def test_each_record_has_a_span_under_its_poll_and_the_batch_links_to_it(
    database: str, nsq: NsqSettings, publisher: Publisher
) -> None:
    spans = InMemorySpanExporter()
    telemetry.setup("test", TelemetrySettings(), exporter=spans)
    try:
        polled = message(traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
        async with running(build(settings_for(database, nsq, batch__max_age="50ms"))):
            await publisher.publish(CARD_COLLECTION, polled.encode())
            await eventually(lambda: is_empty(nsq))
        telemetry.flush()
    finally:
        telemetry.shutdown()
    [collect] = [span for span in spans.get_finished_spans() if span.name == "collect"]
    assert collect.parent is not None
    assert (f"{collect.parent.trace_id:032x}", f"{collect.parent.span_id:016x}") == ("a" * 32, "b" * 16)
    assert collect.attributes is not None
    assert collect.attributes["sluicegate.observation_id"] == str(polled.observation_id)
    assert collect.attributes["sluicegate.card_id"] == polled.card_id
    [flush] = [span for span in spans.get_finished_spans() if span.name == "collection flush"]
    assert [f"{link.context.span_id:016x}" for link in flush.links] == ["b" * 16]
