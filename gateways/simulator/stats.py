"""What the simulator saw: concurrency per account and lane, answers by kind, failures by status."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gateways.simulator.fleet import DemoAccount

POLL = "poll"
STOP_RESUME = "stop_resume"


@dataclass(slots=True)
class LaneStats:
    """Calls of one lane of one account; a call is in flight from its arrival until its answer is built."""

    limit: int
    in_flight: int = 0
    max_in_flight: int = 0
    over_limit: int = 0

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Count a call as in flight; yields whether the lane is over its limit now."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        is_over = self.in_flight > self.limit
        self.over_limit += is_over
        try:
            yield is_over
        finally:
            self.in_flight -= 1


@dataclass(slots=True)
class AccountStats:
    """Counters of one account since the start or the last reset."""

    lanes: dict[str, LaneStats]
    requests: int = 0
    cancelled: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return the counters as plain values."""
        lanes = {
            name: {
                "limit": lane.limit,
                "in_flight": lane.in_flight,
                "max_in_flight": lane.max_in_flight,
                "over_limit": lane.over_limit,
            }
            for name, lane in self.lanes.items()
        }
        return {
            "requests": self.requests,
            "cancelled": self.cancelled,
            "answers": dict(self.answers),
            "failures": dict(self.failures),
            "lanes": lanes,
        }

    def reset(self) -> None:
        """Start counting again; calls in flight stay counted as such."""
        self.requests = self.cancelled = 0
        self.answers.clear()
        self.failures.clear()
        for lane in self.lanes.values():
            lane.max_in_flight = lane.in_flight
            lane.over_limit = 0


def account_stats(account: DemoAccount) -> AccountStats:
    """Return fresh counters with the account's limits."""
    return AccountStats(
        lanes={POLL: LaneStats(account.poll_limit), STOP_RESUME: LaneStats(account.stop_resume_limit)}
    )
