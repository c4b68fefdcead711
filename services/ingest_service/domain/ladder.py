"""How long an observation that failed waits before it is tried again."""

from datetime import timedelta

LOUD_FROM_ATTEMPT = 10
"""From this attempt on, every failure is an ERROR in the log."""
QUARANTINE_COPY_AT_ATTEMPT = 20
"""At this attempt, a failure of unknown cause is also shown to people in the quarantine."""

_STEPS = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 30, 60, 120, 300))
_SPREAD = 0.2


def wait_before(attempt: int, *, chance: float) -> timedelta:
    """Return the wait after that many failed attempts.

    Args:
        attempt: from 1; past the sixth the wait stays at 5 minutes.
        chance: 0 to 1, spreads waits by +-20 % so that they don't come due together.
    """
    step = _STEPS[min(max(attempt, 1), len(_STEPS)) - 1]
    return step * (1 - _SPREAD + 2 * _SPREAD * chance)
