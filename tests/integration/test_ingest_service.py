"""ingest_service as a process, with real engines: nothing is lost and nothing counts twice, whatever breaks."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from devengines.migrate import migrate
from devengines.nsqd import BrokerProcess
from devengines.postgres import PostgresProcess
from devengines.valkey import ValkeyProcess
from servicekit.clock import SystemClock
from servicekit.ids import uuid7
from servicekit.nsq import Publisher
from servicekit.span_store import SpanStore
from sluicegate.ingest.v1 import ingest_pb2
from sluicegate_client.messages import CARD_INGEST, ObservationMessage
from tests.support.broker import addresses, make_broker
from tests.support.ingest import account, card, opened, save_fleet
from tests.support.ingest_process import (
    FakePeers,
    IngestProcess,
    Topics,
    calling,
    fake_peers,
    listening,
    variables,
)
from tests.support.waiting import eventually

CARDS = 20


@dataclass
class Bench:
    """Everything that one test plays with."""

    process: IngestProcess
    address: str
    topics: Topics
    peers: FakePeers
    publisher: Publisher
    broker: BrokerProcess
    valkey: ValkeyProcess
    dsn: str

    async def value(self, statement: str) -> Any:
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()


@pytest.fixture(params=["devbroker", "nsqd"])
async def bench(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> AsyncIterator[Bench]:
    # nsqd gives a dead client's messages to another only after the timeout, so it is short here.
    broker = make_broker(request.param, tmp_path / "broker", msg_timeout=4)
    broker.start()
    valkey = ValkeyProcess(tmp_path / "valkey")
    valkey.start()
    async with opened(database) as postgres:
        await save_fleet(postgres, [account()], [card(f"c{index}") for index in range(CARDS)])
    publisher = Publisher(addresses(broker), SystemClock())
    async with fake_peers() as (peers, peer_address), listening(broker) as topics:
        process = IngestProcess(
            variables(
                dsn=database,
                redis_url=valkey.url,
                broker=broker,
                peers=peer_address,
                SLUICEGATE_SPAN_STORE=str(tmp_path / "spans.db"),
            ),
            tmp_path,
        )
        await publisher.start()
        try:
            address = await process.start()
            yield Bench(process, address, topics, peers, publisher, broker, valkey, database)
        finally:
            process.kill()
            await publisher.stop()
            valkey.proceed()
            valkey.stop()
            broker.proceed()
            broker.stop()


def messages(count: int, *, start: datetime | None = None, **changes: Any) -> list[ObservationMessage]:
    """Make delta records of one byte each, spread over the cards."""
    start = start or datetime.now(UTC) - timedelta(minutes=30)
    made = []
    for index in range(count):
        at = start + timedelta(milliseconds=index)
        fields: dict[str, Any] = {
            "observation_id": uuid7(at),
            "card_id": f"c{index % CARDS}",
            "account_id": "acme",
            "kind": "traffic",
            "observed_at": at,
            "published_at": at,
            "reading": {"delta_bytes": 1},
            "traceparent": f"00-{uuid7(at).hex}-00000000000000aa-01",
        }
        made.append(ObservationMessage(**{**fields, **changes}))
    return made


async def publish(bench: Bench, batch: list[ObservationMessage]) -> None:
    await bench.publisher.publish_many(CARD_INGEST, [message.encode() for message in batch])


async def all_collected(bench: Bench, batch: list[ObservationMessage], *, within: float = 30) -> None:
    wanted = {str(message.observation_id) for message in batch}
    await eventually(lambda: wanted <= set(bench.topics.collection), within=within)


async def test_what_is_published_is_applied_collected_told_and_cached(bench: Bench) -> None:
    batch = messages(100)
    status = messages(1, kind="network", reading={"status": "online"})
    await publish(bench, batch + status)
    await all_collected(bench, batch + status)
    assert await bench.value("SELECT sum(settled) FROM usage_cycle") == 100
    await eventually(lambda: len(bench.topics.events) == 1)
    event = next(iter(bench.topics.events.values()))
    assert (event.type, event.card_id, event.data) == ("network.changed", "c0", {"from": "", "to": "online"})
    async with calling(bench.address) as stub:
        answer = await stub.Explain(_explain(status[0]))
    assert answer.verdict.startswith("Applied")
    assert list(answer.events) == ["network.changed"]
    assert bench.process.stop() == 0
    assert bench.process.events("error") == []


async def test_one_trace_leads_from_the_message_to_the_collection_record(
    bench: Bench, tmp_path: Path
) -> None:
    batch = messages(5)
    await publish(bench, batch)
    await all_collected(bench, batch)
    bench.process.stop()
    store = SpanStore(tmp_path / "spans.db")
    for message in batch:
        spans = store.spans_by_attribute("sluicegate.observation_id", str(message.observation_id))
        apply = next(span for span in spans if span.name == "apply")
        assert apply.trace_id == message.traceparent.split("-")[1]
        assert apply.parent_span_id == "00000000000000aa"
        record = bench.topics.messages[str(message.observation_id)]
        assert record.traceparent == f"00-{apply.trace_id}-{apply.span_id}-01"
    store.close()


async def test_killed_between_commit_and_fin_is_redelivered_and_counts_once(bench: Bench) -> None:
    """After the commit neither nsqd nor collection_writer answers, so no FIN is sent; there the process is killed."""
    batch = messages(20)
    async with opened(bench.dsn) as postgres, postgres.transaction() as holder:
        await holder.execute("SELECT 1 FROM card FOR UPDATE")
        await publish(bench, batch)
        await eventually(lambda: _waits_for_a_lock(bench))
        bench.peers.collection_away = True
        bench.broker.suspend()
    await eventually(lambda: bench.value("SELECT count(*) FROM ingest_inbox"))
    bench.process.kill()
    bench.broker.proceed()
    assert await bench.value("SELECT count(*) FROM ingest_inbox") > 0
    await bench.process.start()
    await all_collected(bench, batch)
    assert await bench.value("SELECT sum(settled) FROM usage_cycle") == 20
    assert await bench.value("SELECT sum(applied_count) FROM card") == 20
    assert await bench.value("SELECT count(*) FROM ingest_inbox") == 20


async def test_redis_flushed_between_commit_and_mark_applies_nothing_again(bench: Bench) -> None:
    batch = messages(10)
    await publish(bench, batch)
    await all_collected(bench, batch)
    bench.valkey.kill()
    bench.valkey.start()
    bench.topics.collection.clear()
    await publish(bench, batch)
    await all_collected(bench, batch)
    assert await bench.value("SELECT sum(settled) FROM usage_cycle") == 10


async def test_nsqd_away_records_go_to_collection_writer(bench: Bench) -> None:
    batch = messages(3)
    async with calling(bench.address) as stub:
        bench.broker.kill()
        answer = await stub.ApplyObservations(_apply(batch), timeout=20)
    assert [result.increment_bytes for result in answer.results] == [1, 1, 1]
    assert set(bench.peers.records) == {str(message.observation_id) for message in batch}


async def test_both_ways_of_a_record_away_the_call_fails_and_the_repeat_delivers(bench: Bench) -> None:
    batch = messages(1)
    bench.peers.collection_away = True
    async with calling(bench.address) as stub:
        bench.broker.kill()
        with pytest.raises(Exception, match="away"):
            await stub.ApplyObservations(_apply(batch), timeout=20)
        bench.peers.collection_away = False

        async def repeated() -> Any:
            try:
                return await stub.ApplyObservations(_apply(batch), timeout=5)
            except Exception:  # noqa: BLE001 - the breaker may still be open
                return None

        answer = await eventually(repeated, within=30)
    assert answer.results[0].outcome == 2  # DUPLICATE
    assert set(bench.peers.records) == {str(batch[0].observation_id)}
    assert await bench.value("SELECT sum(settled) FROM usage_cycle") == 1


async def test_garbage_is_quarantined_and_stops_nothing(bench: Bench) -> None:
    good = messages(5)
    bodies = [b"\xff\x00", b"{}", b'{"schema_version":"2.0","x":1}', *[message.encode() for message in good]]
    await bench.publisher.publish_many(CARD_INGEST, bodies)
    await all_collected(bench, good)
    await eventually(lambda: _is(bench, "SELECT count(*) FROM ingest_quarantine", 2))
    assert await bench.value("SELECT parked_major FROM ingest_retry") == 2


async def test_unknown_card_is_finished_with_a_warning_and_its_record_is_kept(bench: Bench) -> None:
    batch = messages(1, card_id="nobody")
    await publish(bench, batch)
    await all_collected(bench, batch)
    await eventually(lambda: bench.process.events("warning") == ["observation not applied"])
    assert await bench.value("SELECT count(*) FROM ingest_inbox") == 0


async def test_redelivery_of_a_half_finished_backlog_after_kills(bench: Bench) -> None:
    """Killed again and again in the middle of the work: in the end everything counts once."""
    batch = messages(600)
    await publish(bench, batch)
    for _ in range(3):
        before = await bench.value("SELECT count(*) FROM ingest_inbox")
        await eventually(lambda seen=before: _more(bench, seen, len(batch)), within=20)
        bench.process.kill()
        await bench.process.start()
    await all_collected(bench, batch, within=60)
    assert await bench.value("SELECT sum(settled) FROM usage_cycle") == 600
    assert await bench.value("SELECT count(*) FROM ingest_inbox") == 600


async def _waits_for_a_lock(bench: Bench) -> bool:
    return bool(await bench.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def _is(bench: Bench, statement: str, wanted: Any) -> bool:
    return bool(await bench.value(statement) == wanted)


async def _more(bench: Bench, seen: int, everything: int) -> bool:
    count = await bench.value("SELECT count(*) FROM ingest_inbox")
    return bool(count > seen or count == everything)


def _explain(message: ObservationMessage) -> Any:
    return ingest_pb2.ExplainRequest(observation_id=str(message.observation_id))


def _apply(batch: list[ObservationMessage]) -> Any:
    return ingest_pb2.ApplyObservationsRequest(
        observations=[
            ingest_pb2.Observation(
                observation_id=str(message.observation_id),
                card_id=message.card_id,
                observed_at=message.observed_at,
                traffic=ingest_pb2.TrafficReading(delta_bytes=1),
            )
            for message in batch
        ]
    )


async def test_database_stopped_and_back_nothing_is_lost(tmp_path: Path, bench: Bench) -> None:
    """The database goes away in the middle: messages are held, not finished, and everything counts once after."""
    del tmp_path
    batch = messages(400)
    first, second = batch[:200], batch[200:]
    await publish(bench, first)
    await all_collected(bench, first)
    connection = await asyncpg.connect(bench.dsn)
    await connection.execute("ALTER DATABASE " + bench.dsn.rpartition("/")[2] + " CONNECTION LIMIT 0")
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ingest_service'"
    )
    await connection.execute("ALTER DATABASE " + bench.dsn.rpartition("/")[2] + " CONNECTION LIMIT -1")
    await publish(bench, second)
    await all_collected(bench, second)
    await connection.close()
    assert await bench.value("SELECT sum(settled) FROM usage_cycle") == 400


@pytest.fixture
def own_postgres(tmp_path: Path) -> Any:
    server = PostgresProcess(tmp_path / "own_postgres", fast=True)
    server.start()
    yield server
    server.proceed()
    server.stop()


async def test_postgres_killed_under_load_and_back(own_postgres: PostgresProcess, tmp_path: Path) -> None:
    migrate(own_postgres.dsn)
    broker = make_broker("nsqd", tmp_path / "broker", msg_timeout=4)
    broker.start()
    valkey = ValkeyProcess(tmp_path / "valkey")
    valkey.start()
    async with opened(own_postgres.dsn) as postgres:
        await save_fleet(postgres, [account()], [card(f"c{index}") for index in range(CARDS)])
    publisher = Publisher(addresses(broker), SystemClock())
    async with fake_peers() as (peers, peer_address), listening(broker) as topics:
        await publisher.start()
        process = IngestProcess(
            variables(dsn=own_postgres.dsn, redis_url=valkey.url, broker=broker, peers=peer_address), tmp_path
        )
        address = await process.start()
        bench = Bench(process, address, topics, peers, publisher, broker, valkey, own_postgres.dsn)
        try:
            batch = messages(900)
            await publish(bench, batch[:300])
            await eventually(lambda: len(topics.collection) > 20)
            own_postgres.suspend()
            await publish(bench, batch[300:600])
            own_postgres.proceed()
            own_postgres.stop()
            await publish(bench, batch[600:])
            await eventually(lambda: "breaker opened" in process.events("error"), within=20)
            own_postgres.start()
            await all_collected(bench, batch, within=60)
            assert await bench.value("SELECT sum(settled) FROM usage_cycle") == 900
            assert await bench.value("SELECT count(*) FROM ingest_retry") == 0
            assert process.stop() == 0
        finally:
            process.kill()
            await publisher.stop()
            valkey.stop()
            broker.stop()
