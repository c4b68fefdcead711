"""The batched apply: lock, load, decide in memory, one write."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from ingest_service.domain.applying import FailureKind, StoreError
from ingest_service.domain.deciding import Window, decide
from ingest_service.domain.metering import CycleState
from ingest_service.domain.observations import Observation
from ingest_service.domain.state import CardState, Changes, Loaded, StatusState
from servicekit.errors import ServiceError
from servicekit.ids import uuid7_time
from servicekit.postgres import POSTGRES_ERRORS, FailureClass, Postgres, classify, load_sql

_CYCLES_BACK = timedelta(days=65)
"""How far before the earliest observation cycles are read: its own cycle and the one before."""

_KINDS: Mapping[FailureClass, FailureKind] = {
    FailureClass.RETRY_NOW: FailureKind.RETRY_NOW,
    FailureClass.RETRY_LATER: FailureKind.RETRY_LATER,
    FailureClass.INFRASTRUCTURE: FailureKind.AWAY,
    FailureClass.DATA: FailureKind.DATA,
    FailureClass.NO_PARTITION: FailureKind.NO_PARTITION,
    FailureClass.UNKNOWN: FailureKind.UNKNOWN,
}


class AppliedElsewhereError(Exception):
    """Another transaction put one of the batch's ids into the inbox after it was looked up."""


class PostgresApplyStore:
    """Applies batches in PostgreSQL. Each call uses one connection for one transaction."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._lock = load_sql("ingest_service", "lock_cards")
        self._load = load_sql("ingest_service", "load_batch")
        self._write = load_sql("ingest_service", "write_batch")
        self._create_partition = load_sql("ingest_service", "create_partition")

    async def apply(self, observations: Sequence[Observation], *, now: datetime, window: Window) -> Changes:
        """Apply observations with different ids: all or none. Raises StoreError."""
        try:
            async with self._postgres.transaction() as connection:
                return await self._apply(connection, observations, now, window)
        except AppliedElsewhereError as error:
            raise StoreError(FailureKind.RETRY_NOW, "another process applied a part of the batch") from error
        except (*POSTGRES_ERRORS, OSError, TimeoutError, ServiceError) as error:
            raise store_error(error) from error

    async def create_partition(self, day: date) -> None:
        """Make room for a day. Raises StoreError."""
        try:
            async with self._postgres.transaction() as connection:
                await connection.execute(self._create_partition, day)
        except (*POSTGRES_ERRORS, OSError, TimeoutError, ServiceError) as error:
            raise store_error(error) from error

    async def _apply(
        self, connection: Any, observations: Sequence[Observation], now: datetime, window: Window
    ) -> Changes:
        accepted = [item for item in observations if item.observed_at >= now - window.remembered]
        card_ids = sorted({item.card_id for item in observations})
        await connection.fetch(self._lock, card_ids)
        earliest = min((item.observed_at for item in accepted), default=now)
        rows = await connection.fetch(
            self._load,
            card_ids,
            [item.observation_id for item in accepted],
            [uuid7_time(item.observation_id) for item in accepted],
            [item.card_id for item in accepted],
            (min(earliest, now) - _CYCLES_BACK).date(),
        )
        changes = decide(_loaded(rows), observations, now=now, window=window)
        if changes.fresh:
            stored = await connection.fetchval(self._write, now, *_columns(changes))
            if stored != len(changes.fresh):
                raise AppliedElsewhereError
        return changes


def store_error(error: BaseException) -> StoreError:
    """Turn what the driver raised into what it means, by SQLSTATE."""
    sqlstate = getattr(error, "sqlstate", None) or ""
    text = " ".join(str(error).split()) or type(error).__name__
    return StoreError(_KINDS[classify(error)], text, sqlstate=sqlstate)


def _loaded(rows: Sequence[Any]) -> Loaded:
    loaded = Loaded(cards={}, cycles={}, known_ids=frozenset())
    known: set[UUID] = set()
    for row in rows:
        card_id = row["card_id"]
        if card_id not in loaded.cards:
            loaded.cards[card_id] = _card(row)
            loaded.cycles[card_id] = {}
            known.update(row["known_ids"] or ())
        if row["usage_start"] is not None:
            loaded.cycles[card_id][row["usage_start"]] = _cycle(row)
    loaded.known_ids = frozenset(known)
    return loaded


def _card(row: Any) -> CardState:
    return CardState(
        card_id=row["card_id"],
        account_id=row["account_id"],
        lifecycle=row["lifecycle"],
        polling_enabled=row["polling_enabled"],
        reset_day=row["reset_day"],
        time_zone=row["time_zone"],
        network=StatusState(
            row["network_status"], row["network_observed_at"], _uuid(row["network_observation_id"])
        ),
        realname=StatusState(
            row["realname_status"], row["realname_observed_at"], _uuid(row["realname_observation_id"])
        ),
        cycle_start=row["cycle_start"],
        cycle_used_bytes=row["cycle_used_bytes"],
        applied_count=row["applied_count"],
        observed_at=row["observed_at"],
        version=row["version"],
    )


def _cycle(row: Any) -> CycleState:
    return CycleState(
        card_id=row["card_id"],
        cycle_start=row["usage_start"],
        base_offset=row["base_offset"],
        raw_max=row["raw_max"],
        settled=row["settled"],
        epoch=row["epoch"],
        epoch_started_at=row["epoch_started_at"],
        previous_raw_max=row["previous_raw_max"],
        previous_started_at=row["previous_started_at"],
        last_raw=row["last_raw"],
        last_observed_at=row["last_observed_at"],
        candidate_raw=row["candidate_raw"],
        candidate_at=row["candidate_at"],
        start_reset_seen=row["start_reset_seen"],
        end_reset_seen=row["end_reset_seen"],
    )


def _uuid(value: Any) -> UUID | None:
    return None if value is None else UUID(int=value.int)


def _columns(changes: Changes) -> list[list[Any]]:
    """Return the arrays of write_batch, in its order."""
    return [
        *_inbox_columns(changes),
        *_card_columns(changes),
        *_cycle_columns(changes),
        *_daily_columns(changes),
        *_outbox_columns(changes),
        *_audit_columns(changes),
    ]


def _inbox_columns(changes: Changes) -> list[list[Any]]:
    fresh = changes.fresh
    return [
        [item.observation.observation_id for item in fresh],
        [uuid7_time(item.observation.observation_id) for item in fresh],
        [item.observation.card_id for item in fresh],
        [item.observation.kind.value for item in fresh],
        [item.outcome.value for item in fresh],
        [item.increment_bytes for item in fresh],
    ]


def _card_columns(changes: Changes) -> list[list[Any]]:
    cards = list(changes.cards.values())
    return [
        [card.card_id for card in cards],
        [card.network.status for card in cards],
        [card.network.observed_at for card in cards],
        [card.network.observation_id for card in cards],
        [card.realname.status for card in cards],
        [card.realname.observed_at for card in cards],
        [card.realname.observation_id for card in cards],
        [card.cycle_start for card in cards],
        [card.cycle_used_bytes for card in cards],
        [card.applied_count for card in cards],
        [card.observed_at for card in cards],
    ]


def _cycle_columns(changes: Changes) -> list[list[Any]]:
    cycles = [changes.cycles[key] for key in sorted(changes.cycles)]
    return [
        [cycle.card_id for cycle in cycles],
        [cycle.cycle_start for cycle in cycles],
        [cycle.base_offset for cycle in cycles],
        [cycle.raw_max for cycle in cycles],
        [cycle.settled for cycle in cycles],
        [cycle.epoch for cycle in cycles],
        [cycle.epoch_started_at for cycle in cycles],
        [cycle.previous_raw_max for cycle in cycles],
        [cycle.previous_started_at for cycle in cycles],
        [cycle.last_raw for cycle in cycles],
        [cycle.last_observed_at for cycle in cycles],
        [cycle.candidate_raw for cycle in cycles],
        [cycle.candidate_at for cycle in cycles],
        [cycle.start_reset_seen for cycle in cycles],
        [cycle.end_reset_seen for cycle in cycles],
    ]


def _daily_columns(changes: Changes) -> list[list[Any]]:
    days = [changes.daily[key] for key in sorted(changes.daily)]
    return [
        [day.card_id for day in days],
        [day.day for day in days],
        [day.used_bytes for day in days],
        [day.increment_bytes for day in days],
    ]


def _outbox_columns(changes: Changes) -> list[list[Any]]:
    events = changes.events
    return [
        [event.event_id for event in events],
        [event.observation.card_id for event in events],
        [event.account_id for event in events],
        [event.type for event in events],
        [event.observation.observed_at for event in events],
        [event.observation.observation_id for event in events],
        [json.dumps(event.data) for event in events],
        [event.observation.traceparent for event in events],
    ]


def _audit_columns(changes: Changes) -> list[list[Any]]:
    entries = changes.audit
    return [
        [entry.observation.card_id for entry in entries],
        [entry.observation.observation_id for entry in entries],
        [entry.action for entry in entries],
        [json.dumps(entry.detail) for entry in entries],
        [entry.observation.observed_at for entry in entries],
    ]
