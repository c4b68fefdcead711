"""CollectionService over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from collection_writer.app import build
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.ids import uuid7
from sluicegate.collection.v1 import collection_pb2 as wire
from sluicegate.collection.v1 import collection_pb2_grpc
from tests.support.cli import Ended, command
from tests.support.collection import instants, writer_settings
from tests.support.running import running


@pytest.fixture
async def address(database: str) -> AsyncIterator[str]:
    async with running(build(writer_settings(database))) as address:
        yield address


@pytest.fixture
async def stub(address: str) -> AsyncIterator[Any]:
    channel = Channel(address, name="collection_writer")
    yield collection_pb2_grpc.CollectionServiceStub(channel.raw)
    await channel.stop()


def wire_record(at: datetime | None = None, **fields: Any) -> wire.Record:
    at = at or datetime.now(UTC)
    values = {
        "observation_id": str(uuid7(at)),
        "observed_at": at,
        "card_id": "card-1",
        "account_id": "acme",
        "kind": "network",
        "outcome": "success",
        "reading_json": '{"status": "online"}',
        "latency_ms": 3,
    }
    return wire.Record(**(values | fields))


async def reason_of(call: Any) -> Reason:
    with pytest.raises(ServiceError) as caught:
        await call
    return caught.value.reason


async def test_writing_is_idempotent_and_partial(stub: Any) -> None:
    good = wire_record()
    failed = wire_record(outcome="failed", reading_json="", error="timeout")
    wrong_time = wire_record(observation_id=str(uuid7(datetime(2026, 1, 1, tzinfo=UTC))))
    too_far = wire_record(datetime.now(UTC) + timedelta(days=300))
    request = wire.WriteRecordsRequest(records=[good, failed, wrong_time, too_far])
    first = await stub.WriteRecords(request)
    assert (first.stored_count, first.duplicate_count) == (2, 0)
    assert {item.observation_id for item in first.refused} == {
        wrong_time.observation_id,
        too_far.observation_id,
    }
    assert all(item.message for item in first.refused)
    second = await stub.WriteRecords(request)
    assert (second.stored_count, second.duplicate_count, len(second.refused)) == (0, 2, 2)


async def test_a_record_comes_back_as_it_was_written(stub: Any) -> None:
    at = datetime(2026, 11, 30, 10, 11, 12, 123_456, tzinfo=UTC)
    written = wire_record(at, raw="ünï", traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
    await stub.WriteRecords(wire.WriteRecordsRequest(records=[written]))
    answer = await stub.GetRecord(wire.GetRecordRequest(observation_id=written.observation_id))
    assert answer.record.HasField("stored_at")
    answer.record.ClearField("stored_at")
    assert answer.record == written


async def test_an_unknown_observation_is_not_found_and_a_bad_id_is_refused(stub: Any) -> None:
    unknown = wire.GetRecordRequest(observation_id=str(uuid7(datetime.now(UTC))))
    assert await reason_of(stub.GetRecord(unknown)) is Reason.NOT_FOUND
    wrong = wire.GetRecordRequest(observation_id=str(uuid4()))
    assert await reason_of(stub.GetRecord(wrong)) is Reason.INVALID_FIELD


async def test_records_are_paged_newest_first(stub: Any) -> None:
    records = [wire_record(at, card_id=f"card-{index % 2}") for index, at in enumerate(instants(9))]
    await stub.WriteRecords(wire.WriteRecordsRequest(records=records))
    seen: list[str] = []
    token = ""
    while True:
        page = await stub.ListRecords(
            wire.ListRecordsRequest(card_id="card-0", page_size=2, page_token=token)
        )
        seen += [item.observation_id for item in page.records]
        token = page.next_page_token
        if not token:
            break
    assert seen == [item.observation_id for item in records[::2]][::-1]


async def test_bad_requests_are_refused(stub: Any) -> None:
    now = datetime.now(UTC)
    backwards = wire.CountRecordsRequest(until=now - timedelta(days=1), **{"from": now})
    assert await reason_of(stub.CountRecords(backwards)) is Reason.INVALID_FIELD
    token = wire.ListRecordsRequest(page_token="nonsense")
    assert await reason_of(stub.ListRecords(token)) is Reason.INVALID_FIELD
    assert await reason_of(stub.WriteRecords(wire.WriteRecordsRequest())) is Reason.INVALID_FIELD


async def test_counts_by_outcome(stub: Any) -> None:
    records = [
        wire_record(),
        wire_record(outcome="empty", reading_json=""),
        wire_record(outcome="failed", reading_json="", error="timeout"),
    ]
    await stub.WriteRecords(wire.WriteRecordsRequest(records=records))
    answer = await stub.CountRecords(wire.CountRecordsRequest())
    assert dict(answer.counts) == {"success": 1, "empty": 1, "failed": 1}


async def test_the_quarantine_is_listed_and_replayed_after_its_cause_is_fixed(
    stub: Any, address: str, database: str
) -> None:
    """A bad batch is paged through; what is fixed is stored once, what is not stays, and no id is passed over."""
    poison = wire_record(card_id="poison")
    wrong_time = wire_record(observation_id=str(uuid7(datetime(2026, 1, 1, tzinfo=UTC))))
    connection = await asyncpg.connect(database)
    await connection.execute(
        "ALTER TABLE collection_record ADD CONSTRAINT poison CHECK (card_id <> 'poison')"
    )
    for _ in range(3):  # the same bytes three times are one row that says so
        await stub.WriteRecords(wire.WriteRecordsRequest(records=[poison, wire_record()]))
    await stub.WriteRecords(wire.WriteRecordsRequest(records=[wrong_time]))
    first = await stub.ListQuarantine(wire.ListQuarantineRequest(page_size=1))
    rest = await stub.ListQuarantine(wire.ListQuarantineRequest(page_token=first.next_page_token))
    unreadable, [refused] = first.items[0], rest.items
    assert (
        refused.observation_id,
        refused.card_id,
        refused.sqlstate,
        refused.seen_count,
        refused.source,
    ) == (
        poison.observation_id,
        "poison",
        "23514",
        3,
        "rpc",
    )
    ids = [unreadable.quarantine_id, refused.quarantine_id]
    still = await stub.Replay(wire.ReplayRequest(quarantine_ids=ids, actor="someone"))
    assert sorted(still.remaining_ids) == sorted(ids)
    await connection.execute("ALTER TABLE collection_record DROP CONSTRAINT poison")
    unknown = wire.ReplayRequest(quarantine_ids=[*ids, 999], actor="someone")
    assert await reason_of(stub.Replay(unknown)) is Reason.NOT_FOUND
    assert await connection.fetchval("SELECT count(*) FROM collection_record WHERE card_id = 'poison'") == 0
    answer = await stub.Replay(wire.ReplayRequest(quarantine_ids=ids, actor="someone"))
    assert list(answer.remaining_ids) == [unreadable.quarantine_id]
    assert [item.outcome for item in answer.results] == ["stored", "quarantined"]
    again = await stub.Replay(wire.ReplayRequest(quarantine_ids=[refused.quarantine_id], actor="other"))
    assert [item.outcome for item in again.results] == ["stored"]
    assert await connection.fetchval("SELECT count(*) FROM collection_record WHERE card_id = 'poison'") == 1
    rows = await connection.fetch(
        "SELECT replayed_by FROM collection_quarantine WHERE replayed_at IS NOT NULL"
    )
    assert [row["replayed_by"] for row in rows] == ["someone"]
    await connection.close()
    bad_token = wire.ListQuarantineRequest(page_token="x")
    assert await reason_of(stub.ListQuarantine(bad_token)) is Reason.INVALID_FIELD


async def test_the_command_line_replays_collection_rows_and_names_ids_that_do_not_exist(
    stub: Any, address: str, database: str
) -> None:
    too_far = wire_record(datetime.now(UTC) + timedelta(days=300))
    await stub.WriteRecords(wire.WriteRecordsRequest(records=[too_far]))
    [item] = (await stub.ListQuarantine(wire.ListQuarantineRequest())).items

    async def replay(*ids: str) -> Ended:
        variables = {"SLUICEGATE_COLLECTION_WRITER": address}
        return await asyncio.to_thread(command, "quarantine", "replay", *ids, variables=variables)

    (await replay("collection:999")).assert_clear(1, "not in the quarantine: 999")
    (await replay("weather:1")).assert_clear(2, "collection:N")
    (await replay(f"collection:{item.quarantine_id}")).assert_clear(4, "still in quarantine")
    connection = await asyncpg.connect(database)
    await connection.execute("SELECT collection_create_partition($1::date)", too_far.observed_at.ToDatetime())
    await connection.close()
    (await replay(f"collection:{item.quarantine_id}")).assert_clear(0, "stored", too_far.observation_id)
