"""What every gateway adapter promises: the questions, the answers and the failures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol

from pydantic import SecretStr

RAW_LIMIT_BYTES = 4096
"""Raw gateway data kept with an observation, in UTF-8 bytes."""

Kind = Literal["traffic", "network", "realname"]
Reading = Mapping[str, int | str]


class NetworkStatus(StrEnum):
    """The network states every platform's own words are mapped to."""

    ONLINE = "online"
    OFFLINE = "offline"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"


class RealnameStatus(StrEnum):
    """The real-name states every platform's own words are mapped to."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    PENDING = "pending"
    UNKNOWN = "unknown"


class FailureKind(StrEnum):
    """Why a gateway gave no answer that can be used."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    THROTTLED = "throttled"
    SERVER_ERROR = "server_error"
    REFUSED = "refused"
    NOT_FOUND = "not_found"
    MALFORMED = "malformed"


class GatewayError(Exception):
    """A gateway call that failed, with what a caller needs to decide about the next one.

    `retry_after` is the time the gateway asked for, None when it asked for none. `raw` is the answer as it
    came, cut like an observation's; empty when nothing came; `http_status` is None when no status line came.
    """

    def __init__(
        self,
        failure: FailureKind,
        message: str,
        *,
        retry_after: timedelta | None = None,
        raw: str = "",
        latency_ms: int = 0,
        http_status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message
        self.retry_after = retry_after
        self.raw = raw
        self.latency_ms = latency_ms
        self.http_status = http_status

    def __str__(self) -> str:
        return f"{self.failure.value}: {self.message}"


@dataclass(frozen=True, slots=True)
class GatewayAccount:
    """A carrier account as its adapter needs it.

    `credentials` is a JSON object of texts whose names each adapter documents, or one bare token, or empty.
    `reset_day` (1-31) and `time_zone` (IANA) say where a usage cycle starts, for platforms that
    answer per day.
    """

    account_id: str
    kind: str
    base_url: str
    credentials: SecretStr = field(default_factory=lambda: SecretStr(""))
    reset_day: int = 1
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """What a gateway said about one card.

    `observed_at` is the instant the gateway answered, UTC with microseconds. `reading` is None when the
    gateway answered that it has nothing yet. `raw` is at most `RAW_LIMIT_BYTES` of what was read.
    """

    observed_at: datetime
    reading: Reading | None
    raw: str
    latency_ms: int


class GatewayAdapter(Protocol):
    """One account's gateway. Keep one per account: it remembers tokens and looked-up ids."""

    kinds: frozenset[Kind]
    """What this platform can be asked; a caller asks for nothing else."""

    async def fetch(self, kind: Kind, card_id: str) -> GatewayAnswer:
        """Read one fact about a card.

        Readings: traffic `total_bytes` (cycle to date) or `delta_bytes` (since the previous reading); network
        and realname `status`. Raises GatewayError; takes at most the adapter's time-out per gateway call.
        """
        ...

    async def stop(self, card_id: str) -> None:
        """Suspend a card at the carrier; stopping a stopped card is no error. Raises GatewayError."""
        ...

    async def resume(self, card_id: str) -> None:
        """Let a suspended card work again; resuming a working card is no error. Raises GatewayError."""
        ...


def cut_raw(text: str, limit_bytes: int = RAW_LIMIT_BYTES) -> str:
    """Cut a text to at most `limit_bytes` of UTF-8, on a character border."""
    if len(text) * 4 <= limit_bytes:
        return text
    encoded = text.encode("utf-8", errors="replace")
    if len(encoded) <= limit_bytes:
        return text
    return encoded[:limit_bytes].decode("utf-8", errors="ignore")
