"""Value types of tasks, claims and channels."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

MAX_JSON_CHARACTERS = 262_144
"""Most characters of a payload or a result."""


class TaskState(StrEnum):
    """Where a task is in its life."""

    READY = "ready"
    DEFERRED = "deferred"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to be stored; checked by ``tasks.check``."""

    task_id: UUID
    tenant: str
    channel: str
    kind: str
    payload: str
    payload_version: int
    priority: int
    max_attempts: int
    idempotency_key: str | None
    request_hash: bytes
    delay: timedelta
    deadline_at: datetime | None
    traceparent: str
    run_order: int = 0
    cost: int = 0


class Unstored(StrEnum):
    """Why a task was not stored."""

    KEY_TAKEN = "key_taken"
    OVER_QUOTA = "over_quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as it is now."""

    task_id: UUID
    tenant: str
    channel: str
    kind: str
    payload: str
    payload_version: int
    priority: int
    max_attempts: int
    created_at: datetime
    state: TaskState
    deadline_at: datetime | None = None
    due_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt_count: int = 0
    result: str = ""
    error: str = ""
    progress_percent: int = 0
    cancel_requested: bool = False
    worker: str = ""
    cost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One claimed execution that ended."""

    epoch: int
    worker: str
    outcome: str
    error_class: str
    error: str
    started_at: datetime
    finished_at: datetime


class ClaimKey(NamedTuple):
    """The right to write for one attempt of one task."""

    task_id: UUID
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Slot:
    """One unit of the channel and of the worker limit, held for a claim."""

    token: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A claimed task."""

    key: ClaimKey
    slot: Slot
    tenant: str
    channel: str
    kind: str
    payload: str
    payload_version: int
    max_attempts: int
    deadline_at: datetime | None
    traceparent: str
    lease: timedelta
    waited_seconds: float
    run_order: int = 0


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a worker can run, and how much of it now.

    Attributes:
        capabilities: kind -> newest payload version that it reads.
    """

    worker: str
    channels: tuple[str, ...]
    capabilities: dict[str, int]
    max_tasks: int

    @property
    def capability_key(self) -> tuple[tuple[str, int], ...]:
        """What can be run, as a name for it."""
        return tuple(sorted(self.capabilities.items()))


class WriteOutcome(StrEnum):
    """How one write of a worker ended."""

    OK = "ok"
    CLAIM_LOST = "claim_lost"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """How one write of a worker ended; the message says why it was refused."""

    outcome: WriteOutcome
    message: str = ""


WRITTEN = WriteResult(WriteOutcome.OK)
LOST = WriteResult(WriteOutcome.CLAIM_LOST, "the claim is no longer held")


@dataclass(frozen=True, slots=True)
class DueTask:
    """A deferred task whose time has come."""

    channel: str
    tenant: str
    priority: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """A claim that was extended."""

    slot_token: str
    remaining: timedelta
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class Renewal:
    """How one renewal ended; nothing remains of a lost claim."""

    held: bool
    remaining: timedelta = timedelta()
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True)
class EndedClaim:
    """A claim that a write has just ended, and the slot that it leaves behind."""

    key: ClaimKey
    channel: str
    slot_token: str
    terminal: bool


@dataclass(frozen=True, slots=True)
class TextPiece:
    """One text event to be."""

    key: ClaimKey
    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """Progress of one task."""

    key: ClaimKey
    percent: int
    message: str
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Export:
    """Where the one logical result of an export is."""

    export_id: str
    object_key: str
    row_count: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Completion:
    """The good end of an attempt."""

    key: ClaimKey
    result: str
    export: Export | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The bad end of an attempt."""

    key: ClaimKey
    error_class: str
    error: str
    retry_after: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPolicy:
    """What operators have set for a channel."""

    name: str
    concurrency: int
    max_backlog: int
    max_attempts: int
    paused: bool = False
    version: int = 0
    max_age: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class ChannelLoad:
    """What waits and runs in a channel."""

    ready: int = 0
    deferred: int = 0
    running: int = 0
    oldest_ready: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel and its load."""

    policy: ChannelPolicy
    load: ChannelLoad = field(default_factory=ChannelLoad)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """Who changed what."""

    audit_id: int
    changed_at: datetime
    actor: str
    action: str
    subject: str
    reason: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """What operators have set for a tenant, and what it has used."""

    name: str
    weight: int
    quota: int | None
    reserved: int = 0
    spent: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One movement of units."""

    entry_id: int
    task_id: UUID
    life: int
    kind: str
    amount: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Route:
    """Which channel a model's tasks run in."""

    model: str
    channel: str
    version: int = 0
