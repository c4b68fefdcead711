"""The NSQ edge: messages become batches, and only what is stored or quarantined is finished."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from collection_writer.domain import BatchWriter, CollectionRecord, Refusal
from collection_writer.settings import BatchSettings
from collection_writer.store.postgres import PostgresRecordStore, QuarantinedRecord
from servicekit.batching import Batcher
from servicekit.breaker import Breaker
from servicekit.clock import Clock
from servicekit.errors import ServiceError
from servicekit.failures import describe
from servicekit.logs import get_logger
from servicekit.metrics import Metric, counter
from servicekit.nsq import Consumer, Message, NsqAddresses
from servicekit.sqlstate import FailureClass, classify
from servicekit.telemetry import Span, extract, links, set_attributes, traced, tracer
from sluicegate_client.messages import CARD_COLLECTION, CollectionMessage

CHANNEL = "collection_writer"
_LOUD_ATTEMPT = 10
_MOST_IMMEDIATE_ATTEMPTS = 3
_IMMEDIATE_PAUSE_SECONDS = 0.05

_log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Held:
    """A message in hand: either its record, or why it can't be one."""

    message: Message
    record: CollectionRecord | None
    problem: str
    span: Span


class CollectionConsumer:
    """Stores what comes on ``card.collection``. A Component.

    Messages wait for a batch of ``max_rows`` or ``max_age``; one batch is written at a time. While the database is
    away nothing new is taken and what is in hand is kept. Draining writes what is held, or hands it back if the
    database is away.

    Args:
        nsq: where nsqd is.
        settings: sizes and times.
        writer: stores batches.
        store: keeps the quarantine, and is probed while it is away.
        clock: measures ages.
    """

    name = "collection_consumer"

    def __init__(
        self,
        nsq: NsqAddresses,
        settings: BatchSettings,
        *,
        writer: BatchWriter,
        store: PostgresRecordStore,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._store = store
        self._clock = clock
        self._consumer = Consumer(
            nsq, CARD_COLLECTION, CHANNEL, self.handle, settings.max_in_flight, clock=clock
        )
        self._batcher: Batcher[Held] = Batcher(
            self._flush,
            max_items=settings.max_rows,
            max_age_seconds=settings.max_age.total_seconds(),
            clock=clock,
            max_waiting=settings.max_in_flight,
            name="collection",
        )
        self._breaker = Breaker(
            store.probe, self._consumer.pause, self._consumer.resume, clock, name="collection"
        )
        self._draining = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Return how many messages are in hand."""
        return self._consumer.in_flight

    async def start(self) -> None:
        """Begin to take messages."""
        await self._batcher.start()
        await self._consumer.start()

    async def drain(self) -> None:
        """Take nothing new, write what is held, hand back what can't be written now."""
        self._draining.set()
        self._consumer.pause()
        await self._batcher.drain()
        await self._consumer.drain()

    async def stop(self) -> None:
        """Let go of everything."""
        await self._consumer.stop()
        await self._breaker.stop()
        await self._batcher.stop()

    async def handle(self, message: Message) -> None:
        """Take one message into the next batch; it is finished when its batch is stored."""
        await self._batcher.add(_held(message))

    async def _flush(self, batch: list[Held]) -> None:
        with traced(
            "collection flush",
            linked=links(held.record.traceparent for held in batch if held.record is not None),
            count=len(batch),
        ):
            stored = await self._keep_trying(batch)
        for held in batch:
            if stored:
                await held.message.finish()
            held.span.end()

    async def _keep_trying(self, batch: Sequence[Held]) -> bool:
        """Store a batch, however long it takes; False when the process has to stop before that."""
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._write(batch)
            except Exception as error:  # noqa: BLE001 - the consumer's shell: nothing may be dropped
                if not await self._wait_for_next(error, attempt):
                    return False
            else:
                return True

    async def _write(self, batch: Sequence[Held]) -> None:
        by_key = {held.record.key: held for held in batch if held.record is not None}
        result = await self._writer.write(
            [held.record for held in by_key.values() if held.record is not None], self._clock.now()
        )
        rows = [_undecodable(held) for held in batch if held.record is None]
        rows += [_refused(by_key[refusal.record.key].message, refusal) for refusal in result.refused]
        if rows:
            await self._store.quarantine(rows)
        _note(result.stored_count, len(batch) - len(rows) - result.stored_count, rows)

    async def _wait_for_next(self, error: Exception, attempt: int) -> bool:
        """Wait until trying again makes sense; False when draining comes first."""
        failure = classify(error)
        log = _log.error if attempt >= _LOUD_ATTEMPT else _log.warning
        log(
            "collection records not stored yet",
            attempt=attempt,
            problem=describe(error),
            failure=failure.value,
        )
        if failure is FailureClass.RETRY_NOW and attempt <= _MOST_IMMEDIATE_ATTEMPTS:
            await self._clock.sleep(_IMMEDIATE_PAUSE_SECONDS * random.random())  # noqa: S311 - spreads load
            return True
        await self._breaker.trip(error)
        closing = asyncio.ensure_future(self._breaker.wait_closed())
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait({closing, draining}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
            draining.cancel()
        return not self._draining.is_set()


def record_of(message: CollectionMessage) -> CollectionRecord:
    """Turn a valid message into the row it becomes."""
    reading = None if message.reading is None else json.dumps(dict(message.reading), separators=(",", ":"))
    return CollectionRecord(
        observation_id=message.observation_id,
        observed_at=message.observed_at,
        card_id=message.card_id,
        account_id=message.account_id,
        kind=message.kind,
        outcome=message.outcome,
        reading=reading,
        raw=message.raw,
        error=message.error,
        latency_ms=message.latency_ms,
        traceparent=message.traceparent or None,
    )


def _held(message: Message) -> Held:
    try:
        record = record_of(CollectionMessage.decode(message.body))
    except ServiceError as error:
        return Held(message, None, error.message, _span(None, message))
    return Held(message, record, "", _span(record, message))


def _span(record: CollectionRecord | None, message: Message) -> Span:
    span = tracer().start_span("collect", context=extract(record.traceparent if record else None))
    if record is not None and span.is_recording():
        set_attributes(
            span,
            observation_id=record.observation_id,
            card_id=record.card_id,
            account_id=record.account_id,
            outcome=record.outcome,
            delivery_attempts=message.attempts,
        )
    return span


def _undecodable(held: Held) -> QuarantinedRecord:
    return QuarantinedRecord(
        source="message",
        observation_id=None,
        card_id=None,
        reason=held.problem,
        sqlstate=None,
        body=held.message.body,
    )


def _refused(message: Message, refusal: Refusal) -> QuarantinedRecord:
    return QuarantinedRecord(
        source="message",
        observation_id=str(refusal.record.observation_id),
        card_id=refusal.record.card_id,
        reason=refusal.message,
        sqlstate=refusal.sqlstate or None,
        body=message.body,
    )


def _note(stored_count: int, duplicate_count: int, quarantined: Sequence[QuarantinedRecord]) -> None:
    counter(Metric.COLLECTION_ROWS).labels(outcome="stored").inc(stored_count)
    counter(Metric.COLLECTION_ROWS).labels(outcome="duplicate").inc(duplicate_count)
    for row in quarantined:
        counter(Metric.QUARANTINED).labels(origin="collection", reason=row.sqlstate or "undecodable").inc()
        _log.error(
            "collection record quarantined",
            observation_id=row.observation_id,
            card_id=row.card_id,
            reason=row.reason,
            sqlstate=row.sqlstate,
        )
