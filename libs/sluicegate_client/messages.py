"""Messages on the broker: observations in, collection records and card events out.

A message that exists is valid: the constructor checks every field, strips what no database can store and
refuses the rest with INVALID_FIELD. ``encode`` writes JSON (integers as numbers, instants as RFC 3339 with
microseconds and Z); ``decode`` ignores members that it does not know and tells a newer major version apart
by :class:`NewerSchemaError`.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from servicekit.errors import invalid_field
from sluicegate_client.wire import (
    MAX_RAW_BYTES,
    NewerSchemaError,
    Reading,
    check_choice,
    check_identifier,
    check_instant,
    check_integer,
    check_observation_id,
    check_reading,
    check_text,
    cut_text,
    dump_object,
    format_instant,
    known_traceparent,
    parse_instant,
    parse_object,
    parse_uuid,
    strip_text,
)

__all__ = [
    "CARD_COLLECTION",
    "CARD_EVENT",
    "CARD_INGEST",
    "MAX_RAW_BYTES",
    "SCHEMA_VERSION",
    "CardEventMessage",
    "CollectionMessage",
    "NewerSchemaError",
    "ObservationMessage",
    "Reading",
    "cut_text",
]

SCHEMA_VERSION = "1.0"
CARD_INGEST = "card.ingest"
CARD_COLLECTION = "card.collection"
CARD_EVENT = "card.event"

_KINDS = frozenset({"traffic", "network", "realname"})
_SOURCES = frozenset({"poll", "file", "rpc"})
_OUTCOMES = frozenset({"success", "empty", "failed"})
_MAX_ID_BYTES = 64
_MAX_ERROR_BYTES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationMessage:
    """One reported fact on its way to be applied (topic ``card.ingest``).

    ``account_id`` may be empty: the card's own account counts. ``published_at`` is absent when it was never
    published. ``stripped_count`` says how many characters had to be removed; it is not part of the wire form.
    """

    observation_id: UUID
    card_id: str
    kind: str
    observed_at: datetime
    reading: Reading
    account_id: str = ""
    published_at: datetime | None = None
    raw: str = ""
    source: str = "poll"
    traceparent: str = ""
    latency_ms: int = 0
    stripped_count: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        """Strip, check and normalise every field; raises INVALID_FIELD."""
        _strip(self, "raw")
        check_observation_id(self.observation_id, self.observed_at)
        check_identifier("card_id", self.card_id, max_bytes=_MAX_ID_BYTES, required=True)
        check_identifier("account_id", self.account_id, max_bytes=_MAX_ID_BYTES)
        check_choice("kind", self.kind, _KINDS)
        check_choice("source", self.source, _SOURCES)
        check_text("raw", self.raw, max_bytes=MAX_RAW_BYTES)
        check_integer("latency_ms", self.latency_ms)
        if self.published_at is not None:
            check_instant("published_at", self.published_at)
        object.__setattr__(self, "reading", check_reading(self.kind, self.reading))
        object.__setattr__(self, "traceparent", known_traceparent(self.traceparent))

    def encode(self) -> bytes:
        """Write the message for the broker."""
        return dump_object(
            {
                "schema_version": SCHEMA_VERSION,
                "observation_id": str(self.observation_id),
                "card_id": self.card_id,
                "account_id": self.account_id,
                "kind": self.kind,
                "observed_at": format_instant(self.observed_at),
                "published_at": None if self.published_at is None else format_instant(self.published_at),
                "reading": dict(self.reading),
                "raw": self.raw,
                "source": self.source,
                "traceparent": self.traceparent,
                "latency_ms": self.latency_ms,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a message strictly; raises INVALID_FIELD or NewerSchemaError."""
        data = parse_object(body)
        published_at = data.get("published_at")
        return cls(
            observation_id=parse_uuid("observation_id", data.get("observation_id")),
            card_id=_text(data, "card_id"),
            account_id=_text(data, "account_id"),
            kind=_text(data, "kind"),
            observed_at=parse_instant("observed_at", data.get("observed_at")),
            published_at=None if published_at is None else parse_instant("published_at", published_at),
            reading=data.get("reading") or {},
            raw=_text(data, "raw"),
            source=_text(data, "source", "poll"),
            traceparent=_text(data, "traceparent"),
            latency_ms=data.get("latency_ms", 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionMessage:
    """What one poll returned, success or failure (topic ``card.collection``).

    A success has a reading; an empty answer and a failure have none, and a failure has an ``error`` class.
    """

    observation_id: UUID
    observed_at: datetime
    card_id: str
    account_id: str
    kind: str
    outcome: str
    reading: Reading | None = None
    raw: str = ""
    error: str | None = None
    latency_ms: int = 0
    traceparent: str = ""
    stripped_count: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        """Strip, check and normalise every field; raises INVALID_FIELD."""
        _strip(self, "raw", "error")
        check_observation_id(self.observation_id, self.observed_at)
        check_identifier("card_id", self.card_id, max_bytes=_MAX_ID_BYTES, required=True)
        check_identifier("account_id", self.account_id, max_bytes=_MAX_ID_BYTES, required=True)
        check_choice("kind", self.kind, _KINDS)
        check_choice("outcome", self.outcome, _OUTCOMES)
        check_text("raw", self.raw, max_bytes=MAX_RAW_BYTES)
        check_integer("latency_ms", self.latency_ms)
        self._check_outcome()
        object.__setattr__(self, "traceparent", known_traceparent(self.traceparent))

    def encode(self) -> bytes:
        """Write the message for the broker."""
        return dump_object(
            {
                "schema_version": SCHEMA_VERSION,
                "observation_id": str(self.observation_id),
                "observed_at": format_instant(self.observed_at),
                "card_id": self.card_id,
                "account_id": self.account_id,
                "kind": self.kind,
                "outcome": self.outcome,
                "reading": None if self.reading is None else dict(self.reading),
                "raw": self.raw,
                "error": self.error,
                "latency_ms": self.latency_ms,
                "traceparent": self.traceparent,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a message strictly; raises INVALID_FIELD or NewerSchemaError."""
        data = parse_object(body)
        return cls(
            observation_id=parse_uuid("observation_id", data.get("observation_id")),
            observed_at=parse_instant("observed_at", data.get("observed_at")),
            card_id=_text(data, "card_id"),
            account_id=_text(data, "account_id"),
            kind=_text(data, "kind"),
            outcome=_text(data, "outcome"),
            reading=data.get("reading"),
            raw=_text(data, "raw"),
            error=data.get("error"),
            latency_ms=data.get("latency_ms", 0),
            traceparent=_text(data, "traceparent"),
        )

    def _check_outcome(self) -> None:
        if self.error is not None:
            check_text("error", self.error, max_bytes=_MAX_ERROR_BYTES)
        if self.outcome == "success":
            object.__setattr__(self, "reading", check_reading(self.kind, self.reading))
        elif self.reading is not None:
            raise invalid_field("reading", "only a success has one")
        if self.outcome == "failed" and not self.error:
            raise invalid_field("error", "a failure has one")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardEventMessage:
    """Something that became different about a card (topic ``card.event``).

    It may come more than once; ``event_id`` is the same each time, whoever publishes it.
    """

    event_id: UUID
    card_id: str
    account_id: str
    type: str
    observed_at: datetime
    observation_id: UUID | None = None
    data: dict[str, Any] = field(default_factory=dict)
    traceparent: str = ""

    def __post_init__(self) -> None:
        """Check every field; raises INVALID_FIELD."""
        check_identifier("card_id", self.card_id, max_bytes=_MAX_ID_BYTES, required=True)
        check_identifier("account_id", self.account_id, max_bytes=_MAX_ID_BYTES, required=True)
        check_text("type", self.type, max_bytes=_MAX_ID_BYTES, required=True)
        check_instant("observed_at", self.observed_at)
        if not isinstance(self.data, dict):
            raise invalid_field("data", "should be an object")
        object.__setattr__(self, "traceparent", known_traceparent(self.traceparent))

    def encode(self) -> bytes:
        """Write the message for the broker."""
        return dump_object(
            {
                "schema_version": SCHEMA_VERSION,
                "event_id": str(self.event_id),
                "card_id": self.card_id,
                "account_id": self.account_id,
                "type": self.type,
                "observed_at": format_instant(self.observed_at),
                "observation_id": None if self.observation_id is None else str(self.observation_id),
                "data": self.data,
                "traceparent": self.traceparent,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a message strictly; raises INVALID_FIELD or NewerSchemaError."""
        data = parse_object(body)
        observation_id = data.get("observation_id")
        return cls(
            event_id=parse_uuid("event_id", data.get("event_id")),
            card_id=_text(data, "card_id"),
            account_id=_text(data, "account_id"),
            type=_text(data, "type"),
            observed_at=parse_instant("observed_at", data.get("observed_at")),
            observation_id=None if observation_id is None else parse_uuid("observation_id", observation_id),
            data=data.get("data", {}),
            traceparent=_text(data, "traceparent"),
        )


def _text(data: dict[str, Any], name: str, default: str = "") -> str:
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise invalid_field(name, "should be text")
    return value


def _strip(message: Any, *names: str) -> None:
    removed = 0
    for name in names:
        value = getattr(message, name)
        if isinstance(value, str):
            stripped, count = strip_text(value)
            if count:
                object.__setattr__(message, name, stripped)
                removed += count
    if removed:
        object.__setattr__(message, "stripped_count", message.stripped_count + removed)
