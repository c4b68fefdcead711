"""Publish, and know from nsqd itself whether it has the message."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from nsq import event

from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError
from servicekit.logs import get_logger
from servicekit.nsq.batches import Batch, Entry, PublishQueue
from servicekit.nsq.connection import BrokerConnection, error_text
from servicekit.nsq.frames import check_bodies, check_topic, refusal, split_to_fit
from servicekit.nsq.link import Link
from servicekit.nsq.tuning import NsqAddresses, NsqTuning

_SWEEP_SECONDS = 0.25
_OK = b"OK"

_log = get_logger(__name__)


class Publisher:
    """Send messages over one pipelined connection.

    Publishes that wait at the same time share commands. Each one ends exactly once: with nsqd's OK, or with
    ServiceError within `publish_seconds`. If its metadata says `stored: unknown`, nsqd may have the message all the
    same.
    """

    name = "nsq publisher"

    def __init__(self, settings: NsqAddresses, clock: Clock, *, tuning: NsqTuning | None = None) -> None:
        self._tuning = tuning or NsqTuning()
        self._clock = clock
        self._link = Link(
            self.name,
            settings.nsqd_tcp,
            clock=clock,
            tuning=self._tuning,
            on_open=self._opened,
            on_close=self._closed,
        )
        self._queue = PublishQueue(
            batch_bytes=self._tuning.batch_bytes, batch_messages=self._tuning.batch_messages
        )
        self._sent: deque[Batch] = deque()
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._sweeper: asyncio.Task[None] | None = None
        self._pump_due = False
        self._closing = False
        self._room.set()
        self._idle.set()

    @property
    def ready(self) -> bool:
        """Say whether publishing is worth trying: connected and not stopping."""
        return self._link.connection is not None and not self._closing

    async def start(self) -> None:
        """Connect; if nsqd is away, go on and keep trying."""
        self._sweeper = asyncio.create_task(self._sweep(), name="nsq publisher sweep")
        await self._link.start()

    async def drain(self) -> None:
        """Take nothing new and wait until everything taken is answered, at most `publish_seconds`."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._tuning.publish_seconds):
                await self._idle.wait()

    async def stop(self) -> None:
        """Disconnect; whoever still waits gets DEPENDENCY_AWAY."""
        self._closing = True
        await self._link.stop()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        self._fail_everything("the publisher was stopped")

    async def publish(self, topic: str, body: bytes) -> None:
        """Publish one message of 1 byte to 1 MiB and return once nsqd has it.

        Raises:
            ServiceError: INVALID_FIELD for a bad topic or body; DEPENDENCY_AWAY if nsqd is away, refused, or was too
                slow.
        """
        await self.publish_many(topic, (body,))

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish messages in order and return once nsqd has all; those that fit into one MPUB are stored all or none.

        Raises:
            ServiceError: as `publish`; after DEPENDENCY_AWAY some may be stored.
        """
        if not bodies:
            return
        check_topic(topic)
        check_bodies(bodies, self._tuning)
        if not self._room.is_set():
            await self._wait_for_room()
        if not self.ready:
            raise _away("nsqd is away", stored="no")
        entries = [self._enqueue(topic, run) for run in split_to_fit(bodies, self._tuning.max_body_bytes)]
        if len(entries) == 1:
            await entries[0].future
            return
        await asyncio.gather(*(entry.future for entry in entries))

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self._tuning.publish_seconds):
                while not self._room.is_set() and self.ready:
                    await self._room.wait()
        except TimeoutError as error:
            raise _away("nsqd is too slow", stored="no") from error

    def _enqueue(self, topic: str, bodies: list[bytes]) -> Entry:
        loop = asyncio.get_running_loop()
        entry = Entry(topic, bodies, loop.create_future(), self._clock.monotonic())
        self._queue.add(entry)
        self._idle.clear()
        if self._queue.size >= self._tuning.queue_bytes:
            self._room.clear()
        if not self._pump_due:
            self._pump_due = True
            loop.call_soon(self._pump)
        return entry

    def _pump(self) -> None:
        """Send batches while the window has room."""
        self._pump_due = False
        connection = self._link.connection
        while connection is not None and len(self._sent) < self._tuning.window:
            batch = self._queue.take()
            if batch is None:
                break
            try:
                connection.send(batch.encode())
            except OSError:
                _fail(batch.entries, _away("the connection to nsqd was lost", stored="no"))
                break
            self._sent.append(batch)
        self._update_gates()

    def _update_gates(self) -> None:
        if self._queue.size < self._tuning.queue_bytes:
            self._room.set()
        if not self._queue and not self._sent:
            self._idle.set()

    async def _opened(self, connection: BrokerConnection) -> None:
        connection.on(event.RESPONSE, self._answered)
        connection.on(event.ERROR, self._refused)

    def _answered(self, data: bytes, **_: Any) -> None:
        if not self._sent:
            _log.warning("nsqd answered more often than it was asked", answer=data[:40])
            return
        batch = self._sent.popleft()
        if data == _OK:
            for entry in batch.entries:
                if not entry.future.done():
                    entry.future.set_result(None)
        else:
            _fail(batch.entries, _away(f"nsqd answered {data[:40]!r}", stored="unknown"))
        self._pump()

    def _refused(self, conn: BrokerConnection, error: Exception, **_: Any) -> None:
        """Fail the publish that nsqd refused; it ends the connection, which fails the rest."""
        text = error_text(error)
        _log.error("nsqd refused a publish", error=text)
        if self._sent:
            _fail(self._sent.popleft().entries, refusal(text) or _away(f"nsqd refused: {text}", stored="no"))
        conn.close()

    def _closed(self, _connection: BrokerConnection) -> None:
        self._fail_everything("the connection to nsqd was lost")

    def _fail_everything(self, why: str) -> None:
        while self._sent:
            _fail(self._sent.popleft().entries, _away(why, stored="unknown"))
        _fail(self._queue.clear(), _away(why, stored="no"))
        self._update_gates()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._expire(self._clock.monotonic() - self._tuning.publish_seconds)

    def _expire(self, oldest: float) -> None:
        """Fail what waited too long; after a missing answer the connection ends: later ones could not be told apart."""
        _fail(self._queue.expired(oldest), _away("nsqd is too slow", stored="no"))
        connection = self._link.connection
        if connection is not None and self._sent and self._sent[0].created < oldest:
            _log.warning("nsqd did not answer a publish: connection closed", waiting=len(self._sent))
            _fail(self._sent[0].entries, _away("nsqd did not answer in time", stored="unknown"))
            connection.close()
        self._update_gates()


def _away(message: str, *, stored: str) -> ServiceError:
    return ServiceError(Reason.DEPENDENCY_AWAY, f"{message}; not published", metadata={"stored": stored})


def _fail(entries: Sequence[Entry], error: ServiceError) -> None:
    for entry in entries:
        if not entry.future.done():
            # one exception each: raising a shared one would grow its traceback with every waiter
            entry.future.set_exception(ServiceError(error.reason, error.message, metadata=error.metadata))
            entry.future.exception()  # its waiter may have been cancelled: no warning for that
