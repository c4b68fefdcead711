"""Batches with rows that can't be stored: the others are stored, and it does not take many statements."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection_writer.domain import (
    BatchWriter,
    CollectionRecord,
    DataError,
    NoPartitionError,
    Window,
    millisecond_of,
    month_of,
    months_ahead,
    months_past_retention,
)
from servicekit.ids import uuid7
from tests.support.collection import instants, record

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
WINDOW = Window(oldest=timedelta(days=60), newest=timedelta(days=3))


class FakeStore:
    """Refuses a statement that holds a bad row, as PostgreSQL does."""

    def __init__(self) -> None:
        self.rows: set[tuple[datetime, object]] = set()
        self.months = {date(2026, 11, 1)}
        self.statements = 0
        self.made: list[date] = []

    async def insert(self, records: Sequence[CollectionRecord]) -> int:
        self.statements += 1
        assert list(records) == sorted(records, key=lambda item: item.key)
        if any(month_of(item.observed_at) not in self.months for item in records):
            raise NoPartitionError
        if any(item.card_id == "bad" for item in records):
            raise DataError("22P02", "bad row")
        new = {item.key for item in records} - self.rows
        self.rows |= new
        return len(new)

    async def partition_months(self) -> set[date]:
        return set(self.months)

    async def create_partition(self, month: date) -> bool:
        self.made.append(month)
        self.months.add(month)
        return True


@given(st.sets(st.integers(0, 199), max_size=5), st.integers(1, 200))
async def test_bad_rows_are_found_within_the_bound(bad: set[int], size: int) -> None:
    store = FakeStore()
    writer = BatchWriter(store, WINDOW)
    await writer.know_months()
    records = [
        record(at, card_id="bad" if index in bad else "good")
        for index, at in enumerate(instants(size, NOW - timedelta(hours=1)))
    ]
    result = await writer.write(records[::-1], NOW)
    k = len({index for index in bad if index < size})
    assert len(result.refused) == k
    assert {refusal.sqlstate for refusal in result.refused} <= {"22P02"}
    assert result.stored_count == size - k == len(store.rows)
    assert store.statements <= 2 * k * math.ceil(math.log2(max(size, 2))) + 1


async def test_the_same_again_changes_nothing() -> None:
    store = FakeStore()
    writer = BatchWriter(store, WINDOW)
    records = [record(at) for at in instants(20, NOW)]
    await writer.write(records, NOW)
    again = await writer.write(records, NOW)
    assert (again.stored_count, again.duplicate_count) == (0, 20)


async def test_a_missing_month_inside_the_window_is_made_and_outside_it_is_refused() -> None:
    store = FakeStore()
    writer = BatchWriter(store, WINDOW)
    late = record(NOW - timedelta(days=40))
    ahead = record(NOW + timedelta(days=2))
    far = record(datetime(9999, 1, 1, tzinfo=UTC))
    result = await writer.write([late, ahead, far, record(NOW)], NOW)
    assert result.stored_count == 3
    assert [(item.record.key, item.sqlstate) for item in result.refused] == [(far.key, "23514")]
    assert set(store.made) >= {date(2026, 10, 1), date(2026, 12, 1)}
    assert date(9999, 1, 1) not in store.made


async def test_a_month_that_vanished_is_made_again() -> None:
    store = FakeStore()
    writer = BatchWriter(store, WINDOW)
    await writer.know_months()
    store.months.clear()
    assert (await writer.write([record(NOW)], NOW)).stored_count == 1


def test_months() -> None:
    assert months_ahead(datetime(2026, 12, 31, 23, 59, tzinfo=UTC), 2) == [
        date(2026, 12, 1),
        date(2027, 1, 1),
        date(2027, 2, 1),
    ]
    months = [date(2026, month, 1) for month in range(1, 12)]
    assert months_past_retention(months, NOW, 0) == []
    assert months_past_retention(months, NOW, 3) == months[:7]


def test_an_id_names_its_millisecond() -> None:
    at = datetime(2026, 11, 30, 12, 0, 0, 123_999, tzinfo=UTC)
    start, end = millisecond_of(uuid7(at))
    assert start <= at < end == start + timedelta(milliseconds=1)
    with pytest.raises(ValueError, match="version 7"):
        millisecond_of(record().observation_id.__class__(int=1))
