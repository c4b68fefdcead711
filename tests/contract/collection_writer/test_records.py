"""Every statement of collection_writer on the real PostgreSQL."""

import asyncio
import dataclasses
import math
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from collection_writer.domain import BatchWriter, Window
from collection_writer.loops.partitions import PartitionKeeper
from collection_writer.settings import PartitionSettings
from collection_writer.store.postgres import PostgresRecordStore, QuarantinedRecord, RecordFilter
from servicekit.clock import ManualClock
from servicekit.postgres import Postgres, load_sql
from servicekit.settings import PostgresSettings
from servicekit.values import SecretUrl
from tests.support.collection import instants, record

FAR = datetime(9999, 1, 1, tzinfo=UTC)
LAST = (FAR, UUID(int=(1 << 128) - 1))
BAD_FIELDS: list[dict[str, Any]] = [
    {"kind": "weather"},
    {"reading": '{"a": "\\u0000"}'},
    {"raw": "a\x00b"},
    {"raw": "\ud800"},
    {"latency_ms": 2**70},
]

COUNT_AT_THE_DATABASE = """
CREATE SEQUENCE statements;  -- keeps its value when the statement that raised it fails
CREATE FUNCTION count_statement() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM nextval('statements'); RETURN NULL; END $$;
CREATE TRIGGER count_statement BEFORE INSERT ON collection_record
    FOR EACH STATEMENT EXECUTE FUNCTION count_statement();
"""


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[Postgres]:
    pool = Postgres(PostgresSettings(dsn=SecretUrl(database)), "test")
    await pool.start()
    yield pool
    await pool.stop()


@pytest.fixture
def store(postgres: Postgres) -> PostgresRecordStore:
    return PostgresRecordStore(postgres)


@pytest.fixture
def writer(store: PostgresRecordStore) -> BatchWriter:
    return BatchWriter(store, Window(oldest=timedelta(days=400), newest=timedelta(days=3)))


@pytest.mark.parametrize("bad_count", [1, 2, 3, 4, 5])
async def test_bad_rows_in_200_are_refused_with_sqlstate_in_the_same_flush(
    store: PostgresRecordStore, writer: BatchWriter, postgres: Postgres, bad_count: int
) -> None:
    await postgres.pool.execute(COUNT_AT_THE_DATABASE)
    records = [record(at) for at in instants(200)]
    for index in range(bad_count):
        records[index * 41] = dataclasses.replace(records[index * 41], **BAD_FIELDS[index])
    result = await writer.write(records, datetime.now(UTC))
    assert result.stored_count == 200 - bad_count
    assert sorted(item.sqlstate for item in result.refused) == sorted(
        ["23514", "22P05", "22021", "22000", "22000"][:bad_count]
    )
    most = 2 * bad_count * math.ceil(math.log2(200)) + 1
    assert store.insert_count <= most
    # What the driver can't even encode (the last two kinds) never gets there, so it sees fewer.
    assert 1 < await postgres.pool.fetchval("SELECT last_value FROM statements") <= store.insert_count


async def test_duplicates_inside_and_across_batches_are_one_row(writer: BatchWriter) -> None:
    one = record()
    now = datetime.now(UTC)
    first = await writer.write([one, one], now)
    second = await writer.write([one], now)
    assert (first.stored_count, first.duplicate_count, second.stored_count) == (1, 1, 0)


async def test_two_writers_create_one_month_once(store: PostgresRecordStore, postgres: Postgres) -> None:
    month = date(2031, 5, 1)
    made = await asyncio.gather(*(store.create_partition(month) for _ in range(8)))
    assert sorted(made) == [False] * 7 + [True]
    assert month in await store.partition_months()


async def test_late_and_early_rows_get_their_month_and_year_9999_is_refused(writer: BatchWriter) -> None:
    now = datetime.now(UTC)
    rows = [record(now - timedelta(days=40)), record(now + timedelta(days=2)), record(FAR), record(now)]
    result = await writer.write(rows, now)
    assert result.stored_count == 3
    assert [item.record.observed_at for item in result.refused] == [FAR]


async def test_creating_a_month_does_not_wait_for_an_open_insert(
    store: PostgresRecordStore, writer: BatchWriter, postgres: Postgres
) -> None:
    await writer.write([record()], datetime.now(UTC))
    async with postgres.transaction() as connection:
        await connection.execute("INSERT INTO collection_record SELECT * FROM collection_record WHERE false")
        assert await asyncio.wait_for(store.create_partition(date(2032, 1, 1)), 5)


async def test_retention_drops_old_months_and_finishes_an_interrupted_drop(
    store: PostgresRecordStore, writer: BatchWriter, postgres: Postgres
) -> None:
    clock = ManualClock(datetime(2026, 11, 30, tzinfo=UTC))
    for month in (date(2026, 3, 1), date(2026, 4, 1), date(2026, 10, 1)):
        await store.create_partition(month)
    await postgres.pool.execute("ALTER TABLE collection_record DETACH PARTITION collection_record_2026_03")
    keeper = PartitionKeeper(store, writer, PartitionSettings(retention_months=3, ahead_months=1), clock)
    await keeper.run_once()
    assert await store.partition_months() == {date(2026, 10, 1), date(2026, 11, 1), date(2026, 12, 1)}
    assert await store.detached() == []
    assert await postgres.pool.fetchval("SELECT to_regclass('collection_record_2026_03') IS NULL")


async def test_there_is_no_default_partition(postgres: Postgres) -> None:
    assert await postgres.pool.fetchval(
        "SELECT count(*) = 0 FROM pg_partitioned_table"
        " WHERE partrelid = 'collection_record'::regclass AND partdefid <> 0"
    )


async def test_pages_go_newest_first_without_gaps_or_repeats(
    store: PostgresRecordStore, writer: BatchWriter
) -> None:
    now = datetime.now(UTC)
    times = [*instants(7, now - timedelta(days=45)), *instants(8, now)]
    mine = [record(at, card_id="mine", account_id=f"a{index % 2}") for index, at in enumerate(times)]
    await writer.write([*mine, *(record(at, card_id="other") for at in instants(5))], now)
    for wanted, expected in (
        (("mine", ""), mine),
        (("mine", "a1"), mine[1::2]),
        (("", "a0"), mine[0::2]),
    ):
        seen = []
        after = LAST
        select = RecordFilter(
            card_id=wanted[0], account_id=wanted[1], start=now - timedelta(days=90), end=FAR
        )
        while page := await store.page(select, after=after, limit=4):
            seen += page
            after = page[-1].key
        assert [item.key for item in seen] == sorted((item.key for item in expected), reverse=True)


async def test_a_record_is_found_in_the_partition_that_its_id_names(
    store: PostgresRecordStore, writer: BatchWriter, postgres: Postgres
) -> None:
    now = datetime.now(UTC)
    for days in (1, 40, 70):
        await writer.write([record(now - timedelta(days=days))], now)
    wanted = record(now)
    await writer.write([wanted], now)
    start = now.replace(microsecond=now.microsecond // 1000 * 1000)
    found = await store.get(wanted.observation_id, start, start + timedelta(milliseconds=1))
    assert found is not None
    assert found.key == wanted.key
    plan = await postgres.pool.fetch(
        "EXPLAIN "
        + load_sql("collection_writer", "get_record")
        .replace("$1", f"'{wanted.observation_id}'")
        .replace("$2", f"'{start.isoformat()}'")
        .replace("$3", f"'{(start + timedelta(milliseconds=1)).isoformat()}'")
    )
    text = "\n".join(row[0] for row in plan)
    assert text.count("collection_record_2") == text.count(f"collection_record_{now:%Y_%m}")
    assert "Seq Scan" not in text


async def test_the_quarantine_keeps_one_row_per_body(store: PostgresRecordStore, postgres: Postgres) -> None:
    row = QuarantinedRecord(
        source="message",
        observation_id=None,
        card_id=None,
        reason="is not JSON",
        sqlstate=None,
        body=b"\x00{",
    )
    await store.quarantine([row, row])
    await store.quarantine([dataclasses.replace(row, reason="still not JSON", sqlstate="22P02")])
    [kept] = await postgres.pool.fetch("SELECT * FROM collection_quarantine")
    assert (kept["body"], kept["seen_count"], kept["sqlstate"]) == (b"\x00{", 2, "22P02")


async def test_the_report_role_reads_the_view_and_nothing_else(
    writer: BatchWriter, postgres: Postgres
) -> None:
    await writer.write([record()], datetime.now(UTC))
    async with postgres.pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL ROLE sluicegate_report")
        assert await connection.fetchval("SELECT count(*) FROM report.collection_record_v1") == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetchval("SELECT count(*) FROM collection_record")


async def test_counts_and_probe(store: PostgresRecordStore, writer: BatchWriter) -> None:
    now = datetime.now(UTC)
    await writer.write([record(), record(outcome="failed", reading=None, error="timeout")], now)
    assert await store.count(now - timedelta(days=1), now + timedelta(days=1)) == {"success": 1, "failed": 1}
    assert await store.probe()
