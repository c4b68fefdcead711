"""What waits in PostgreSQL: retries, parked versions, the quarantine and the outbox."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from ingest_service.consumer import observation_of
from ingest_service.domain.applying import Applier, Deferred, FailureKind, StoreError
from ingest_service.domain.deciding import Window
from ingest_service.domain.lanes import Lanes
from ingest_service.domain.observations import Observation
from ingest_service.domain.settling import Settler
from ingest_service.loops.outbox_relay import OutboxRelay
from ingest_service.loops.retry_ladder import RetryLadder
from ingest_service.store.postgres_apply import PostgresApplyStore
from ingest_service.store.postgres_parking import ParkingStore
from ingest_service.store.postgres_upkeep import OutboxStore
from servicekit.errors import Reason, ServiceError
from servicekit.ids import uuid7
from servicekit.postgres import Postgres
from sluicegate_client.messages import ObservationMessage
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


class MovingClock(FixedClock):
    """A fixed clock that a test may set."""

    def move(self, by: timedelta) -> None:
        self._now += by


class Nothing:
    async def run(self, changes: Any, *, started_at: Any) -> None:
        """Follow a commit with nothing."""


class OpenGate:
    is_open = False

    async def trip(self, error: BaseException) -> None:
        """Stay closed."""

    async def wait_closed(self) -> None:
        """Wait for nothing."""


class Bench:
    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres
        self.clock = MovingClock()
        self.parking = ParkingStore(postgres)
        self.settler = Settler(self.parking, self.clock)
        self.applier = Applier(PostgresApplyStore(postgres), Nothing(), clock=self.clock, window=Window())
        self.lanes = Lanes(
            self.applier, OpenGate(), count=1, most_waiting=1000, scope=lambda _lane, _batch: nullcontext()
        )
        self.ladder = RetryLadder(
            self.parking, self.lanes, self.settler, decode=decode, clock=self.clock, batch=10
        )

    async def count(self, table: str) -> int:
        return int(await self.postgres.pool.fetchval(f"SELECT count(*) FROM {table}"))  # noqa: S608


def decode(body: bytes) -> Observation:
    return observation_of(ObservationMessage.decode(body))


def message(**changes: Any) -> ObservationMessage:
    fields: dict[str, Any] = {
        "observation_id": uuid7(NOW),
        "card_id": "c1",
        "kind": "traffic",
        "observed_at": NOW,
        "reading": {"delta_bytes": 1},
    }
    return ObservationMessage(**{**fields, **changes})


def deferred(item: ObservationMessage, kind: FailureKind = FailureKind.RETRY_LATER) -> Deferred:
    return Deferred(observation_of(item), StoreError(kind, "made up"))


@pytest.fixture
async def bench(database: str) -> AsyncIterator[Bench]:
    async with opened(database) as postgres:
        await make_partitions(postgres)
        await save_fleet(postgres, [account()], [card("c1")])
        made = Bench(postgres)
        await made.lanes.start()
        yield made
        await made.lanes.stop()


async def test_what_waits_is_applied_when_it_is_due_and_not_before(bench: Bench) -> None:
    item = message()
    for _ in range(2):
        await bench.settler.settle(deferred(item), item.encode())
    assert await bench.count("ingest_retry") == 1
    await bench.ladder.run_once()
    assert await bench.count("ingest_inbox") == 0
    bench.clock.move(timedelta(seconds=7))
    await bench.ladder.run_once()
    assert (await bench.count("ingest_inbox"), await bench.count("ingest_retry")) == (1, 0)


async def test_what_fails_again_waits_longer_and_shows_itself_in_the_quarantine_at_the_20th(
    bench: Bench,
) -> None:
    item = message()
    await bench.settler.settle(deferred(item, FailureKind.UNKNOWN), item.encode())
    await bench.postgres.pool.execute("ALTER TABLE usage_cycle RENAME TO moved_away")
    waits = []
    for attempt in range(2, 22):
        before = await bench.postgres.pool.fetchval("SELECT due_at FROM ingest_retry")
        bench.clock.move(before - bench.clock.now())
        await bench.ladder.run_once()
        row = await bench.postgres.pool.fetchrow("SELECT attempts, due_at FROM ingest_retry")
        assert row is not None
        assert row["attempts"] == attempt
        waits.append((row["due_at"] - bench.clock.now()).total_seconds())
        assert await bench.count("ingest_quarantine") == (1 if attempt >= 20 else 0)
    assert max(waits) <= 360
    assert min(waits[5:]) >= 240
    await bench.postgres.pool.execute("ALTER TABLE moved_away RENAME TO usage_cycle")
    bench.clock.move(timedelta(minutes=10))
    await bench.ladder.run_once()
    assert (await bench.count("ingest_inbox"), await bench.count("ingest_retry")) == (1, 0)


async def test_a_message_of_a_later_version_stays_parked_until_its_reader_runs(bench: Bench) -> None:
    await bench.settler.park(b'{"schema_version":"2.0"}', major=2, reason="newer")
    bench.clock.move(timedelta(days=30))
    await bench.ladder.run_once()
    assert await bench.count("ingest_retry") == 1
    later = bench.clock.now()
    claimed = await bench.parking.claim_retries(
        now=later, again_at=later + timedelta(minutes=1), major=2, limit=5
    )
    assert [item.body for item in claimed] == [b'{"schema_version":"2.0"}']


async def test_two_ladders_share_the_work(bench: Bench) -> None:
    for index in range(20):
        item = message(observation_id=uuid7(NOW), raw=str(index))
        await bench.settler.settle(deferred(item), item.encode())
    later = NOW + timedelta(minutes=1)
    claims = await asyncio.gather(
        *(
            bench.parking.claim_retries(now=later, again_at=later + timedelta(minutes=1), major=1, limit=15)
            for _ in range(3)
        )
    )
    ids = [item.retry_id for claim in claims for item in claim]
    assert len(ids) == len(set(ids)) <= 20


async def test_the_same_bad_body_shares_a_row(bench: Bench) -> None:
    for _ in range(3):
        await bench.settler.quarantine(b"\x00\xff bad", reason="nul \x00 and \ud800")
    assert await bench.postgres.pool.fetchval("SELECT seen_count FROM ingest_quarantine") == 3


class FakeOutgoing:
    def __init__(self) -> None:
        self.published: list[str] = []
        self.away = False

    async def publish_events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self.away:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "nsqd is away")
        self.published += [str(row["event_id"]) for row in rows]


async def events(bench: Bench, count: int) -> None:
    for index in range(count):
        status = "online" if index % 2 else "offline"
        item = observation(NOW + timedelta(seconds=index), status=status)
        await bench.applier.apply([item])


async def test_events_stay_while_nsqd_is_away_and_leave_once(bench: Bench) -> None:
    await events(bench, 5)
    outgoing = FakeOutgoing()
    relay = OutboxRelay(
        OutboxStore(bench.postgres),
        outgoing,
        bench.clock,
        batch=3,
        kept=timedelta(days=8),  # type: ignore[arg-type]
    )
    outgoing.away = True
    with pytest.raises(ServiceError):
        await relay.run_once()
    outgoing.away = False
    assert await relay.run_once() is True
    assert await relay.run_once() is False
    assert await relay.run_once() is False
    assert len(outgoing.published) == len(set(outgoing.published)) == 5
    bench.clock.move(timedelta(days=9))
    await relay.forget_once()
    assert await bench.count("ingest_outbox") == 0


async def test_the_relay_does_not_skip_rows_of_a_slower_transaction(bench: Bench) -> None:
    """A transaction that took its number early and commits late must not be passed over."""
    outgoing = FakeOutgoing()
    relay = OutboxRelay(
        OutboxStore(bench.postgres),
        outgoing,
        bench.clock,
        batch=100,
        kept=timedelta(days=8),  # type: ignore[arg-type]
    )
    async with bench.postgres.transaction() as slow:
        await slow.execute(
            "INSERT INTO ingest_outbox (event_id, card_id, account_id, event_type, observed_at, observation_id, data, "
            "traceparent, created_at) VALUES ($1, 'c1', 'acme', 'slow', $2, $1, '{}', '', $2)",
            uuid7(NOW),
            NOW,
        )
        await events(bench, 3)
        await relay.run_once()
        assert len(outgoing.published) == 3
    await relay.run_once()
    assert len(outgoing.published) == 4
