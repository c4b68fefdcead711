"""The apply's statements on a real PostgreSQL: errors by SQLSTATE, partitions, concurrency and plans."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from ingest_service.domain.applying import Applier, Deferred, FailureKind, Held, StoreError, Verdict
from ingest_service.domain.deciding import Window
from ingest_service.domain.observations import Observation, Outcome, Result
from ingest_service.store.postgres_apply import PostgresApplyStore
from ingest_service.store.postgres_upkeep import PartitionStore
from servicekit.ids import uuid7
from servicekit.postgres import Postgres, load_sql
from tests.support.ingest import (
    NOW,
    FixedClock,
    account,
    card,
    make_partitions,
    observation,
    opened,
    save_fleet,
)

MINUTE = timedelta(minutes=1)


class CountingStore(PostgresApplyStore):
    """Counts transactions and lets a test make the database refuse some rows."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__(postgres)
        self.calls = 0

    async def apply(self, observations: Sequence[Observation], *, now: datetime, window: Window) -> Any:
        self.calls += 1
        return await super().apply(observations, now=now, window=window)


class Nothing:
    async def run(self, changes: Any, *, started_at: datetime) -> None:
        """Follow a commit with nothing."""


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[Postgres]:
    async with opened(database, max_size=10) as opened_postgres:
        await make_partitions(opened_postgres)
        await save_fleet(opened_postgres, [account()], [card(f"c{index}") for index in range(200)])
        yield opened_postgres


def applier(store: PostgresApplyStore, now: datetime = NOW) -> Applier:
    return Applier(store, Nothing(), clock=FixedClock(now), window=Window())


def outcomes(verdicts: dict[Any, Verdict]) -> list[str]:
    return sorted(
        verdict.outcome.value if isinstance(verdict, Result) else type(verdict).__name__
        for verdict in verdicts.values()
    )


async def test_a_batch_is_applied_and_the_same_again_is_duplicate(postgres: Postgres) -> None:
    batch = [observation(NOW, f"c{index}", total_bytes=100) for index in range(200)]
    worker = applier(PostgresApplyStore(postgres))
    assert outcomes(await worker.apply(batch)) == ["applied"] * 200
    assert outcomes(await worker.apply(batch)) == ["duplicate"] * 200
    assert await postgres.pool.fetchval("SELECT sum(increment_bytes) FROM usage_daily") == 20_000


async def test_duplicate_record_does_not_debit_again_even_with_another_microsecond(
    postgres: Postgres,
) -> None:
    first = observation(NOW.replace(microsecond=123_456), delta_bytes=100)
    again = Observation(
        observation_id=first.observation_id,
        card_id="c1",
        account_id="acme",
        kind=first.kind,
        observed_at=NOW.replace(microsecond=123_000),
        delta_bytes=100,
    )
    worker = applier(PostgresApplyStore(postgres))
    await worker.apply([first])
    assert outcomes(await worker.apply([again])) == ["duplicate"]


async def test_same_card_day_many_times_in_one_batch(postgres: Postgres) -> None:
    batch = [observation(NOW + index * MINUTE, total_bytes=index) for index in range(100)]
    assert outcomes(await applier(PostgresApplyStore(postgres)).apply(batch)) == ["applied"] * 100
    rows = await postgres.pool.fetch("SELECT used_bytes, increment_bytes FROM usage_daily")
    assert [tuple(row) for row in rows] == [(99, 99)]


@pytest.mark.parametrize("bad_count", [1, 2, 5])
async def test_bad_rows_in_200_are_bisected_out(postgres: Postgres, bad_count: int) -> None:
    await postgres.pool.execute("ALTER TABLE usage_daily ADD CONSTRAINT poison CHECK (used_bytes <> 13)")
    bad = {3, 77, 78, 150, 199} if bad_count == 5 else set(range(50, 50 + bad_count))
    batch = [observation(NOW, f"c{index}", total_bytes=13 if index in bad else 100) for index in range(200)]
    store = CountingStore(postgres)
    verdicts = await applier(store).apply(batch)
    assert outcomes(verdicts) == ["applied"] * (200 - bad_count) + ["quarantined"] * bad_count
    assert {verdict.sqlstate for verdict in verdicts.values() if isinstance(verdict, Result)} == {"", "23514"}
    assert store.calls <= 2 * bad_count * 8 + 1
    assert await postgres.pool.fetchval("SELECT count(*) FROM ingest_inbox") == 200 - bad_count


async def test_nul_that_reaches_the_database_costs_only_its_row(postgres: Postgres) -> None:
    batch = [observation(NOW, "c1", total_bytes=1), observation(NOW, "c2", status="on\x00line")]
    assert outcomes(await applier(PostgresApplyStore(postgres)).apply(batch)) == ["applied", "quarantined"]


@pytest.mark.parametrize(
    ("age", "outcome"),
    [
        (timedelta(days=40), Outcome.TOO_OLD),
        (timedelta(days=8, seconds=1), Outcome.TOO_OLD),
        (timedelta(days=-2), Outcome.QUARANTINED),
        (timedelta(days=-1, seconds=-1), Outcome.QUARANTINED),
    ],
)
async def test_no_partition_40_days_late_or_2_days_ahead(
    postgres: Postgres, age: timedelta, outcome: Outcome
) -> None:
    verdicts = await applier(PostgresApplyStore(postgres)).apply([observation(NOW - age, total_bytes=1)])
    assert outcomes(verdicts) == [outcome.value]


async def test_no_partition_year_9999(postgres: Postgres) -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    verdicts = await applier(PostgresApplyStore(postgres)).apply([observation(late, total_bytes=1)])
    assert outcomes(verdicts) == ["quarantined"]


async def test_a_missing_partition_inside_the_window_is_created_on_demand(database: str) -> None:
    async with opened(database) as empty:
        await save_fleet(empty, [account()], [card("c1"), card("c2")])
        batch = [
            observation(NOW - timedelta(days=days), f"c{days % 2 + 1}", total_bytes=1) for days in range(8)
        ]
        assert outcomes(await applier(PostgresApplyStore(empty)).apply(batch)) == ["applied"] * 8


async def test_many_writers_create_one_day_at_once(database: str) -> None:
    async with opened(database, max_size=8) as empty:
        store = PartitionStore(empty)
        created = await asyncio.gather(*(store.create(date(2026, 5, 1)) for _ in range(8)))
        assert sorted(created) == [False] * 7 + [True]


async def test_forgotten_days_are_dropped_and_the_others_kept(postgres: Postgres) -> None:
    store = PartitionStore(postgres)
    await store.create(date(2026, 1, 1))
    dropped = await store.drop_before(NOW.date() - timedelta(days=8))
    assert "ingest_inbox_2026_01_01" in dropped
    names = {row["name"] for row in await postgres.pool.fetch(load_sql("ingest_service", "list_partitions"))}
    assert min(names) == f"ingest_inbox_{NOW.date() - timedelta(days=8):%Y_%m_%d}"


async def test_two_processes_apply_overlapping_cards_in_opposite_order(postgres: Postgres) -> None:
    """No deadlock (40P01), and every observation counts once: cards are locked in order of id."""
    seed = random.Random(5)
    items = [
        observation(NOW + index * MINUTE / 60, f"c{seed.randrange(30)}", delta_bytes=1)
        for index in range(800)
    ]
    deadlocks = await postgres.pool.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )

    async def process(number: int) -> int:
        order = random.Random(number)
        store = CountingStore(postgres)
        worker = applier(store)
        applied = 0
        for _ in range(12):
            batch = order.sample(items, 100)
            verdicts = await worker.apply(batch)
            assert not any(isinstance(verdict, Held | Deferred) for verdict in verdicts.values())
            applied += outcomes(verdicts).count("applied")
        return applied

    applied = sum(await asyncio.gather(*(process(number) for number in range(8))))
    counted = await postgres.pool.fetchval("SELECT sum(settled) FROM usage_cycle")
    assert applied == counted == await postgres.pool.fetchval("SELECT count(*) FROM ingest_inbox")
    after = await postgres.pool.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    assert after == deadlocks


async def test_one_id_under_two_cards_at_once_counts_once(postgres: Postgres) -> None:
    """Two lanes may meet the same id on different cards; the inbox lets one of them through."""
    for round_number in range(20):
        at = NOW + round_number * MINUTE
        first = observation(at, "c1", delta_bytes=1)
        second = observation(at, "c2", delta_bytes=1, observation_id=first.observation_id)
        stores = [PostgresApplyStore(postgres) for _ in range(2)]
        both = await asyncio.gather(applier(stores[0]).apply([first]), applier(stores[1]).apply([second]))
        assert sorted(outcomes(both[0]) + outcomes(both[1])) == ["applied", "duplicate"]
    assert await postgres.pool.fetchval("SELECT sum(settled) FROM usage_cycle") == 20


async def test_a_lock_that_is_held_too_long_defers_only_its_card(postgres: Postgres, database: str) -> None:
    async with (
        opened(database, lock_timeout=timedelta(milliseconds=100)) as impatient,
        postgres.pool.acquire() as other,
    ):
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT 1 FROM card WHERE card_id = 'c5' FOR UPDATE")
        batch = [observation(NOW, f"c{index}", total_bytes=1) for index in range(8)]
        verdicts = await applier(PostgresApplyStore(impatient)).apply(batch)
        await transaction.rollback()
    assert outcomes(verdicts) == ["Deferred"] + ["applied"] * 7
    deferred = next(item for item in verdicts.values() if isinstance(item, Deferred))
    assert deferred.observation.card_id == "c5"
    assert deferred.error.kind is FailureKind.RETRY_LATER


async def test_a_cancelled_apply_leaves_nothing_and_the_pool_whole(postgres: Postgres) -> None:
    """Cancelled while acquiring a connection, while waiting for a lock, and in between."""
    store = PostgresApplyStore(postgres)
    batch = [observation(NOW, "c1", delta_bytes=1)]
    async with postgres.transaction() as holder:
        await holder.execute("SELECT 1 FROM card WHERE card_id = 'c1' FOR UPDATE")
        for turns in range(30):
            task = asyncio.create_task(applier(store).apply(batch))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert await postgres.pool.fetchval("SELECT count(*) FROM ingest_inbox") == 0
    assert outcomes(await applier(store).apply(batch)) == ["applied"]
    assert postgres.pool.get_size() <= postgres.pool.get_max_size()


async def test_a_database_that_is_away_holds_the_batch(database: str) -> None:
    async with opened(database) as gone:
        store = PostgresApplyStore(gone)
        gone.pool.terminate()
        verdicts = await applier(store).apply([observation(NOW, total_bytes=1)])
    assert outcomes(verdicts) == ["Held"]


async def test_errors_carry_their_sqlstate(postgres: Postgres) -> None:
    await postgres.pool.execute("ALTER TABLE ingest_inbox RENAME TO moved_away")
    with pytest.raises(StoreError) as caught:
        await PostgresApplyStore(postgres).apply([observation(NOW, total_bytes=1)], now=NOW, window=Window())
    assert (caught.value.kind, caught.value.sqlstate) == (FailureKind.UNKNOWN, "42P01")


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


async def seq_scans(postgres: Postgres, name: str, *arguments: Any) -> list[str]:
    text = await postgres.pool.fetchval(
        f"EXPLAIN (FORMAT JSON) {load_sql('ingest_service', name)}", *arguments
    )
    return [
        node["Relation Name"]
        for node in nodes(json.loads(text)[0]["Plan"])
        if node["Node Type"].startswith("Seq Scan")
    ]


@pytest.fixture
async def large(database: str) -> AsyncIterator[Postgres]:
    """A fleet of 20,000 cards with history, analysed."""
    async with opened(database, statement_timeout=timedelta(minutes=2)) as postgres:
        await make_partitions(postgres)
        await save_fleet(postgres, [account()], [])
        await postgres.pool.execute(
            "INSERT INTO card (card_id, account_id, msisdn, lifecycle, polling_enabled, updated_at) "
            "SELECT 'n' || n, 'acme', '', 'active', true, now() FROM generate_series(1, 20000) AS n"
        )
        await postgres.pool.execute(
            "INSERT INTO usage_cycle SELECT 'n' || n, date '2026-03-01', 0, 5, 5, 0, now(), 0, NULL, 5, now(), NULL, "
            "NULL, false, false FROM generate_series(1, 20000) AS n"
        )
        await postgres.pool.execute(
            "INSERT INTO ingest_inbox SELECT gen_random_uuid(), $1::timestamptz - n * interval '5 seconds', 'n' || n, "
            "'traffic', 'applied', 1, now() FROM generate_series(1, 60000) AS n",
            NOW,
        )
        await postgres.pool.execute(
            "INSERT INTO ingest_outbox (event_id, card_id, account_id, event_type, observed_at, observation_id, data, "
            "traceparent, created_at, published_at) SELECT gen_random_uuid(), 'n1', 'acme', 'x', now(), "
            "gen_random_uuid(), '{}', '', now(), now() FROM generate_series(1, 20000)"
        )
        await postgres.pool.execute("ANALYZE card, usage_cycle, ingest_inbox, ingest_outbox")
        yield postgres


async def test_hot_statements_scan_no_table(large: Postgres) -> None:
    cards = [f"n{index}" for index in range(1, 201)]
    ids = [uuid7(NOW) for _ in cards]
    assert await seq_scans(large, "lock_cards", cards) == []
    loaded = await seq_scans(large, "load_batch", cards, ids, [NOW] * 200, cards, date(2026, 1, 20))
    assert set(loaded) <= {"account"}
    assert await seq_scans(large, "take_outbox", 200) == []
    assert set(await seq_scans(large, "list_cards", "n5", 100, True)) <= {"account"}
    assert set(await seq_scans(large, "list_cards_of_account", "n5", 100, True, "acme")) <= {"account"}
    assert await seq_scans(large, "get_cards", cards) == []


async def test_an_inbox_lookup_opens_only_the_days_it_asks_for(large: Postgres) -> None:
    cards = [f"n{index}" for index in range(1, 51)]
    text = await large.pool.fetchval(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {load_sql('ingest_service', 'load_batch')}",
        cards,
        [uuid7(NOW) for _ in cards],
        [NOW] * 50,
        cards,
        date(2026, 1, 20),
    )
    touched = {
        node["Relation Name"]
        for node in nodes(json.loads(text)[0]["Plan"])
        if node.get("Relation Name", "").startswith("ingest_inbox_") and node["Actual Loops"]
    }
    assert touched == {f"ingest_inbox_{NOW:%Y_%m_%d}"}
