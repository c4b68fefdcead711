"""Collection records, their partitions and the quarantine in PostgreSQL."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

import asyncpg

from collection_writer.domain import CollectionRecord, DataError, NoPartitionError
from servicekit.postgres import FailureClass, Postgres, classify, load_sql

_PACKAGE = "collection_writer"
_SHOWN_BODY_BYTES = 8192
_PARTITION_NAME = re.compile(r"collection_record_[0-9]{4}_[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Partition:
    """One month's table; ``attached`` is False when retention was interrupted between detaching and dropping."""

    name: str
    month: date
    attached: bool
    detach_pending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    """A message or record that can't be stored, with its bytes as they came."""

    source: str
    observation_id: str | None
    card_id: str | None
    reason: str
    sqlstate: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class QuarantinedBody:
    """A row of the quarantine as a replay needs it; ``observation_id`` is empty when it could not be read."""

    quarantine_id: int
    source: str
    body: bytes
    observation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Which records a page is taken from; an empty id means any."""

    card_id: str
    account_id: str
    start: datetime
    end: datetime


class PostgresRecordStore:
    """Keeps records in ``collection_record``.

    Args:
        postgres: the process's pool.
    """

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self.insert_count = 0
        """Insert statements sent since the start."""

    async def insert(self, records: Sequence[CollectionRecord]) -> int:
        """Store records that are not there yet, in one statement, and return how many were new."""
        self.insert_count += 1
        try:
            tag = await self._postgres.pool.execute(load_sql(_PACKAGE, "insert_records"), *_columns(records))
        except asyncpg.PostgresError as error:
            raise _translated(error) from error
        return int(tag.rpartition(" ")[2])

    async def probe(self) -> bool:
        """Run the insert with no rows: fails while the database is away, read-only or not migrated."""
        await self._postgres.pool.execute(load_sql(_PACKAGE, "insert_records"), *_columns(()))
        return True

    async def quarantine(self, rows: Sequence[QuarantinedRecord]) -> None:
        """Keep what can't be stored; the same bytes again only raise a count."""
        await self._postgres.pool.execute(
            load_sql(_PACKAGE, "insert_quarantine"),
            [row.source for row in rows],
            [row.observation_id for row in rows],
            [row.card_id for row in rows],
            [row.reason for row in rows],
            [row.sqlstate or None for row in rows],
            [row.body for row in rows],
        )

    async def list_quarantine(self, *, before: int, limit: int) -> list[dict[str, Any]]:
        """Return quarantined rows below an id, newest first, with at most 8 KiB of each body."""
        statement = load_sql(_PACKAGE, "list_quarantine")
        rows = await self._postgres.pool.fetch(statement, before, limit, _SHOWN_BODY_BYTES)
        return [dict(row) for row in rows]

    async def quarantined_bodies(self, quarantine_ids: Sequence[int]) -> list[QuarantinedBody]:
        """Return quarantined rows in order of id; those that don't exist are left out."""
        rows = await self._postgres.pool.fetch(load_sql(_PACKAGE, "get_quarantined"), list(quarantine_ids))
        return [QuarantinedBody(**dict(row)) for row in rows]

    async def mark_replayed(self, quarantine_ids: Sequence[int], actor: str) -> None:
        """Say who replayed rows with success."""
        await self._postgres.pool.execute(load_sql(_PACKAGE, "mark_replayed"), list(quarantine_ids), actor)

    async def get(self, observation_id: UUID, start: datetime, end: datetime) -> CollectionRecord | None:
        """Read one observation's record from the partition that holds its time."""
        row = await self._postgres.pool.fetchrow(load_sql(_PACKAGE, "get_record"), observation_id, start, end)
        return None if row is None else _record(row)

    async def page(
        self, wanted: RecordFilter, *, after: tuple[datetime, UUID], limit: int
    ) -> list[CollectionRecord]:
        """Read at most ``limit`` records, newest first, that come after a key in that order."""
        arguments: list[Any] = [wanted.start, wanted.end, *after, limit]
        name = "list_by_all"
        if wanted.card_id:
            name = "list_by_card"
            arguments += [wanted.card_id, wanted.account_id]
        elif wanted.account_id:
            name = "list_by_account"
            arguments.append(wanted.account_id)
        return [_record(row) for row in await self._postgres.pool.fetch(load_sql(_PACKAGE, name), *arguments)]

    async def count(self, start: datetime, end: datetime) -> dict[str, int]:
        """Count records by outcome."""
        rows = await self._postgres.pool.fetch(load_sql(_PACKAGE, "count_records"), start, end)
        return {row["outcome"]: row["rows"] for row in rows}

    async def partition_months(self) -> set[date]:
        """Return the first days of the UTC months that have a partition."""
        return {partition.month for partition in await self.partitions() if not partition.detach_pending}

    async def partitions(self) -> list[Partition]:
        """List the months that are attached, oldest first."""
        rows = await self._postgres.pool.fetch(load_sql(_PACKAGE, "list_partitions"))
        return [
            Partition(row["name"], row["first_day"], attached=True, detach_pending=row["detach_pending"])
            for row in rows
        ]

    async def detached(self) -> list[Partition]:
        """List the months that were detached and not dropped."""
        rows = await self._postgres.pool.fetch(load_sql(_PACKAGE, "list_detached"))
        return [
            Partition(row["name"], row["first_day"], attached=False, detach_pending=False) for row in rows
        ]

    async def create_partition(self, month: date) -> bool:
        """Make a month's partition; False when it was there. Several callers at once make one."""
        return bool(await self._postgres.pool.fetchval(load_sql(_PACKAGE, "create_partition"), month))

    async def drop(self, partition: Partition) -> None:
        """Take a month out and delete it without blocking inserts; continues where an earlier call was interrupted."""
        if partition.attached:
            name = "finalize_detach" if partition.detach_pending else "detach_partition"
            await self._postgres.pool.execute(_named(name, partition))
        await self._postgres.pool.execute(_named("drop_table", partition))


def _named(statement: str, partition: Partition) -> str:
    if _PARTITION_NAME.fullmatch(partition.name) is None:
        raise ValueError(f"not a partition of collection_record: {partition.name!r}")
    return load_sql(_PACKAGE, statement).replace("{partition}", partition.name)


def _translated(error: asyncpg.PostgresError) -> Exception:
    match classify(error):
        case FailureClass.DATA:  # also what the driver could not even encode: it says 22000
            return DataError(error.sqlstate or "", _one_line(error))
        case FailureClass.NO_PARTITION:
            return NoPartitionError()
        case _:
            return error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _columns(records: Sequence[CollectionRecord]) -> tuple[list[Any], ...]:
    return (
        [record.observation_id for record in records],
        [record.observed_at for record in records],
        [record.card_id for record in records],
        [record.account_id for record in records],
        [record.kind for record in records],
        [record.outcome for record in records],
        [record.reading for record in records],
        [record.raw for record in records],
        [record.error for record in records],
        [record.latency_ms for record in records],
        [record.traceparent for record in records],
    )


def _record(row: asyncpg.Record) -> CollectionRecord:
    return CollectionRecord(**dict(row))
