"""Wait for a condition with a deadline, instead of sleeping and hoping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

_POLL_SECONDS = 0.02


async def eventually(condition: Callable[[], Any | Awaitable[Any]], *, within: float = 10.0) -> Any:
    """Return the condition's first true value; fail after `within` seconds, naming its last value."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s; last value: {value!r}")
        await asyncio.sleep(_POLL_SECONDS)
