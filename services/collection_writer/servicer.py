"""The gRPC edge: records in and out."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from collection_writer.consumer import record_of
from collection_writer.domain import BatchWriter, CollectionRecord, Refusal, millisecond_of
from collection_writer.store.postgres import PostgresRecordStore, QuarantinedRecord, RecordFilter
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError, invalid_field
from sluicegate.collection.v1 import collection_pb2, collection_pb2_grpc
from sluicegate_client.messages import CollectionMessage

_DEFAULT_PAGE = 100
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


def _encode_token(record: CollectionRecord) -> str:
    microseconds = (record.observed_at - _FIRST_INSTANT) // timedelta(microseconds=1)
    return f"{microseconds}.{record.observation_id.hex}"


def _decode_token(token: str) -> tuple[datetime, UUID]:
    microseconds, _, observation_id = token.partition(".")
    try:
        return _FIRST_INSTANT + timedelta(microseconds=int(microseconds)), UUID(observation_id)
    except (ValueError, OverflowError):
        raise invalid_field("page_token", "is not one that an earlier page returned") from None
