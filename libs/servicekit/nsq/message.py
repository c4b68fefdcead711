"""One message in hand."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from servicekit.nsq.connection import BrokerConnection

_ATTEMPTS_MASK = 0xFFFF
_NANOSECONDS_PER_MICROSECOND = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message:
    """Be one delivery; it ends once: by `finish`, by `requeue`, or lost with its connection, and then it comes again.

    Attributes:
        body: the published bytes.
        id: nsqd's id, the same at every delivery on a channel.
        attempts: number of deliveries so far, this one included; nsqd counts to 65,535.
        timestamp: when nsqd took the message.
        received: monotonic seconds of its arrival here.
    """

    __slots__ = ("_connection", "_on_end", "_raw", "attempts", "body", "id", "received", "timestamp")

    def __init__(
        self, raw: Any, connection: BrokerConnection, *, received: float, on_end: Callable[["Message"], None]
    ) -> None:
        raw.enable_async()
        self.body: bytes = raw.body
        self.id: str = raw.id.decode("ascii")
        self.attempts: int = raw.attempts & _ATTEMPTS_MASK  # pynsq reads it signed
        self.timestamp: datetime = _EPOCH + timedelta(
            microseconds=raw.timestamp // _NANOSECONDS_PER_MICROSECOND
        )
        self.received = received
        self._raw = raw
        self._connection: BrokerConnection | None = connection
        self._on_end = on_end

    @property
    def ended(self) -> bool:
        """Say whether it was finished, requeued or lost."""
        return self._connection is None

    async def finish(self) -> bool:
        """Tell nsqd that the message is done with; never blocks.

        Returns:
            False if it had ended before. True is no proof: on a dying connection nsqd may deliver it again.
        """
        if not self._end():
            return False
        self._raw.finish()
        return True

    async def requeue(self, delay: timedelta = timedelta()) -> bool:
        """Give the message back, to be delivered again after `delay` (nsqd: at most an hour); never blocks.

        Returns:
            False if it had ended before.
        """
        return self.hand_back(delay)

    def touch(self) -> None:
        """Restart nsqd's timeout for this message, which reaches at most max-msg-timeout (15 min) from its delivery."""
        if self._connection is not None and self._connection.connected():
            self._raw.touch()

    def hand_back(self, delay: timedelta = timedelta()) -> bool:
        """Do what `requeue` does, from code that is not a coroutine."""
        if not self._end():
            return False
        # an integer, or pynsq takes 90 s x attempts; and its backoff would throttle every message
        self._raw.requeue(time_ms=max(0, round(delay / timedelta(milliseconds=1))), backoff=False)
        return True

    def lose(self) -> None:
        """Note that the connection is gone and with it this delivery."""
        self._end()

    def _end(self) -> bool:
        connection, self._connection = self._connection, None
        if connection is None:
            return False
        self._on_end(self)
        return bool(connection.connected())
