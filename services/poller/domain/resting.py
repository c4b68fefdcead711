"""When an account rests: its gateway asked for it, or it has not answered for a while."""

from datetime import timedelta

from poller.domain.model import StepResult
from servicekit.clock import Clock

_FAILURES_BEFORE_REST = 5
_FIRST_REST = timedelta(seconds=1)
_LONGEST_REST = timedelta(seconds=60)
_THROTTLED_REST = timedelta(seconds=5)
_GATEWAY_FAILURES = frozenset({"unreachable", "timeout", "server_error"})


class Resting:
    """Decides about one account's rests from how its steps end.

    A throttled answer asks for the time that it names, else 5 s. Five steps in a row in which the gateway did not
    work ask for 1 s, and the first failure after a rest for twice as much as before, up to 60 s; a step that worked
    starts over. Steps that were under way when a rest began say nothing new: they lengthen it only if they were
    throttled.

    Args:
        clock: measures rests.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed_steps = 0
        self._rest = timedelta()
        self._until = float("-inf")
        self.reason = ""
        """Why the account last rested; empty after a step that worked."""

    @property
    def now(self) -> bool:
        """Whether this process asked for a rest that is not over."""
        return self._clock.monotonic() < self._until

    def after(self, result: StepResult) -> timedelta | None:
        """Return how long the account should rest from now on because of a step, or None."""
        throttled = [failure for failure in result.failures if failure.kind == "throttled"]
        if throttled:
            rest = max(failure.retry_after or _THROTTLED_REST for failure in throttled)
            return self._begin(rest, "the gateway asked for a pause")
        if not any(failure.kind in _GATEWAY_FAILURES for failure in result.failures):
            self._failed_steps, self._rest, self.reason = 0, timedelta(), ""
            return None
        self._failed_steps += 1
        if self.now or self._failed_steps < _FAILURES_BEFORE_REST:
            return None
        self._rest = min(max(self._rest * 2, _FIRST_REST), _LONGEST_REST)
        return self._begin(self._rest, f"the gateway does not work: {result.failures[-1].kind}")

    def _begin(self, rest: timedelta, reason: str) -> timedelta:
        self._until = max(self._until, self._clock.monotonic() + rest.total_seconds())
        self.reason = reason
        return rest
