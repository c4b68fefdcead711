"""What a batch reads before it decides, and what it changes: the shapes between the decision and the database."""

from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

from ingest_service.domain.metering import CycleState
from ingest_service.domain.observations import AuditEntry, DailyUsage, Event, Kind, Observation, Result


@dataclass(slots=True)
class StatusState:
    """The status of one kind that was last applied, and its place in the order of observations."""

    status: str = ""
    observed_at: datetime | None = None
    observation_id: UUID | None = None

    def is_before(self, observation: Observation) -> bool:
        """Tell whether an observation is later than what is stored."""
        if self.observed_at is None or self.observation_id is None:
            return True
        return (self.observed_at, self.observation_id) < observation.position


@dataclass(slots=True, kw_only=True)
class CardState:
    """A card as it is locked and loaded; a batch changes it in place."""

    card_id: str
    account_id: str
    lifecycle: str
    polling_enabled: bool
    reset_day: int
    time_zone: str
    network: StatusState = field(default_factory=StatusState)
    realname: StatusState = field(default_factory=StatusState)
    cycle_start: date | None = None
    cycle_used_bytes: int = 0
    applied_count: int = 0
    observed_at: datetime | None = None
    version: int = 0

    def status(self, kind: Kind) -> StatusState:
        """Return the state of a status kind."""
        return self.network if kind is Kind.NETWORK else self.realname


@dataclass(slots=True)
class Loaded:
    """What the database holds about a batch: known cards, their latest cycles by start, and ids applied before."""

    cards: dict[str, CardState]
    cycles: dict[str, dict[date, CycleState]]
    known_ids: frozenset[UUID]


@dataclass(slots=True)
class Changes:
    """What one write stores: all of it or nothing.

    ``results`` are in the order in which observations were decided; ``fresh`` are those of them that the inbox gets;
    ``facts`` names the cards whose facts for poll steps are different now.
    """

    results: list[Result] = field(default_factory=list)
    fresh: list[Result] = field(default_factory=list)
    cards: dict[str, CardState] = field(default_factory=dict)
    facts: set[str] = field(default_factory=set)
    cycles: dict[tuple[str, date], CycleState] = field(default_factory=dict)
    daily: dict[tuple[str, date], DailyUsage] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
