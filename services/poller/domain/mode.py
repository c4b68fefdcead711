"""The ingest mode, read through a cache of a few seconds."""

import asyncio
from collections.abc import Awaitable, Callable

from poller.domain.model import Mode
from servicekit.clock import Clock

CACHE_SECONDS = 5.0


class ModeCache:
    """Answers from memory for 5 s; while the store is away, the mode last read stays in force, at first ``sync``.

    Args:
        read: reads the stored mode.
        clock: measures the age.
        on_failure: told why a read failed.
    """

    def __init__(
        self, read: Callable[[], Awaitable[Mode]], clock: Clock, on_failure: Callable[[Exception], None]
    ) -> None:
        self._read = read
        self._clock = clock
        self._on_failure = on_failure
        self._mode = Mode.SYNC
        self._good_until = float("-inf")
        self._lock = asyncio.Lock()

    async def get(self) -> Mode:
        """Return the mode in force; reads it at most once per 5 s, whether that worked or not."""
        if self._clock.monotonic() >= self._good_until:
            async with self._lock:
                if self._clock.monotonic() >= self._good_until:
                    await self._refresh()
        return self._mode

    def put(self, mode: Mode) -> None:
        """Take over a mode that was just stored."""
        self._mode = mode
        self._good_until = self._clock.monotonic() + CACHE_SECONDS

    async def _refresh(self) -> None:
        self._good_until = self._clock.monotonic() + CACHE_SECONDS
        try:
            self._mode = await self._read()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the store, polling goes on
            self._on_failure(error)
