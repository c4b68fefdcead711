"""Events out: observations and collection records, over NSQ or, when that is away, by RPC; and the traces of polls."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from poller.clients import CollectionClient, IngestClient
from poller.domain.mode import ModeCache
from poller.domain.model import Applied, Mode, Polled
from servicekit.clock import Clock
from servicekit.coalescing import Coalescer
from servicekit.errors import Reason, ServiceError
from servicekit.failures import describe
from servicekit.logs import get_logger
from servicekit.metrics import Metric, counter
from servicekit.nsq import Publisher
from servicekit.telemetry import Span, inject, set_attributes, traced
from sluicegate_client.messages import CARD_COLLECTION, CARD_INGEST, CollectionMessage, ObservationMessage

_MOST_OBSERVATIONS = 200
_APPLY_LANES = 2

_log = get_logger(__name__)


class MessageDelivery:
    """Hands on what steps gave, so that nothing is lost while one of the two ways works.

    Args:
        publisher: to nsqd.
        ingest: applies observations when the mode is ``sync`` or nsqd is away.
        collection: stores records when nsqd is away.
        mode: how observations go.
        clock: dates publishing.
    """

    def __init__(
        self,
        publisher: Publisher,
        ingest: IngestClient,
        collection: CollectionClient,
        *,
        mode: ModeCache,
        clock: Clock,
    ) -> None:
        self._publisher = publisher
        self._collection = collection
        self._mode = mode
        self._clock = clock
        self._applying: Coalescer[Polled, Applied] = Coalescer(
            ingest.apply, max_items=_MOST_OBSERVATIONS, lanes=_APPLY_LANES
        )

    async def observations(self, items: Sequence[Polled]) -> None:
        """Publish or apply observations, as the mode says. Raises ServiceError when neither works."""
        if await self._mode.get() is Mode.SYNC:
            await self.apply(items)
            return
        bodies = [self._observation(item).encode() for item in items]
        if not await self._publish(CARD_INGEST, bodies):
            await self.apply(items)

    async def apply(self, items: Sequence[Polled]) -> Sequence[Applied]:
        """Apply observations now, together with those of other steps. Raises ServiceError."""
        return await self._applying.submit(items)

    async def records(self, items: Sequence[Polled]) -> None:
        """Publish failures and empty answers, or write them by RPC. Raises ServiceError when neither works."""
        messages = [_record(item) for item in items]
        if not await self._publish(CARD_COLLECTION, [message.encode() for message in messages]):
            await self._collection.write(messages)

    async def _publish(self, topic: str, bodies: Sequence[bytes]) -> bool:
        try:
            await self._publisher.publish_many(topic, bodies)
        except ServiceError as error:
            counter(Metric.PUBLISHED).labels(topic=topic, outcome="failed").inc(len(bodies))
            if error.reason is not Reason.DEPENDENCY_AWAY:
                raise
            _log.warning("not published, handed on by RPC instead", topic=topic, problem=describe(error))
            return False
        counter(Metric.PUBLISHED).labels(topic=topic, outcome="published").inc(len(bodies))
        return True

    def _observation(self, item: Polled) -> ObservationMessage:
        return ObservationMessage(
            observation_id=item.observation_id,
            card_id=item.card_id,
            account_id=item.account_id,
            kind=item.kind,
            observed_at=item.observed_at,
            published_at=self._clock.now(),
            reading=item.reading or {},
            raw=item.raw,
            source="poll",
            traceparent=item.traceparent,
            latency_ms=item.latency_ms,
        )


class PollTracing:
    """Begins one trace per poll."""

    @contextmanager
    def poll(self, account_id: str, card_id: str, kind: str) -> Iterator["TracedPoll"]:
        """Run a block inside the root span of one poll."""
        with traced("poll", card_id=card_id, account_id=account_id) as span:
            set_attributes(span, kind=kind)
            yield TracedPoll(span)


class TracedPoll:
    """The root span of one poll, and the counters that go with it."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.traceparent = inject()

    def note(self, polled: Polled) -> None:
        """Write down what the poll gave."""
        counter(Metric.POLLS).labels(
            account=polled.account_id, kind=polled.kind, outcome=polled.outcome
        ).inc()
        if self._span.is_recording():
            set_attributes(
                self._span,
                observation_id=polled.observation_id,
                outcome=polled.outcome,
                reason=polled.error or None,
            )


def _record(item: Polled) -> CollectionMessage:
    return CollectionMessage(
        observation_id=item.observation_id,
        observed_at=item.observed_at,
        card_id=item.card_id,
        account_id=item.account_id,
        kind=item.kind,
        outcome=item.outcome,
        raw=item.raw,
        error=item.error or None,
        latency_ms=item.latency_ms,
        traceparent=item.traceparent,
    )
