"""Wake-ups over Redis pub/sub: hints that may be lost at any time, and news of ended tasks."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from servicekit.failures import describe
from servicekit.logs import get_logger
from servicekit.redis import Redis
from task_api.domain.signals import Signals
from task_api.store.keys import ENDED_STREAM, READY_WAKES, TEXT_WAKES

_log = get_logger(__name__)

_GATHER_SECONDS = {READY_WAKES: 0.05, TEXT_WAKES: 0.01}
"""At most one message per name within this time."""
_LISTEN_SECONDS = 5.0
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_ENDED_LENGTH = 10_000


class RedisWakes:
    """Wakes this process at once and the others through Redis. A Component.

    While Redis is away only this process is woken; the others find out by their own polling.
    """

    name = "wakes"

    def __init__(self, redis: Redis, *, ready: Signals[str], text: Signals[UUID]) -> None:
        self._redis = redis
        self._ready = ready
        self._text = text
        self._gathered: dict[str, set[str]] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None

    def ready(self, channels: Sequence[str]) -> None:
        """Say that tasks or slots may be free in channels."""
        self._ready.notify(channels)
        self._gather(READY_WAKES, channels)

    def text(self, task_ids: Sequence[UUID]) -> None:
        """Say that tasks have new events."""
        self._text.notify(task_ids)
        self._gather(TEXT_WAKES, [str(task_id) for task_id in task_ids])

    async def start(self) -> None:
        """Begin to listen."""
        self._listening = asyncio.create_task(self._listen_forever(), name=self.name)

    async def drain(self) -> None:
        """Send what is gathered."""
        while self._sending:
            await asyncio.wait(set(self._sending.values()))

    async def stop(self) -> None:
        """Stop listening."""
        tasks = [*self._sending.values(), *([self._listening] if self._listening else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _gather(self, topic: str, names: Sequence[str]) -> None:
        if not names:
            return
        self._gathered.setdefault(topic, set()).update(names)
        if topic not in self._sending:
            self._sending[topic] = asyncio.get_running_loop().create_task(self._send(topic))

    async def _send(self, topic: str) -> None:
        try:
            while self._gathered.get(topic):
                names = self._gathered.pop(topic)
                await self._publish(topic, " ".join(sorted(names)))
                await asyncio.sleep(_GATHER_SECONDS[topic])
        finally:
            del self._sending[topic]

    async def _publish(self, topic: str, message: str) -> None:
        try:
            await self._redis.client.publish(topic, message)
        except Exception as error:  # noqa: BLE001 - a lost wake only costs a poll
            _log.debug("a wake was lost", topic=topic, problem=describe(error))

    async def _listen_forever(self) -> None:
        failures = 0
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - a listener shell: it must never die silently
                failures = min(failures + 1, len(_PAUSES_SECONDS))
                _log.warning("wakes are not heard", problem=describe(error))
            else:
                failures = 1
            await asyncio.sleep(_PAUSES_SECONDS[failures - 1] * random.uniform(0.7, 1.3))  # noqa: S311

    async def _listen(self) -> None:
        async with self._redis.client.pubsub() as subscription:
            await subscription.subscribe(READY_WAKES, TEXT_WAKES)
            self._ready.notify_all()  # wakes may have been lost while nobody listened
            self._text.notify_all()
            while True:
                message = await subscription.get_message(
                    ignore_subscribe_messages=True, timeout=_LISTEN_SECONDS
                )
                if message is not None:
                    self._hear(message["channel"].decode(), message["data"].decode("utf-8", "replace"))

    def _hear(self, topic: str, names: str) -> None:
        if topic == READY_WAKES:
            self._ready.notify(names.split(" "))
        else:
            self._text.notify(_task_ids(names))


class RedisNews:
    """Tells other programs which tasks have ended."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def send(self, rows: Sequence[dict[str, str]]) -> None:
        """Append the rows to the stream; raises what the driver raises."""
        async with self._redis.client.pipeline(transaction=False) as pipeline:
            for row in rows:
                fields: dict[Any, Any] = dict(row)
                pipeline.xadd(ENDED_STREAM, fields, maxlen=_ENDED_LENGTH, approximate=True)
            await pipeline.execute()


def _task_ids(names: str) -> list[UUID]:
    found = []
    for name in names.split(" "):
        try:
            found.append(UUID(name))
        except ValueError:
            continue  # another version's message
    return found
