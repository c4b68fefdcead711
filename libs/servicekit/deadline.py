"""How much time the present call has left, known to everything that works for it."""

import time
from contextvars import ContextVar

_ends_at: ContextVar[float | None] = ContextVar("servicekit_deadline", default=None)


def remaining() -> float | None:
    """Return the seconds that the present call has left, never below 0, or None when nothing limits it."""
    ends_at = _ends_at.get()
    return None if ends_at is None else max(0.0, ends_at - time.monotonic())


def use(seconds: float) -> None:
    """Give the present task, and what it starts, that many seconds from now."""
    _ends_at.set(time.monotonic() + seconds)
