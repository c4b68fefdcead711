"""Keep one channel: its queue, what is in flight, what is deferred, and who is subscribed."""

import heapq
import itertools
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from devbroker.faults import Faults
from devbroker.options import BrokerOptions
from devbroker.wire import CommandError


@dataclass(slots=True)
class StoredMessage:
    """One message of a topic or channel; `attempts` counts its deliveries on this channel."""

    id: bytes
    body: bytes
    timestamp_ns: int
    attempts: int = 0

    def copy(self) -> "StoredMessage":
        """Return the same message for another channel, never delivered there."""
        return replace(self, attempts=0)


class Subscriber(Protocol):
    """Receive the messages of one channel."""

    msg_timeout: float
    in_flight_count: int

    def is_ready(self) -> bool:
        """Say whether one more message may be sent now."""

    def deliver(self, message: StoredMessage) -> None:
        """Send the message; never blocks."""

    def released(self) -> None:
        """Count one message less in flight after it timed out."""

    def stats(self) -> dict[str, Any]:
        """Return the fields of `clients[]` in `/stats`."""

    def hang_up(self) -> None:
        """Close the connection."""


@dataclass(slots=True)
class _InFlight:
    message: StoredMessage
    owner: Subscriber
    delivered_at: float
    expires_at: float


class Channel:
    """Deliver every message to one subscriber until it is finished; times are loop times in seconds."""

    def __init__(
        self, name: str, options: BrokerOptions, faults: Faults, *, now: Callable[[], float]
    ) -> None:
        self.name = name
        self._options = options
        self._faults = faults
        self._now = now
        self._queue: deque[StoredMessage] = deque()
        self._in_flight: dict[bytes, _InFlight] = {}
        self._deferred: list[tuple[float, int, StoredMessage]] = []
        self._order = itertools.count()
        self._subscribers: deque[Subscriber] = deque()
        self._message_count = 0
        self._requeue_count = 0
        self._timeout_count = 0

    def put(self, message: StoredMessage, delay: float = 0.0) -> None:
        """Queue a message, or defer it by `delay` seconds."""
        self._message_count += 1
        if delay > 0:
            self._defer(message, delay)
            return
        self._queue.append(message)
        self.pump()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Let the subscriber receive messages once it is ready."""
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Send nothing more; as on nsqd, what it holds stays in flight until its timeout."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    def finish(self, owner: Subscriber, message_id: bytes) -> None:
        """Forget a message for good; refuses with E_FIN_FAILED if `owner` does not hold it."""
        self._pop(owner, message_id, command="FIN")

    def requeue(self, owner: Subscriber, message_id: bytes, delay: float) -> None:
        """Take a message back for `delay` seconds; refuses with E_REQ_FAILED if `owner` does not hold it."""
        held = self._pop(owner, message_id, command="REQ")
        self._requeue_count += 1
        if delay > 0:
            self._defer(held.message, min(delay, self._options.max_req_timeout))
        else:
            self._queue.append(held.message)

    def touch(self, owner: Subscriber, message_id: bytes) -> None:
        """Restart a message's timeout, up to max_msg_timeout after its delivery."""
        held = self._pop(owner, message_id, command="TOUCH")
        latest = held.delivered_at + self._options.max_msg_timeout
        held.expires_at = min(self._now() + owner.msg_timeout, latest)
        self._in_flight[message_id] = held

    def pump(self) -> None:
        """Deliver queued messages to ready subscribers, in turn."""
        waiting = len(self._subscribers)
        while self._queue and waiting:
            subscriber = self._subscribers[0]
            self._subscribers.rotate(-1)
            if not subscriber.is_ready():
                waiting -= 1
                continue
            waiting = len(self._subscribers)
            self._deliver(self._queue.popleft(), subscriber)

    def expire(self) -> None:
        """Queue again what timed out and what is due; called at every queue scan."""
        now = self._now()
        for held in [held for held in self._in_flight.values() if held.expires_at <= now]:
            del self._in_flight[held.message.id]
            self._timeout_count += 1
            held.owner.released()
            self._queue.append(held.message)
        while self._deferred and self._deferred[0][0] <= now:
            self._queue.append(heapq.heappop(self._deferred)[2])
        self.pump()

    def empty(self) -> None:
        """Drop every message, whatever its state."""
        self._queue.clear()
        self.lose_in_flight()

    def lose_in_flight(self) -> int:
        """Drop what is in flight or deferred, as a killed nsqd does, and return how many that were."""
        lost = len(self._in_flight) + len(self._deferred)
        for held in self._in_flight.values():
            held.owner.released()
        self._in_flight.clear()
        self._deferred.clear()
        return lost

    def hang_up(self) -> None:
        """Close every subscriber's connection, as deleting the channel does."""
        for subscriber in list(self._subscribers):
            subscriber.hang_up()

    def stats(self) -> dict[str, Any]:
        """Return the fields of `channels[]` in `/stats`."""
        clients = [subscriber.stats() for subscriber in self._subscribers]
        return {
            "channel_name": self.name,
            "depth": len(self._queue),
            "backend_depth": 0,
            "in_flight_count": len(self._in_flight),
            "deferred_count": len(self._deferred),
            "message_count": self._message_count,
            "requeue_count": self._requeue_count,
            "timeout_count": self._timeout_count,
            "client_count": len(clients),
            "clients": clients,
            "paused": False,
            "e2e_processing_latency": {"count": 0, "percentiles": None},
        }

    def _deliver(self, message: StoredMessage, subscriber: Subscriber) -> None:
        message.attempts += 1
        now = self._now()
        expires_at = now + subscriber.msg_timeout
        self._in_flight[message.id] = _InFlight(message, subscriber, now, expires_at)
        subscriber.deliver(message)
        if self._faults.take("duplicate_deliveries"):
            self._queue.append(replace(message, id=secrets.token_hex(8).encode()))
        if self._faults.take("repeated_ids"):
            subscriber.deliver(message)

    def _defer(self, message: StoredMessage, delay: float) -> None:
        heapq.heappush(self._deferred, (self._now() + delay, next(self._order), message))

    def _pop(self, owner: Subscriber, message_id: bytes, *, command: str) -> _InFlight:
        held = self._in_flight.get(message_id)
        if held is None or held.owner is not owner:
            detail = "ID not in flight" if held is None else "client does not own message"
            text = f"{command} {message_id.decode('latin-1')} failed {detail}"
            raise CommandError(f"E_{command}_FAILED", text, fatal=False)
        del self._in_flight[message_id]
        return held
