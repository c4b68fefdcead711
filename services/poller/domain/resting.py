"""When an account rests: its gateway asked for it, or it has not answered for a while."""

from datetime import timedelta

from poller.domain.model import StepResult

_FAILURES_BEFORE_REST = 5
_FIRST_REST = timedelta(seconds=1)
_LONGEST_REST = timedelta(seconds=60)
_THROTTLED_REST = timedelta(seconds=5)
_GATEWAY_FAILURES = frozenset({"unreachable", "timeout", "server_error"})


class Resting:
    """Decides about one account's rests from how its steps end.

    A throttled answer asks for the time that it names, else 5 s. Five steps in a row in which the gateway did not
    work ask for 1 s, and each further one for twice as much, up to 60 s; one that worked starts over.
    """

    def __init__(self) -> None:
        self._failed_steps = 0
        self._rest = timedelta()
        self.reason = ""
        """Why the account last rested; empty after a step that worked."""

    def after(self, result: StepResult) -> timedelta | None:
        """Return how long the account should rest after a step, or None."""
        throttled = [failure for failure in result.failures if failure.kind == "throttled"]
        if throttled:
            self.reason = "the gateway asked for a pause"
            return max(failure.retry_after or _THROTTLED_REST for failure in throttled)
        if not any(failure.kind in _GATEWAY_FAILURES for failure in result.failures):
            self._failed_steps, self._rest, self.reason = 0, timedelta(), ""
            return None
        self._failed_steps += 1
        if self._failed_steps < _FAILURES_BEFORE_REST:
            return None
        self._rest = min(max(self._rest * 2, _FIRST_REST), _LONGEST_REST)
        self.reason = f"the gateway does not work: {result.failures[-1].kind}"
        return self._rest
