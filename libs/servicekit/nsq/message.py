"""One message in hand."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from nsq import protocol

from servicekit.nsq.connection import BrokerConnection

_NANOSECONDS_PER_MICROSECOND = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message:
    """Be one delivery; it ends once: by `finish`, by `requeue`, or lost with its connection, and then it comes again.

    Attributes:
        body: the published bytes.
        attempts: number of deliveries so far, this one included; nsqd counts to 65,535 and wraps.
        received: monotonic seconds of its arrival here.
    """

    __slots__ = ("_connection", "_id", "_on_end", "_timestamp_ns", "attempts", "body", "received")

    def __init__(
        self,
        connection: BrokerConnection,
        message_id: bytes,
        body: bytes,
        *,
        attempts: int,
        timestamp_ns: int,
        received: float,
        on_end: Callable[["Message"], None],
    ) -> None:
        self.body = body
        self.attempts = attempts
        self.received = received
        self._id = message_id
        self._timestamp_ns = timestamp_ns
        self._connection: BrokerConnection | None = connection
        self._on_end = on_end

    @property
    def id(self) -> str:
        """The id that nsqd gave it, the same at every delivery on a channel."""
        return self._id.decode("ascii")

    @property
    def timestamp(self) -> datetime:
        """When nsqd took the message: aware, UTC, microseconds."""
        return _EPOCH + timedelta(microseconds=self._timestamp_ns // _NANOSECONDS_PER_MICROSECOND)

    @property
    def ended(self) -> bool:
        """Say whether it was finished, requeued or lost."""
        return self._connection is None

    async def finish(self) -> bool:
        """Tell nsqd that the message is done with; never blocks.

        Returns:
            False if it had ended before. True is no proof: on a dying connection nsqd may deliver it again.
        """
        return self._end(b"FIN %b\n" % self._id)

    async def requeue(self, delay: timedelta = timedelta()) -> bool:
        """Give the message back, to be delivered again after `delay` (nsqd: at most an hour); never blocks.

        Returns:
            False if it had ended before.
        """
        return self.hand_back(delay)

    def touch(self) -> None:
        """Restart nsqd's timeout for this message, which reaches at most max-msg-timeout (15 min) from its delivery."""
        if self._connection is not None:
            _send(self._connection, protocol.touch(self._id))

    def hand_back(self, delay: timedelta = timedelta()) -> bool:
        """Do what `requeue` does, from code that is not a coroutine."""
        # whole milliseconds: pynsq replaces a float by 90 s per attempt, and nsqd takes no fraction
        return self._end(protocol.requeue(self._id, max(0, round(delay / timedelta(milliseconds=1)))))

    def lose(self) -> None:
        """Note that the connection is gone and with it this delivery."""
        self._end(None)

    def _end(self, command: bytes | None) -> bool:
        connection, self._connection = self._connection, None
        if connection is None:
            return False
        self._on_end(self)
        return command is not None and _send(connection, command)


def _send(connection: BrokerConnection, command: bytes) -> bool:
    try:
        connection.send(command)
    except OSError:
        return False  # its end is told to everybody by the connection itself
    return True
