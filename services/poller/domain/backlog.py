"""What the brokers' backlog means for polling."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelBacklog:
    """What waits in one channel; ``channel`` is empty for messages that no channel has taken yet."""

    topic: str
    channel: str
    depth: int
    in_flight: int
    deferred: int

    @property
    def total(self) -> int:
        """Everything that is not finished."""
        return self.depth + self.in_flight + self.deferred


@dataclass(frozen=True, slots=True)
class BacklogLimits:
    """Messages in one topic over which it is an error, and over which polling pauses; it goes on under half."""

    alert_depth: int
    pause_depth: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do: ``pause`` is None to leave things as they are."""

    deepest: int
    topic: str
    alert: bool
    pause: bool | None


def judge(backlogs: Sequence[ChannelBacklog], limits: BacklogLimits) -> Verdict:
    """Return what a backlog asks for, judged by the deepest topic."""
    totals: dict[str, int] = {}
    for item in backlogs:
        totals[item.topic] = totals.get(item.topic, 0) + item.total
    topic = max(totals, key=lambda name: totals[name], default="")
    deepest = totals.get(topic, 0)
    pause: bool | None = None
    if deepest > limits.pause_depth:
        pause = True
    elif deepest < limits.pause_depth / 2:
        pause = False
    return Verdict(deepest, topic, alert=deepest > limits.alert_depth, pause=pause)
