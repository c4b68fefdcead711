"""The values that polling is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

Reading = Mapping[str, int | str]


class Mode(StrEnum):
    """How observations reach ingest_service."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A carrier account as polling needs it; ``poll_limit`` counts gateway calls at once."""

    account_id: str
    gateway_kind: str
    gateway_url: str
    credential_name: str
    reset_day: int
    time_zone: str
    poll_limit: int
    poll_interval: timedelta
    enabled: bool

    @property
    def pool(self) -> str:
        """The pool that its slots come from."""
        return f"gateway:{self.account_id}"

    @property
    def interval_ms(self) -> int:
        """The poll interval in milliseconds."""
        return self.poll_interval // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a step has to know of a card before it asks the gateway."""

    card_id: str
    account_id: str
    lifecycle: str
    polling_enabled: bool

    def is_polled_for(self, account_id: str) -> bool:
        """Tell whether the schedule of that account may poll the card."""
        return self.polling_enabled and self.lifecycle != "retired" and self.account_id == account_id


@dataclass(frozen=True, slots=True)
class ListedCard:
    """A card of the fleet and when its last applied observation was made; None when there is none."""

    card_id: str
    applied_at: datetime | None


@dataclass(frozen=True, slots=True)
class ClaimedCard:
    """A card in this process's hands until ``lease_until_ms``, which is also the claim's proof; Redis milliseconds."""

    card_id: str
    due_ms: int
    lease_until_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What one claim gave.

    ``blocked_ms`` says how long the account still rests, ``next_due_ms`` when the first card is due (None: no card),
    ``realigned`` how many late cards were sent to their next regular turn.
    """

    cards: list[ClaimedCard]
    now_ms: int
    blocked_ms: int
    next_due_ms: int | None
    realigned: int


class Next(StrEnum):
    """What becomes of a card after its claim; the words of ``complete.lua``."""

    TURN = "turn"
    AT = "at"
    IN = "in"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Completion:
    """How a claim ends: ``instant_ms`` is an instant or a delay; ``published_ms`` is -1 when nothing was handed on."""

    card: ClaimedCard
    what: Next
    instant_ms: int = 0
    published_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a gateway said; ``reading`` is None when it has nothing yet."""

    observed_at: datetime
    reading: Reading | None
    raw: str
    latency_ms: int


class GatewayFailure(Exception):  # noqa: N818 - reads as what happened
    """A gateway call that gave no answer that can be used.

    Args:
        kind: the class of the failure: timeout, unreachable, throttled, server_error, refused, not_found, malformed.
        message: for a person.
        retry_after: what the gateway asked for.
        raw: the answer as it came, cut; empty when nothing came.
        latency_ms: how long it took.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retry_after: timedelta | None = None,
        raw: str = "",
        latency_ms: int = 0,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        self.raw = raw
        self.latency_ms = latency_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """What one gateway call gave: an observation, an empty answer or a failure.

    ``reading`` is None and ``error`` is not empty for failures; both are empty for an answer without a reading.
    """

    observation_id: UUID
    observed_at: datetime
    card_id: str
    account_id: str
    kind: str
    reading: Reading | None
    raw: str
    error: str
    latency_ms: int
    traceparent: str

    @property
    def outcome(self) -> str:
        """success, empty or failed."""
        if self.error:
            return "failed"
        return "empty" if self.reading is None else "success"


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of an observation at ingest_service."""

    outcome: str
    message: str


@dataclass(slots=True)
class StepResult:
    """What one step over a card gave, and the failure that ended it early, if any."""

    polled: list[Polled] = field(default_factory=list)
    failures: list[GatewayFailure] = field(default_factory=list)

    @property
    def observations(self) -> list[Polled]:
        """The answers that have a reading."""
        return [item for item in self.polled if item.reading is not None]

    @property
    def others(self) -> list[Polled]:
        """Failures and empty answers."""
        return [item for item in self.polled if item.reading is None]

    @property
    def published_ms(self) -> int:
        """``observed_at`` of the latest observation in Unix milliseconds, -1 when there is none."""
        instants = [item.observed_at.timestamp() for item in self.observations]
        return int(max(instants) * 1000) if instants else -1
