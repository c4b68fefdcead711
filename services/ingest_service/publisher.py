"""Everything that leaves ingest_service through the broker, and the spans of what is applied."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from prometheus_client import Counter, Histogram

from ingest_service.clients import CollectionClient
from ingest_service.domain.observations import Observation, Outcome, Result
from ingest_service.domain.state import CardState, Changes
from ingest_service.store.redis import Caches, CardFacts
from servicekit.clock import Clock
from servicekit.errors import ServiceError
from servicekit.failures import describe
from servicekit.logs import get_logger
from servicekit.metrics import Metric, counter, histogram
from servicekit.nsq import Publisher
from servicekit.telemetry import SpanKind, enabled, extract, inject, links, set_attributes, traced, tracer
from sluicegate_client.messages import (
    CARD_COLLECTION,
    CARD_EVENT,
    CARD_INGEST,
    CardEventMessage,
    CollectionMessage,
    ObservationMessage,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_log = get_logger(__name__)


class Aftermath:
    """What follows a commit: collection records, then caches; see `ingest_service.domain.applying.AfterCommit`."""

    def __init__(
        self, publisher: Publisher, collection: CollectionClient, caches: Caches, clock: Clock
    ) -> None:
        self._publisher = publisher
        self._collection = collection
        self._caches = caches
        self._clock = clock

    async def run(self, changes: Changes, *, started_at: datetime) -> None:
        """Hand on the collection records of a batch, then mark and cache; raises ServiceError if they are not safe."""
        ended_at = self._clock.now()
        messages = []
        for result in changes.results:
            traceparent = _apply_span(result, started_at, ended_at)
            _count(result, ended_at)
            if result.outcome is not Outcome.QUARANTINED and result.account_id:
                messages.append(_collection_message(result, traceparent))
        if messages:
            await self._hand_on(messages)
        await self._write_caches(changes)

    async def probe(self) -> bool:
        """Say whether collection records can be handed on now."""
        return self._publisher.ready or await self._collection.probe()

    async def _hand_on(self, messages: Sequence[CollectionMessage]) -> None:
        try:
            await self._publisher.publish_many(CARD_COLLECTION, [message.encode() for message in messages])
        except ServiceError as error:
            _log.warning(
                "collection records go to collection_writer directly",
                count=len(messages),
                problem=describe(error),
            )
            await self._collection.write(messages)

    async def _write_caches(self, changes: Changes) -> None:
        """Write marks and facts; what is lost here costs a trip, and the next change writes the facts again."""
        done = [
            result.observation.observation_id
            for result in changes.results
            if result.outcome in {Outcome.APPLIED, Outcome.STALE, Outcome.DUPLICATE}
        ]
        facts = [_facts(changes.cards[card_id]) for card_id in changes.facts]
        try:
            await self._caches.write(done=done, facts=facts)
        except ServiceError as error:
            _log.warning("marks and card facts were not written", problem=describe(error))


class Outgoing:
    """Publishes events and submitted observations. Methods raise ServiceError when nsqd is away."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def publish_events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Publish rows of the outbox; returns once nsqd has all of them."""
        bodies = [
            CardEventMessage(
                event_id=row["event_id"],
                card_id=row["card_id"],
                account_id=row["account_id"],
                type=row["event_type"],
                observed_at=row["observed_at"],
                observation_id=row["observation_id"],
                data=json.loads(row["data"]),
                traceparent=row["traceparent"],
            ).encode()
            for row in rows
        ]
        with traced(
            "publish events",
            linked=links(row["traceparent"] for row in rows),
            topic=CARD_EVENT,
            count=len(rows),
        ):
            await self._publisher.publish_many(CARD_EVENT, bodies)

    async def publish_observations(self, messages: Sequence[ObservationMessage]) -> None:
        """Publish observations to be applied later; returns once nsqd has all of them."""
        await self._publisher.publish_many(CARD_INGEST, [message.encode() for message in messages])


@contextmanager
def batch_scope(lane: int, observations: Sequence[Observation]) -> Iterator[None]:
    """Wrap the work on one batch in a span that links to every message of it."""
    linked = links(observation.traceparent for observation in observations) if enabled() else ()
    with (
        traced("consume", kind=SpanKind.CONSUMER, linked=linked, lane=lane, count=len(observations)),
        histogram(Metric.LANE_SECONDS).labels(lane=str(lane)).time(),
    ):
        histogram(Metric.BATCH_ITEMS).labels(batch="apply").observe(len(observations))
        yield


def _facts(card: CardState) -> CardFacts:
    return CardFacts(
        card_id=card.card_id,
        version=card.version + 1,
        account_id=card.account_id,
        lifecycle=card.lifecycle,
        polling_enabled=card.polling_enabled,
        network_status=card.network.status,
        realname_status=card.realname.status,
    )


def _apply_span(result: Result, started_at: datetime, ended_at: datetime) -> str:
    """Record the span of one applied observation and return its trace context for what follows it."""
    observation = result.observation
    if not enabled():
        return observation.traceparent
    span = tracer().start_span(
        "apply",
        context=extract(observation.traceparent),
        links=links([inject()]),
        start_time=_nanoseconds(started_at),
    )
    set_attributes(
        span,
        observation_id=observation.observation_id,
        card_id=observation.card_id,
        account_id=result.account_id,
        kind=observation.kind,
        outcome=result.outcome,
        source=observation.source,
    )
    span.end(_nanoseconds(ended_at))
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _count(result: Result, ended_at: datetime) -> None:
    observation = result.observation
    _counter(observation.kind.value, result.outcome.value).inc()
    if result.outcome is Outcome.APPLIED:
        age = (ended_at - observation.observed_at).total_seconds()
        _ages(observation.kind.value).observe(max(0.0, age))


@cache
def _counter(kind: str, outcome: str) -> Counter:
    return counter(Metric.OBSERVATIONS).labels(kind=kind, outcome=outcome)


@cache
def _ages(kind: str) -> Histogram:
    return histogram(Metric.OBSERVATION_AGE_SECONDS).labels(kind=kind)


def _collection_message(result: Result, traceparent: str) -> CollectionMessage:
    observation = result.observation
    return CollectionMessage(
        observation_id=observation.observation_id,
        observed_at=observation.observed_at,
        card_id=observation.card_id,
        account_id=result.account_id,
        kind=observation.kind.value,
        outcome="success",
        reading=observation.reading,
        raw=observation.raw,
        latency_ms=observation.latency_ms,
        traceparent=traceparent,
    )


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000
