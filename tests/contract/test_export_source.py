"""The export's rows come from the report views, in order, from one snapshot, and only from the asked range."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from export_worker.domain.request import ExportRequest
from export_worker.store.postgres import PostgresRecordSource
from servicekit.errors import Reason, ServiceError
from servicekit.ids import uuid7
from servicekit.postgres import Postgres
from servicekit.settings import PostgresSettings
from servicekit.values import SecretUrl

START = datetime(2026, 11, 1, tzinfo=UTC)
REQUEST = ExportRequest("e1", "north", START, START + timedelta(minutes=10))
INSERT = """
INSERT INTO collection_record
    (observation_id, observed_at, card_id, account_id, kind, outcome, reading, raw, error, latency_ms)
VALUES ($1, $2, '8988', $3, 'traffic', 'success', '{"total_bytes": 1}', '{}', NULL, 5)
"""


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[Postgres]:
    component = Postgres(PostgresSettings(dsn=SecretUrl(database)), "test")
    await component.start()
    pool = component.pool
    await pool.execute(
        "INSERT INTO account (account_id, name, gateway_kind, gateway_url, credential_name, reset_day, time_zone, "
        "poll_interval_s, enabled, updated_at) VALUES ('north', '', 'generic_http', 'http://x', '', 1, 'UTC', 60, "
        "true, now())"
    )
    await pool.execute("SELECT collection_create_partition($1)", START.date())
    for minute in range(12):
        at = START + timedelta(minutes=minute)
        await pool.execute(INSERT, uuid7(at), at, "north")
        await pool.execute(INSERT, uuid7(at), at, "south")
    yield component
    await component.stop()


async def test_the_range_is_half_open_ordered_and_of_one_account(postgres: Postgres) -> None:
    source = PostgresRecordSource(postgres)
    batches = [batch async for batch in source.batches(REQUEST, 4)]
    assert [len(batch) for batch in batches] == [4, 4, 2]
    times = [row.observed_at for batch in batches for row in batch]
    assert times == [START + timedelta(minutes=minute) for minute in range(10)]


async def test_rows_that_arrive_meanwhile_are_not_in_the_snapshot(postgres: Postgres) -> None:
    source = PostgresRecordSource(postgres)
    rows = 0
    async for batch in source.batches(REQUEST, 4):
        rows += len(batch)
        at = START + timedelta(minutes=9, seconds=rows)
        await postgres.pool.execute(INSERT, uuid7(at), at, "north")
    assert rows == 10


async def test_an_account_is_known_or_not(postgres: Postgres) -> None:
    source = PostgresRecordSource(postgres)
    assert await source.has_account("north")
    assert not await source.has_account("nowhere")


async def test_a_statement_that_takes_too_long_is_said_to(postgres: Postgres) -> None:
    async with postgres.transaction() as connection:
        await connection.execute("LOCK TABLE account IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ServiceError) as caught:
            await PostgresRecordSource(postgres).has_account("north")
    assert caught.value.reason in {Reason.DEPENDENCY_AWAY, Reason.TIME_IS_UP}
