"""Faults on demand: what may go wrong with an account's gateway, and the dice that decide when."""

import math
import random
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

LONGEST_LATENCY_MS = 600_000


class Lie(StrEnum):
    """A counter that does not tell the truth."""

    NONE = "none"
    BACKWARD = "backward"
    ZERO = "zero"
    HUGE = "huge"
    NEGATIVE = "negative"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Faults:
    """How an account's gateway behaves; rates are shares of requests, 0 to 1.

    Latency is log-normal around its median, `latency_spread` being the sigma of its logarithm. `outage` answers
    nothing but 503; `hang_rate` never answers at all; `enforce_limits` answers 429 over the account's limit.
    """

    latency_ms: float = 0.0
    latency_spread: float = 0.5
    error_rate: float = 0.0
    throttle_rate: float = 0.0
    retry_after_seconds: int = 1
    hang_rate: float = 0.0
    empty_rate: float = 0.0
    outage: bool = False
    refuse: bool = False
    enforce_limits: bool = False
    deltas: bool = False
    lie: Lie = Lie.NONE
    lie_rate: float = 1.0

    def changed(self, values: dict[str, Any]) -> "Faults":
        """Return these faults with some of them changed. Raises ValueError naming what is wrong."""
        known = {field.name for field in fields(self)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown fault {unknown[0]!r}; known: {', '.join(sorted(known))}")
        return replace(
            self, **{name: _checked(name, value, getattr(self, name)) for name, value in values.items()}
        )

    def as_json(self) -> dict[str, Any]:
        """Return the faults as plain values."""
        return {**asdict(self), "lie": self.lie.value}


SCENARIOS: dict[str, Faults] = {
    "calm": Faults(),
    "demo": Faults(latency_ms=40.0),
    "rough": Faults(
        latency_ms=80.0, latency_spread=1.0, error_rate=0.03, throttle_rate=0.02, empty_rate=0.01
    ),
    "lying": Faults(latency_ms=20.0, lie=Lie.BACKWARD, lie_rate=0.05),
}


class Dice:
    """One account's random draws, the same for the same seed and order of requests."""

    def __init__(self, seed: int, account_id: str) -> None:
        self._rng = random.Random(f"faults {seed} {account_id}")  # noqa: S311 - a simulation, not a secret

    def happens(self, rate: float) -> bool:
        """Draw whether something of a rate happens now."""
        return rate > 0 and self._rng.random() < rate

    def latency_seconds(self, faults: Faults) -> float:
        """Draw a latency."""
        if faults.latency_ms <= 0:
            return 0.0
        drawn = self._rng.lognormvariate(math.log(faults.latency_ms), faults.latency_spread)
        return min(drawn, LONGEST_LATENCY_MS) / 1000

    def lied(self, faults: Faults, truth: int) -> int | str:
        """Return the counter as told: the truth, or today's lie about it."""
        if faults.lie is Lie.NONE or not self.happens(faults.lie_rate):
            return truth
        match faults.lie:
            case Lie.BACKWARD:
                return truth - truth // 10
            case Lie.ZERO:
                return 0
            case Lie.HUGE:
                return 2**63 + truth
            case Lie.NEGATIVE:
                return -truth - 1
            case _:
                return f"{truth} bytes"


def _checked(name: str, value: Any, present: Any) -> Any:
    if isinstance(present, Lie):
        return Lie(value)
    if isinstance(present, bool):
        if value not in (True, False):
            raise ValueError(f"{name} must be true or false")
        return bool(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_LATENCY_MS:
        raise ValueError(f"{name} must be a number from 0 to {LONGEST_LATENCY_MS}")
    if name.endswith("_rate") and value > 1:
        raise ValueError(f"{name} must be a share from 0 to 1")
    return type(present)(value)
