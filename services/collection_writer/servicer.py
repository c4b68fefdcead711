"""The gRPC edge: records in and out."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from google.protobuf.message import DecodeError

from collection_writer.consumer import record_of
from collection_writer.domain import BatchWriter, CollectionRecord, Refusal, millisecond_of
from collection_writer.store.postgres import (
    PostgresRecordStore,
    QuarantinedBody,
    QuarantinedRecord,
    RecordFilter,
)
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError, invalid_field
from sluicegate.collection.v1 import collection_pb2, collection_pb2_grpc
from sluicegate_client.messages import CollectionMessage

_DEFAULT_PAGE = 100
_MAX_BIGINT = (1 << 63) - 1
_FIRST_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_INSTANT = datetime(9999, 12, 31, tzinfo=UTC)
_LAST_ID = UUID(int=(1 << 128) - 1)


class CollectionServicer(collection_pb2_grpc.CollectionServiceServicer):
    """Serves CollectionService.

    Args:
        writer: stores batches.
        store: reads, and keeps the quarantine.
        clock: says what the window is counted from.
    """

    def __init__(self, writer: BatchWriter, store: PostgresRecordStore, clock: Clock) -> None:
        self._writer = writer
        self._store = store
        self._clock = clock

    async def WriteRecords(  # noqa: N802
        self, request: collection_pb2.WriteRecordsRequest, context: Any
    ) -> collection_pb2.WriteRecordsResponse:
        """Store records now; those that can't be stored go to quarantine and are named."""
        del context
        records, quarantined = _read(request.records)
        result = await self._writer.write(records, self._clock.now())
        sources = {str(record.observation_id): record for record in request.records}
        quarantined += [
            _quarantined(sources[str(item.record.observation_id)], item) for item in result.refused
        ]
        if quarantined:
            await self._store.quarantine(quarantined)
        return collection_pb2.WriteRecordsResponse(
            stored_count=result.stored_count,
            duplicate_count=result.duplicate_count,
            refused=[_refused(row) for row in quarantined],
        )

    async def GetRecord(  # noqa: N802
        self, request: collection_pb2.GetRecordRequest, context: Any
    ) -> collection_pb2.GetRecordResponse:
        """Read one observation's record; its id names the partition."""
        del context
        observation_id, start, end = _observation(request.observation_id)
        record = await self._store.get(observation_id, start, end)
        if record is None:
            raise ServiceError(Reason.NOT_FOUND, f"no record of observation {observation_id}")
        return collection_pb2.GetRecordResponse(record=_shown(record))

    async def ListRecords(  # noqa: N802
        self, request: collection_pb2.ListRecordsRequest, context: Any
    ) -> collection_pb2.ListRecordsResponse:
        """Page through records, newest first."""
        del context
        size = request.page_size or _DEFAULT_PAGE
        start, end = _range(request)
        wanted = RecordFilter(card_id=request.card_id, account_id=request.account_id, start=start, end=end)
        after = _decode_token(request.page_token) if request.page_token else (_LAST_INSTANT, _LAST_ID)
        found = await self._store.page(wanted, after=after, limit=size + 1)
        more = len(found) > size
        return collection_pb2.ListRecordsResponse(
            records=[_shown(record) for record in found[:size]],
            next_page_token=_encode_token(found[size - 1]) if more else "",
        )

    async def CountRecords(  # noqa: N802
        self, request: collection_pb2.CountRecordsRequest, context: Any
    ) -> collection_pb2.CountRecordsResponse:
        """Count records by outcome in a time range."""
        del context
        start, end = _range(request)
        return collection_pb2.CountRecordsResponse(counts=await self._store.count(start, end))

    async def ListQuarantine(  # noqa: N802
        self, request: collection_pb2.ListQuarantineRequest, context: Any
    ) -> collection_pb2.ListQuarantineResponse:
        """Page through the quarantine, newest first."""
        del context
        size = request.page_size or _DEFAULT_PAGE
        before = _quarantine_token(request.page_token)
        rows = await self._store.list_quarantine(before=before, limit=size + 1)
        return collection_pb2.ListQuarantineResponse(
            items=[_quarantined_item(row) for row in rows[:size]],
            next_page_token=str(rows[size - 1]["quarantine_id"]) if len(rows) > size else "",
        )

    async def Replay(  # noqa: N802
        self, request: collection_pb2.ReplayRequest, context: Any
    ) -> collection_pb2.ReplayResponse:
        """Store quarantined rows again; those that still can't be stored stay."""
        del context
        rows = await self._store.quarantined_bodies(request.quarantine_ids)
        missing = sorted(set(request.quarantine_ids) - {row.quarantine_id for row in rows})
        if missing:
            raise ServiceError(Reason.NOT_FOUND, f"not in the quarantine: {', '.join(map(str, missing))}")
        problems = await self._replay(rows)
        done = [row.quarantine_id for row in rows if not problems[row.quarantine_id]]
        await self._store.mark_replayed(done, request.actor)
        return collection_pb2.ReplayResponse(
            results=[_replayed(row, problems[row.quarantine_id]) for row in rows],
            remaining_ids=[row.quarantine_id for row in rows if problems[row.quarantine_id]],
        )

    async def _replay(self, rows: Sequence[QuarantinedBody]) -> dict[int, str]:
        """Store rows in one batch; return for each what is wrong with it, empty when it is stored."""
        problems: dict[int, str] = {}
        records: dict[int, CollectionRecord] = {}
        for row in rows:
            try:
                records[row.quarantine_id] = record_of(_quarantined_message(row))
            except ServiceError as error:
                problems[row.quarantine_id] = error.message
        await self._writer.know_months()  # a month that was made by hand may have been the cause
        # The same record may have come by both ways: as two bodies, which are stored as one.
        result = await self._writer.write(
            list({record.key: record for record in records.values()}.values()), self._clock.now()
        )
        refused = {refusal.record.key: refusal.message for refusal in result.refused}
        return problems | {row_id: refused.get(record.key, "") for row_id, record in records.items()}


def _read(
    records: Sequence[collection_pb2.Record],
) -> tuple[list[CollectionRecord], list[QuarantinedRecord]]:
    good: list[CollectionRecord] = []
    bad: list[QuarantinedRecord] = []
    for record in records:
        try:
            good.append(record_of(_message(record)))
        except ServiceError as error:
            bad.append(_quarantined(record, Refusal(_placeholder(record), "", error.message)))
    return good, bad


def _quarantined_message(row: QuarantinedBody) -> CollectionMessage:
    """Read what was quarantined the way it came. Raises ServiceError."""
    if row.source == "message":
        return CollectionMessage.decode(row.body)
    try:
        return _message(collection_pb2.Record.FromString(row.body))
    except (DecodeError, ValueError):
        raise invalid_field("body", "is not a record") from None


def _message(record: collection_pb2.Record) -> CollectionMessage:
    try:
        reading = json.loads(record.reading_json) if record.reading_json else None
    except ValueError:
        raise invalid_field("reading_json", "is not JSON") from None
    return CollectionMessage(
        observation_id=UUID(record.observation_id),
        observed_at=_instant(record.observed_at),
        card_id=record.card_id,
        account_id=record.account_id,
        kind=record.kind,
        outcome=record.outcome,
        reading=reading,
        raw=record.raw,
        error=record.error or None,
        latency_ms=record.latency_ms,
        traceparent=record.traceparent,
    )


def _placeholder(record: collection_pb2.Record) -> CollectionRecord:
    """Stand for a record whose fields can't be read; only its ids are looked at."""
    return CollectionRecord(
        observation_id=UUID(record.observation_id),
        observed_at=_FIRST_INSTANT,
        card_id=record.card_id,
        account_id="",
        kind="",
        outcome="",
        reading=None,
        raw="",
        error=None,
        latency_ms=0,
        traceparent=None,
    )


def _quarantined(source: collection_pb2.Record, refusal: Refusal) -> QuarantinedRecord:
    return QuarantinedRecord(
        source="rpc",
        observation_id=str(refusal.record.observation_id),
        card_id=refusal.record.card_id,
        reason=refusal.message,
        sqlstate=refusal.sqlstate or None,
        body=source.SerializeToString(deterministic=True),
    )


def _refused(row: QuarantinedRecord) -> collection_pb2.RefusedRecord:
    return collection_pb2.RefusedRecord(observation_id=row.observation_id or "", message=row.reason)


def _replayed(row: QuarantinedBody, problem: str) -> collection_pb2.ReplayedRecord:
    return collection_pb2.ReplayedRecord(
        quarantine_id=row.quarantine_id,
        observation_id=row.observation_id,
        outcome="quarantined" if problem else "stored",
        message=problem,
    )


def _quarantined_item(row: Mapping[str, Any]) -> collection_pb2.QuarantinedRecord:
    return collection_pb2.QuarantinedRecord(**{**row, "body": row["body"].decode("utf-8", "replace")})


def _shown(record: CollectionRecord) -> collection_pb2.Record:
    return collection_pb2.Record(
        observation_id=str(record.observation_id),
        observed_at=record.observed_at,
        card_id=record.card_id,
        account_id=record.account_id,
        kind=record.kind,
        outcome=record.outcome,
        reading_json=record.reading or "",
        raw=record.raw,
        error=record.error or "",
        latency_ms=record.latency_ms,
        traceparent=record.traceparent or "",
        stored_at=record.stored_at,
    )


def _observation(text: str) -> tuple[UUID, datetime, datetime]:
    try:
        observation_id = UUID(text)
        return (observation_id, *millisecond_of(observation_id))
    except ValueError:
        raise invalid_field("observation_id", "should be a version 7 UUID") from None


def _range(request: Any) -> tuple[datetime, datetime]:
    # `from` is a word of Python, so the generated class has it under getattr only.
    start = _instant(getattr(request, "from")) if request.HasField("from") else _FIRST_INSTANT
    end = _instant(request.until) if request.HasField("until") else _LAST_INSTANT
    if start > end:
        raise invalid_field("until", "should not be before from")
    return start, end


def _instant(value: Any) -> datetime:
    try:
        instant: datetime = value.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise invalid_field("observed_at", "is no instant of the calendar") from None
    return instant


def _quarantine_token(token: str) -> int:
    if not token:
        return _MAX_BIGINT
    if not token.isascii() or not token.isdigit() or int(token) > _MAX_BIGINT:
        raise invalid_field("page_token", "is not one that an earlier page returned")
    return int(token)


def _encode_token(record: CollectionRecord) -> str:
    microseconds = (record.observed_at - _FIRST_INSTANT) // timedelta(microseconds=1)
    return f"{microseconds}.{record.observation_id.hex}"


def _decode_token(token: str) -> tuple[datetime, UUID]:
    microseconds, _, observation_id = token.partition(".")
    try:
        return _FIRST_INSTANT + timedelta(microseconds=int(microseconds)), UUID(observation_id)
    except (ValueError, OverflowError):
        raise invalid_field("page_token", "is not one that an earlier page returned") from None
