"""Collection records and how a batch of them is stored when some of its rows can't be."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from uuid import UUID

from servicekit.ids import uuid7_time


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRecord:
    """What one poll returned, success or failure.

    ``reading`` is the normalised reading as JSON text; None for failures and empty answers. ``traceparent`` and
    ``error`` are None when there is none. ``stored_at`` is known only for rows that were read back.
    """

    observation_id: UUID
    observed_at: datetime
    card_id: str
    account_id: str
    kind: str
    outcome: str
    reading: str | None
    raw: str
    error: str | None
    latency_ms: int
    traceparent: str | None
    stored_at: datetime | None = None

    @property
    def key(self) -> tuple[datetime, UUID]:
        """The order in which rows are stored and listed."""
        return self.observed_at, self.observation_id


class DataError(Exception):
    """The store can't hold some row of what it was given; ``sqlstate`` says why."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message


class NoPartitionError(Exception):
    """No partition holds some row of what the store was given."""


class RecordStore(Protocol):
    """Where records are kept."""

    async def insert(self, records: Sequence[CollectionRecord]) -> int:
        """Store records that are not there yet, in one statement, and return how many were new.

        Raises DataError and NoPartitionError with nothing stored, and whatever the driver raises when it is away.
        """
        ...

    async def partition_months(self) -> set[date]:
        """Return the first days of the UTC months that have a partition."""
        ...

    async def create_partition(self, month: date) -> bool:
        """Make a month's partition; False when it was there. Several callers at once make one."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that can't be stored and why; ``sqlstate`` is empty when the database was not asked."""

    record: CollectionRecord
    sqlstate: str
    message: str


@dataclass(slots=True)
class WriteResult:
    """What became of a batch."""

    stored_count: int = 0
    duplicate_count: int = 0
    refused: list[Refusal] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a record may lie, counted from now."""

    oldest: timedelta
    newest: timedelta

    def holds(self, observed_at: datetime, now: datetime) -> bool:
        """Tell whether a record of that instant is kept."""
        return now - self.oldest <= observed_at <= now + self.newest


class BatchWriter:
    """Stores batches, makes missing months, and finds the rows that can't be stored.

    Args:
        store: where records go.
        window: outside of it no partition is made.
    """

    def __init__(self, store: RecordStore, window: Window) -> None:
        self._store = store
        self._window = window
        self._months: set[date] = set()

    async def write(self, records: Sequence[CollectionRecord], now: datetime) -> WriteResult:
        """Store all records but those that can't be, which are named in the result; idempotent.

        With k bad rows among n it takes at most 2k*ceil(log2 n)+1 insert statements. Raises what the store raises when
        it is away; then some rows may be stored already.
        """
        result = WriteResult()
        await self._insert(sorted(records, key=lambda record: record.key), now, result)
        return result

    async def know_months(self) -> None:
        """Read which months exist, so that a batch does not have to fail to find out."""
        self._months = await self._store.partition_months()

    async def make_months(self, months: Sequence[date]) -> list[date]:
        """Make the partitions of these months; return those that were new."""
        made = [month for month in months if await self._store.create_partition(month)]
        self._months.update(months)
        return made

    async def _insert(self, records: Sequence[CollectionRecord], now: datetime, result: WriteResult) -> None:
        kept = await self._with_partition(records, now, result)
        if not kept:
            return
        try:
            stored = await self._store.insert(kept)
        except NoPartitionError:
            # A month that was known is gone: retention runs elsewhere. Look again, and only once.
            await self.know_months()
            await self._insert_again(kept, now, result)
        except DataError as error:
            await self._bisect(kept, error, now, result)
        else:
            result.stored_count += stored
            result.duplicate_count += len(kept) - stored

    async def _insert_again(
        self, records: Sequence[CollectionRecord], now: datetime, result: WriteResult
    ) -> None:
        kept = await self._with_partition(records, now, result)
        try:
            stored = await self._store.insert(kept) if kept else 0
        except NoPartitionError:
            await self._bisect(kept, DataError("23514", "no partition holds its time"), now, result)
        except DataError as error:
            await self._bisect(kept, error, now, result)
        else:
            result.stored_count += stored
            result.duplicate_count += len(kept) - stored

    async def _bisect(
        self, records: Sequence[CollectionRecord], error: DataError, now: datetime, result: WriteResult
    ) -> None:
        if len(records) == 1:
            result.refused.append(Refusal(records[0], error.sqlstate, error.message))
            return
        middle = len(records) // 2
        await self._insert(records[:middle], now, result)
        await self._insert(records[middle:], now, result)

    async def _with_partition(
        self, records: Sequence[CollectionRecord], now: datetime, result: WriteResult
    ) -> Sequence[CollectionRecord]:
        missing = {month_of(record.observed_at) for record in records} - self._months
        if not missing:
            return records
        outside = [record for record in records if not self._window.holds(record.observed_at, now)]
        refused = {record.key for record in outside if month_of(record.observed_at) in missing}
        wanted = {month_of(record.observed_at) for record in records if record.key not in refused}
        await self.make_months(sorted(wanted & missing))
        result.refused += [
            Refusal(record, "23514", "its time is outside the window of partitions")
            for record in outside
            if record.key in refused
        ]
        return [record for record in records if record.key not in refused]


def month_of(instant: datetime) -> date:
    """Return the first day of the UTC month that holds an instant."""
    return instant.astimezone(UTC).date().replace(day=1)


def months_ahead(now: datetime, count: int) -> list[date]:
    """Return the present month and the ``count`` months after it."""
    months = [month_of(now)]
    for _ in range(count):
        months.append((months[-1] + timedelta(days=32)).replace(day=1))
    return months


def months_past_retention(months: Sequence[date], now: datetime, retention_months: int) -> list[date]:
    """Return the months that retention gives up; none when ``retention_months`` is 0."""
    if retention_months == 0:
        return []
    present = month_of(now)
    return [
        month
        for month in months
        if (present.year - month.year) * 12 + present.month - month.month > retention_months
    ]


def millisecond_of(observation_id: UUID) -> tuple[datetime, datetime]:
    """Return the millisecond that a version 7 id names: from inclusive, until exclusive. Raises ValueError."""
    start = uuid7_time(observation_id)
    return start, start + timedelta(milliseconds=1)
