"""Consume one channel: a bounded number of messages in hand, each in a task of its own."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nsq import event, protocol

from servicekit.clock import Clock, SystemClock
from servicekit.logs import get_logger
from servicekit.nsq.connection import BrokerConnection, error_text
from servicekit.nsq.frames import PRIMER_BODY, check_channel, check_topic
from servicekit.nsq.link import Link
from servicekit.nsq.message import Message
from servicekit.nsq.tuning import NsqAddresses, NsqTuning

_CLOSE_SECONDS = 1.0
_LATE_MESSAGE_SECONDS = 0.05
_PAUSED_DRAIN_SECONDS = 1.0
_HARMLESS = ("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED")
_NOT_RELEASED = _HARMLESS[:2]

_log = get_logger(__name__)

Handler = Callable[[Message], Awaitable[None]]


@dataclass(slots=True)
class ConsumerCounts:
    """Count since the start: deliveries, failed handler calls, messages lost with a connection, answers too late."""

    received: int = 0
    failed: int = 0
    lost: int = 0
    late: int = 0


class Consumer:
    """Hand each message to `handler`, with at most `max_in_flight` in hand.

    The handler ends the message itself, now or later (a batch may end it after the handler returned). What is in hand
    is touched, so that nsqd does not deliver it elsewhere, for up to 15 minutes. A handler's exception is logged, and
    nsqd delivers that message again after `failure_delay`. Nothing else is requeued but what is left at the end of a
    drain, and nothing is dropped, however often it was attempted.

    After a crash nsqd may deliver one message twice under one id. It then counts two in flight, releases one, and takes
    the other off RDY for as long as the connection lives (seen in 1.3.0, `Channel.pushInFlightMessage`); enough of them
    and nothing is delivered any more. So a connection on which an end was refused is replaced as soon as nothing is in
    hand, or at once when half of `max_in_flight` may be gone.

    Args:
        settings: where nsqd is.
        topic: what to consume.
        channel: as whom.
        handler: called once per delivery, each call in a task of its own.
        max_in_flight: at least 1; nsqd caps it at --max-rdy-count (2,500).
        clock: decides about reconnecting and touching.
        tuning: time limits and sizes.

    Raises:
        ServiceError: INVALID_FIELD if the topic or channel is no NSQ name.
    """

    def __init__(
        self,
        settings: NsqAddresses,
        topic: str,
        channel: str,
        handler: Handler,
        max_in_flight: int,
        *,
        clock: Clock | None = None,
        tuning: NsqTuning | None = None,
    ) -> None:
        check_topic(topic)
        check_channel(channel)
        self.name = f"nsq consumer {topic}/{channel}"
        self.counts = ConsumerCounts()
        self._topic = topic
        self._channel = channel
        self._handler = handler
        self._limit = max_in_flight
        self._clock = clock or SystemClock()
        self._tuning = tuning or NsqTuning()
        self._link = Link(
            self.name,
            settings.nsqd_tcp,
            clock=self._clock,
            tuning=self._tuning,
            on_open=self._opened,
            on_close=self._closed,
        )
        self._held: dict[Message, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._settled = asyncio.Event()
        self._settled.set()
        self._answer: asyncio.Future[None] | None = None
        self._toucher: asyncio.Task[None] | None = None
        self._paused = False
        self._draining = False
        self._unreleased = 0

    @property
    def connected(self) -> bool:
        """Say whether the channel is subscribed now."""
        return self._link.connection is not None

    @property
    def paused(self) -> bool:
        """Say whether `pause` is in force."""
        return self._paused

    @property
    def in_flight(self) -> int:
        """Return how many messages are in hand."""
        return len(self._held)

    async def start(self) -> None:
        """Subscribe; if nsqd is away, go on and keep trying."""
        self._toucher = asyncio.create_task(self._touch_held(), name=f"{self.name} touch")
        await self._link.start()

    async def drain(self) -> None:
        """Take nothing new, let handlers finish within `drain_seconds`, hand the rest back at once."""
        self._draining = True
        self._link.release()
        self._send_ready()
        await self._wait_settled()
        await self._cancel_handlers()
        for message in list(self._held):
            message.hand_back()
        await self._say_goodbye()

    async def stop(self) -> None:
        """Disconnect; handlers that still run are cancelled, and nsqd delivers what is in hand after its timeout."""
        self._draining = True
        if self._toucher is not None:
            self._toucher.cancel()
            await asyncio.gather(self._toucher, return_exceptions=True)
        await self._link.stop()
        await self._cancel_handlers()

    def pause(self) -> None:
        """Take nothing new; what is in hand or already on the way stays with the handler."""
        self._paused = True
        self._send_ready()

    def resume(self, max_in_flight: int | None = None) -> None:
        """Take messages again, from now on with another limit if one is given (at least 1)."""
        self._paused = False
        if max_in_flight is not None:
            self._limit = max_in_flight
        self._send_ready()

    def touch(self) -> None:
        """Restart nsqd's timeout for everything in hand."""
        for message in self._held:
            message.touch()

    async def _opened(self, connection: BrokerConnection) -> None:
        connection.receiver = self._received
        connection.on(event.RESPONSE, self._answered)
        connection.on(event.ERROR, self._refused)
        self._unreleased = 0
        connection.send(protocol.subscribe(self._topic, self._channel))
        await self._next_answer(connection, self._tuning.connect_seconds)
        self._send_ready(connection)

    def _closed(self, _connection: BrokerConnection) -> None:
        for message in list(self._held):
            self.counts.lost += 1
            message.lose()

    def _send_ready(self, connection: BrokerConnection | None = None) -> None:
        connection = connection or self._link.connection
        if connection is None:
            return
        count = 0 if self._paused or self._draining else min(self._limit, connection.max_rdy_count)
        connection.send_rdy(count)

    def _received(
        self, connection: BrokerConnection, message_id: bytes, body: bytes, attempts: int, timestamp_ns: int
    ) -> None:
        self.counts.received += 1
        held = Message(
            connection,
            message_id,
            body,
            attempts=attempts,
            timestamp_ns=timestamp_ns,
            received=self._clock.monotonic(),
            on_end=self._ended,
        )
        self._held[held] = None
        if body == PRIMER_BODY:
            message_task = self._finish_primer
        elif self._draining:
            held.hand_back()
            return
        else:
            message_task = self._handle
        self._settled.clear()
        task = asyncio.get_running_loop().create_task(message_task(held))
        self._tasks.add(task)
        task.add_done_callback(self._handled)

    async def _handle(self, message: Message) -> None:
        try:
            await self._handler(message)
        except Exception:  # noqa: BLE001 - the consumer's shell
            self.counts.failed += 1
            _log.exception(
                "handler failed", consumer=self.name, message_id=message.id, attempts=message.attempts
            )
            message.hand_back(timedelta(seconds=self._tuning.failure_delay))

    async def _finish_primer(self, message: Message) -> None:
        await message.finish()

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._check_settled()

    def _ended(self, message: Message) -> None:
        self._held.pop(message, None)
        self._check_settled()

    def _check_settled(self) -> None:
        if not self._tasks and not self._held:
            self._settled.set()

    def _answered(self, **_: Any) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def _refused(self, conn: BrokerConnection, error: Exception, **_: Any) -> None:
        text = error_text(error)
        if text.startswith(_HARMLESS):
            self.counts.late += 1
            _log.info("nsqd had taken the message back", consumer=self.name, error=text)
            self._unreleased += text.startswith(_NOT_RELEASED)
            if self._unreleased * 2 >= self._limit:
                self._renew(conn)
            return
        _log.error("nsqd refused", consumer=self.name, error=text)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(text))
        conn.close()

    def _renew(self, connection: BrokerConnection) -> None:
        """Connect afresh, so that nsqd counts what is in flight from zero; what is in hand comes again."""
        if not self._draining:
            _log.info("connecting afresh", consumer=self.name, unreleased=self._unreleased)
            connection.close()

    async def _next_answer(self, connection: BrokerConnection, seconds: float) -> None:
        """Wait for nsqd's next response; raises OSError if the connection ends first, TimeoutError."""
        self._answer = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(seconds):
            await asyncio.wait([self._answer, connection.ended], return_when=asyncio.FIRST_COMPLETED)
        if not self._answer.done():
            raise ConnectionError("nsqd closed the connection")
        self._answer.result()

    async def _wait_settled(self) -> None:
        seconds = _PAUSED_DRAIN_SECONDS if self._paused else self._tuning.drain_seconds
        self._check_settled()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settled.wait()

    async def _cancel_handlers(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _say_goodbye(self) -> None:
        """Let nsqd confirm that it has read every FIN and REQ, and return what it sent meanwhile."""
        connection = self._link.connection
        if connection is None:
            return
        with contextlib.suppress(OSError, TimeoutError):
            connection.send(b"CLS\n")
            await self._next_answer(connection, _CLOSE_SECONDS)
            await asyncio.sleep(_LATE_MESSAGE_SECONDS)

    async def _touch_held(self) -> None:
        while True:
            await self._clock.sleep(self._tuning.touch_seconds / 4)
            oldest = self._clock.monotonic() - self._tuning.touch_seconds
            for message in self._held:
                if message.received <= oldest:
                    message.touch()
            connection = self._link.connection
            if self._unreleased and not self._held and connection is not None:
                self._renew(connection)
