"""Listens on this process's channel for tokens to look at; one connection, whatever the number of waiters and pools.

Messages may be lost with the connection. Therefore everybody is called after each new subscription, and a silent
connection is asked for a sign of life often enough to be replaced before an unconfirmed grant lapses.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import redis.exceptions

from servicekit.failures import describe
from servicekit.logs import get_logger
from servicekit.redis import Redis

_PING_SECONDS = 1.0
_SILENT_SECONDS = 2.2
_PAUSE_SECONDS = 0.1
_START_SECONDS = 2.0

_log = get_logger(__name__)


class WakeUps:
    """Hears of grants. A Component.

    Args:
        server: where scripts publish.
        channels: what to listen to.
        on_token: told pool and token, and whether the pool has more to dispatch.
        on_gap: called after every new subscription: what was published before it may have been missed.
    """

    name = "wake_ups"

    def __init__(
        self,
        server: Redis,
        channels: Sequence[str],
        *,
        on_token: Callable[[str, str, bool], None],
        on_gap: Callable[[], None],
    ) -> None:
        self._server = server
        self._channels = channels
        self._on_token = on_token
        self._on_gap = on_gap
        self._listening = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen; waits two seconds for it at most, and goes on trying afterwards."""
        self._task = asyncio.create_task(self._run(), name="wake-ups")
        waiting = asyncio.create_task(self._listening.wait())
        await asyncio.wait({waiting}, timeout=_START_SECONDS)
        waiting.cancel()

    async def drain(self) -> None:
        """Go on: grants may still come for those who are about to leave."""

    async def stop(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the shell of a background task
                _log.warning("wake-ups are interrupted", problem=describe(error))
            self._listening.clear()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _listen(self) -> None:
        client = self._server.listener()
        reader = client.pubsub()
        try:
            await reader.subscribe(*self._channels)
            heard_at = time.monotonic()
            while True:
                message = await reader.get_message(timeout=_PING_SECONDS)
                if message is not None:
                    heard_at = time.monotonic()
                    self._handle(message)
                elif time.monotonic() - heard_at > _SILENT_SECONDS:
                    raise redis.exceptions.ConnectionError("Redis is silent")
                else:
                    await reader.ping()
        finally:
            await reader.aclose()  # type: ignore[no-untyped-call]
            await client.aclose()

    def _handle(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self._listening.set()
            self._on_gap()
        elif message["type"] == "message":
            pool, token, more = message["data"].decode().split(" ")
            self._on_token(pool, token, more == "1")
