"""A platform's own limit of calls per second, kept before the platform has to say so."""

from datetime import timedelta

from gateways.adapter import FailureKind, GatewayError
from servicekit.clock import Clock

LONGEST_WAIT = timedelta(seconds=2)


class Pace:
    """Spaces calls evenly; whoever would have to wait too long is throttled here instead of there."""

    def __init__(self, calls_per_second: float, clock: Clock) -> None:
        self._gap = 1.0 / calls_per_second
        self._clock = clock
        self._next_at = float("-inf")

    async def wait(self) -> None:
        """Wait for this call's turn, at most `LONGEST_WAIT`. Raises GatewayError(throttled)."""
        now = self._clock.monotonic()
        turn = max(now, self._next_at)
        if turn - now > LONGEST_WAIT.total_seconds():
            raise GatewayError(
                FailureKind.THROTTLED,
                "the platform's calls per second are spoken for",
                retry_after=timedelta(seconds=turn - now),
            )
        self._next_at = turn + self._gap
        if turn > now:
            await self._clock.sleep(turn - now)
