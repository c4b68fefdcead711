"""The NSQ edge of ``card.ingest``: a message is finished when its effect and its collection record are safe."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ingest_service.domain.applying import Deferred
from ingest_service.domain.lanes import Lanes
from ingest_service.domain.observations import Kind, Observation, Outcome, Result
from ingest_service.domain.settling import Settler
from ingest_service.store.redis import Caches
from servicekit.breaker import Breaker
from servicekit.clock import Clock
from servicekit.errors import ServiceError
from servicekit.failures import is_away
from servicekit.logs import get_logger
from servicekit.metrics import Metric, counter
from servicekit.nsq import Consumer, Message, NsqAddresses
from sluicegate_client.messages import CARD_INGEST, NewerSchemaError, ObservationMessage

CHANNEL = "ingest_service"
_RAMP_START = 4

_log = get_logger(__name__)
_T = TypeVar("_T")


class IngestConsumer:
    """Applies what comes on ``card.ingest``. A Component.

    While a dependency is away nothing new is taken and what is in hand is kept; afterwards the number in hand
    grows back from a quarter. Draining finishes what is held, or hands it back.

    Args:
        nsq: where nsqd is.
        concurrency: messages in hand at once.
        lanes: apply observations.
        settler: keeps what is not applied.
        caches: show that a redelivered message was settled before.
        breaker: open while a dependency is away; opening calls `pause`, closing `resume`.
        clock: decides about reconnecting.
    """

    name = "ingest_consumer"

    def __init__(
        self,
        nsq: NsqAddresses,
        *,
        concurrency: int,
        lanes: Lanes,
        settler: Settler,
        caches: Caches,
        breaker: Breaker,
        clock: Clock,
    ) -> None:
        self._lanes = lanes
        self._settler = settler
        self._caches = caches
        self._breaker = breaker
        self._full = concurrency
        self._limit = concurrency
        self._until_wider = 0
        self._consumer = Consumer(nsq, CARD_INGEST, CHANNEL, self.handle, concurrency, clock=clock)

    @property
    def in_flight(self) -> int:
        """How many messages are in hand."""
        return self._consumer.in_flight

    @property
    def connected(self) -> bool:
        """Whether the channel is subscribed now."""
        return self._consumer.connected

    async def start(self) -> None:
        """Begin to take messages."""
        await self._consumer.start()

    async def drain(self) -> None:
        """Take nothing new and finish what is held; what can't be finished now is handed back."""
        self._consumer.pause()
        await self._consumer.drain()

    async def stop(self) -> None:
        """Let go of everything; what is in hand comes again."""
        await self._consumer.stop()

    def pause(self) -> None:
        """Take nothing new; what is in hand stays in hand and is touched."""
        self._consumer.pause()

    def resume(self) -> None:
        """Take messages again, a quarter as many at first."""
        self._limit = max(1, self._full // _RAMP_START)
        self._until_wider = self._limit
        self._consumer.resume(self._limit)

    async def handle(self, message: Message) -> None:
        """Apply one message and finish it. Blocks as long as a dependency is away."""
        try:
            decoded = ObservationMessage.decode(message.body)
        except NewerSchemaError as error:
            await self._park(message, error)
            return
        except ServiceError as error:
            await self._refuse(message, error)
            return
        if message.attempts > 1 and await self._caches.known([decoded.observation_id]):
            # The mark is written after the collection record is safe.
            await self._finish(message, "settled before")
            return
        answer = await self._lanes.apply(observation_of(decoded), hold=True)
        await self._insist(lambda: self._settler.settle(answer, message.body))
        note(answer)
        await self._finish(message, "deferred" if isinstance(answer, Deferred) else answer.outcome.value)

    async def _park(self, message: Message, error: NewerSchemaError) -> None:
        major = int(error.schema_version.partition(".")[0])
        await self._insist(lambda: self._settler.park(message.body, major=major, reason=error.message))
        _log.warning("a message of a later version waits for its reader", schema_version=error.schema_version)
        await self._finish(message, "parked")

    async def _refuse(self, message: Message, error: ServiceError) -> None:
        await self._insist(lambda: self._settler.quarantine(message.body, reason=error.message))
        counter(Metric.QUARANTINED).labels(origin="ingest", reason="undecodable").inc()
        _log.error("observation quarantined", reason=error.message)
        await self._finish(message, "undecodable")

    async def _insist(self, write: Callable[[], Awaitable[_T]]) -> _T:
        """Write something that must not be lost, however long the database is away."""
        while True:
            try:
                return await write()
            except Exception as error:
                if not is_away(error):
                    raise
                await self._breaker.trip(error)
            await self._breaker.wait_closed()

    async def _finish(self, message: Message, outcome: str) -> None:
        await message.finish()
        counter(Metric.CONSUMED).labels(topic=CARD_INGEST, outcome=outcome).inc()
        self._widen()

    def _widen(self) -> None:
        """After an outage, double what is in hand each time as many messages were finished."""
        if self._limit >= self._full or self._breaker.is_open:
            return
        self._until_wider -= 1
        if self._until_wider <= 0:
            self._limit = min(self._full, self._limit * 2)
            self._until_wider = self._limit
            self._consumer.resume(self._limit)


def observation_of(message: ObservationMessage) -> Observation:
    """Turn a valid message into what is applied."""
    total, delta = message.reading.get("total_bytes"), message.reading.get("delta_bytes")
    return Observation(
        observation_id=message.observation_id,
        card_id=message.card_id,
        account_id=message.account_id,
        kind=Kind(message.kind),
        observed_at=message.observed_at,
        total_bytes=total if isinstance(total, int) else None,
        delta_bytes=delta if isinstance(delta, int) else None,
        status=str(message.reading.get("status", "")),
        raw=message.raw,
        source=message.source,
        traceparent=message.traceparent,
        latency_ms=message.latency_ms,
    )


def note(answer: Result | Deferred) -> None:
    """Log what a person may have to know about an observation that changed nothing."""
    observation = answer.observation
    ids = {"observation_id": str(observation.observation_id), "card_id": observation.card_id}
    if isinstance(answer, Deferred):
        _log.warning("observation waits", problem=answer.error.message, sqlstate=answer.error.sqlstate, **ids)
    elif answer.outcome is Outcome.QUARANTINED:
        counter(Metric.QUARANTINED).labels(origin="ingest", reason=answer.sqlstate or "rule").inc()
        _log.error("observation quarantined", reason=answer.message, sqlstate=answer.sqlstate, **ids)
    elif answer.outcome in {Outcome.NOT_FOUND, Outcome.TOO_OLD}:
        _log.warning("observation not applied", outcome=answer.outcome.value, reason=answer.message, **ids)
    elif answer.outcome is Outcome.STALE:
        _log.info("observation is stale", **ids)
