"""Observations and what becomes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

_EVENT_NAMESPACE = UUID("6f2dd6a2-7f4b-5f0e-9d0c-1c7e8d0b5a11")
MAX_INT64 = 2**63 - 1


class Kind(StrEnum):
    """What was observed."""

    TRAFFIC = "traffic"
    NETWORK = "network"
    REALNAME = "realname"


class Outcome(StrEnum):
    """What became of an observation."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    NOT_FOUND = "not_found"
    TOO_OLD = "too_old"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One reported fact, as checked at the edge.

    A traffic reading has either ``total_bytes`` (cycle to date) or ``delta_bytes``; the others have ``status``.
    """

    observation_id: UUID
    card_id: str
    account_id: str
    kind: Kind
    observed_at: datetime
    total_bytes: int | None = None
    delta_bytes: int | None = None
    status: str = ""
    raw: str = ""
    source: str = "poll"
    traceparent: str = ""
    latency_ms: int = 0

    @property
    def position(self) -> tuple[datetime, UUID]:
        """Its place in the total order of a card's observations."""
        return (self.observed_at, self.observation_id)

    @property
    def reading(self) -> dict[str, int | str]:
        """The normalised reading as it is kept with the collection record."""
        if self.total_bytes is not None:
            return {"total_bytes": self.total_bytes}
        if self.delta_bytes is not None:
            return {"delta_bytes": self.delta_bytes}
        return {"status": self.status}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that became different about a card; leaves through the outbox."""

    type: str
    observation: Observation
    account_id: str
    data: Mapping[str, Any]

    @property
    def event_id(self) -> UUID:
        """The id of the event, always the same for the same cause (RFC 9562, version 5)."""
        return uuid5(_EVENT_NAMESPACE, f"{self.observation.observation_id}:{self.type}")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Why a card's state changed."""

    action: str
    observation: Observation
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one observation; ``account_id`` is the card's own where the card is known."""

    observation: Observation
    outcome: Outcome
    account_id: str
    increment_bytes: int = 0
    message: str = ""
    sqlstate: str = ""


@dataclass(slots=True)
class DailyUsage:
    """What a batch says about one local day of a card."""

    card_id: str
    day: date
    used_bytes: int = 0
    increment_bytes: int = 0


def in_order(observations: Sequence[Observation]) -> list[Observation]:
    """Sort observations the way they are applied: by card, then instant, then id."""
    return sorted(observations, key=lambda item: (item.card_id, item.observed_at, item.observation_id))
