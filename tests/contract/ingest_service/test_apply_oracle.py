"""The batched apply against a naive one, on a real PostgreSQL: any history ends in the same tables."""

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest_service.domain.applying import Applier, Held
from ingest_service.domain.deciding import Window
from ingest_service.domain.observations import Kind, Observation, Result, in_order
from ingest_service.store.postgres_apply import PostgresApplyStore
from servicekit.ids import uuid7
from servicekit.postgres import Postgres
from tests.support.ingest import FixedClock, account, card, make_partitions, opened, save_fleet
from tests.support.ingest_oracle import Oracle

NOW = datetime(2026, 4, 1, 12, 0, 0, tzinfo=UTC)
FLEET = {
    "c1": ("acme", 1, "UTC"),
    "c2": ("acme", 1, "UTC"),
    "c3": ("shang", 31, "Asia/Shanghai"),
    "c4": ("york", 30, "America/New_York"),
}
EXAMPLES = int(os.environ.get("HYPOTHESIS_INGEST_EXAMPLES", "25"))
RAW = st.one_of(st.integers(0, 60), st.integers(0, 2_000), st.sampled_from([0, 1, 49, 50, 51, 1000, 1001]))
# Hours before NOW: dense around the cycle's start, sparse elsewhere, a little outside the window on both sides.
HOURS = st.one_of(st.integers(-3, 24), st.integers(24, 8 * 24 + 12), st.just(-30))


@dataclass(frozen=True)
class Again:
    """An observation of the history that comes once more."""

    index: int


@st.composite
def fresh(draw: st.DrawFn) -> Observation:
    at = NOW - timedelta(
        hours=draw(HOURS), minutes=draw(st.integers(0, 3)) * 7, microseconds=draw(st.integers(0, 2))
    )
    kind = draw(st.sampled_from([Kind.TRAFFIC, Kind.TRAFFIC, Kind.TRAFFIC, Kind.NETWORK, Kind.REALNAME]))
    fields: dict[str, Any] = {}
    if kind is Kind.TRAFFIC:
        form = draw(st.sampled_from(["total_bytes", "total_bytes", "total_bytes", "delta_bytes"]))
        fields[form] = draw(RAW)
    else:
        words = ["online", "offline"] if kind is Kind.NETWORK else ["verified", "pending"]
        fields["status"] = draw(st.sampled_from(words))
    return Observation(
        observation_id=uuid7(at),
        card_id=draw(st.sampled_from(["c1", "c1", "c2", "c3", "c4", "unknown"])),
        account_id="acme",
        kind=kind,
        observed_at=at,
        **fields,
    )


HISTORY = st.lists(
    st.lists(fresh() | st.builds(Again, st.integers(0, 30)), min_size=1, max_size=12), min_size=1, max_size=8
)


class Nothing:
    async def run(self, changes: Any, *, started_at: datetime) -> None:
        """Follow a commit with nothing."""


def batches_of(history: list[list[Observation | Again]]) -> list[list[Observation]]:
    """Replace repeats by what they repeat; equal ids in one batch are collapsed before it, as in a lane."""
    seen: list[Observation] = []
    batches = []
    for items in history:
        batch: dict[Any, Observation] = {}
        for item in items:
            if isinstance(item, Again):
                if not seen:
                    continue
                chosen = seen[item.index % len(seen)]
            else:
                chosen = item
                seen.append(item)
            batch[chosen.observation_id] = chosen
        batches.append(list(batch.values()))
    return [batch for batch in batches if batch]


async def prepare(dsn: str) -> None:
    async with opened(dsn) as postgres:
        await make_partitions(postgres, NOW)
        accounts = [
            account(name, reset_day=day, time_zone=zone) for name, day, zone in sorted(set(FLEET.values()))
        ]
        await save_fleet(postgres, accounts, [card(name, facts[0]) for name, facts in FLEET.items()])


async def reset(postgres: Postgres) -> None:
    await postgres.pool.execute(
        "TRUNCATE ingest_inbox, usage_cycle, usage_daily, ingest_outbox, ingest_audit;"
        "UPDATE card SET network_status = '', network_observed_at = NULL, network_observation_id = NULL,"
        " realname_status = '', realname_observed_at = NULL, realname_observation_id = NULL, cycle_start = NULL,"
        " cycle_used_bytes = 0, applied_count = 0, observed_at = NULL"
    )


async def run_history(dsn: str, history: list[list[Observation]]) -> tuple[dict[str, Any], dict[str, Any]]:
    oracle = Oracle(FLEET)
    async with opened(dsn) as postgres:
        await reset(postgres)
        applier = Applier(PostgresApplyStore(postgres), Nothing(), clock=FixedClock(NOW), window=Window())
        for batch in history:
            expected = {item.observation_id: oracle.apply(item, NOW) for item in in_order(batch)}
            verdicts = await applier.apply(batch)
            assert not any(isinstance(verdict, Held) for verdict in verdicts.values()), verdicts
            found = {
                item_id: verdict.outcome.value
                for item_id, verdict in verdicts.items()
                if isinstance(verdict, Result)
            }
            assert found == expected
        return await tables(postgres), expected_tables(oracle)


async def tables(postgres: Postgres) -> dict[str, Any]:
    fetch = postgres.pool.fetch
    return {
        "inbox": {
            row["observation_id"]: (row["outcome"], row["increment_bytes"])
            for row in await fetch("SELECT * FROM ingest_inbox")
        },
        "card": {
            row["card_id"]: (
                row["network_status"],
                row["realname_status"],
                row["applied_count"],
                row["observed_at"],
                row["cycle_start"],
                row["cycle_used_bytes"],
            )
            for row in await fetch("SELECT * FROM card")
        },
        "cycle": {
            (row["card_id"], row["cycle_start"]): (
                row["base_offset"] + row["raw_max"],
                row["settled"],
                row["epoch"],
                row["raw_max"],
            )
            for row in await fetch("SELECT * FROM usage_cycle")
        },
        "daily": {
            (row["card_id"], row["day"]): (row["used_bytes"], row["increment_bytes"])
            for row in await fetch("SELECT * FROM usage_daily")
        },
        "outbox": sorted(
            (row["event_type"], row["observation_id"]) for row in await fetch("SELECT * FROM ingest_outbox")
        ),
        "audit": sorted(
            (row["action"], row["observation_id"]) for row in await fetch("SELECT * FROM ingest_audit")
        ),
    }


def expected_tables(oracle: Oracle) -> dict[str, Any]:
    cards = oracle.cards
    return {
        "inbox": {item: (outcome, oracle.increments[item]) for item, outcome in oracle.seen.items()},
        "card": {
            name: (
                book.status.get("network", ("",))[0],
                book.status.get("realname", ("",))[0],
                book.applied,
                book.observed_at,
                book.current,
                book.current_used,
            )
            for name, book in cards.items()
        },
        "cycle": {
            (name, start): (
                counter.total(),
                counter.given,
                max(0, len(counter.epochs) - 1),
                counter.epochs[-1]["top"] if counter.epochs else 0,
            )
            for name, book in cards.items()
            for start, counter in book.counters.items()
        },
        "daily": oracle.days,
        "outbox": sorted(oracle.events),
        "audit": sorted(oracle.notes),
    }


@pytest.fixture(scope="module")
def fleet_database(postgres_server: Any, migrated_template: str) -> Any:
    dsn = postgres_server.create_database("ingest_oracle", template=migrated_template)
    asyncio.run(prepare(dsn))
    yield dsn
    postgres_server.drop_database("ingest_oracle")


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(history=HISTORY)
def test_any_history_ends_in_the_tables_of_the_naive_oracle(
    fleet_database: str, history: list[list[Observation | Again]]
) -> None:
    found, expected = asyncio.run(run_history(fleet_database, batches_of(history)))
    for table, rows in expected.items():
        assert found[table] == rows, table


@settings(
    max_examples=max(5, EXAMPLES // 4),
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(items=st.lists(fresh(), min_size=1, max_size=40))
def test_one_batch_or_many_end_in_the_same_tables(fleet_database: str, items: list[Observation]) -> None:
    """How observations are cut into batches changes nothing, as long as their order is the same."""
    ordered = in_order(items)
    one, _ = asyncio.run(run_history(fleet_database, [ordered]))
    many, _ = asyncio.run(run_history(fleet_database, [[item] for item in ordered]))
    assert one == many
