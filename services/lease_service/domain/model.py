"""Values of the lease service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum

DEFAULT_TTL_MS = 60_000
DEFAULT_MAX_WAITING = 20_000
DEFAULT_SHARE = 1
MAX_SCOPES = 4


class Outcome(IntEnum):
    """How the acquire of one token ended; the numbers are those of ``acquire.lua``."""

    GRANTED = 1
    HELD = 2
    FULL = 3
    PAUSED = 4
    SPENT = 5
    REUSED = 6
    TOO_WIDE = 7
    RELEARNING = 8
    WAITING = 9
    BACKLOG_FULL = 10
    WAIT_OVER = 11
    """Waited in vain; no script says so."""


class Renewal(IntEnum):
    """How one renewal ended; the numbers are those of ``renew.lua`` and ``restore.lua``."""

    OK = 1
    LOST = 2
    MAX_LIFETIME = 3
    FORGOTTEN = 4
    """The store has lost leases and this may be one of them; inside the store only."""


class AuditKind(StrEnum):
    """What an audit event is about."""

    GRANT = "grant"
    SHRINK = "shrink"
    RENEW_LOST = "renew_lost"
    RESTORE = "restore"
    RELEASE = "release"
    EXPIRE = "expire"
    LAPSE = "lapse"
    FORCE = "force"
    DRAIN = "drain"
    POLICY = "policy"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What somebody asks for: ``weight`` units in every one of the scopes, for ``ttl_ms``."""

    pool: str
    scopes: Sequence[str]
    weight: int
    owner: str
    ttl_ms: int = DEFAULT_TTL_MS
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How a claim waits that can't be granted at once.

    Attributes:
        wait_ms: how long.
        tenant: whose line it joins.
        priority: higher ones go first, except that every eighth grant looks at fairness alone.
        place: where it stood before, when it joins again; 0 for the end of the line.
    """

    wait_ms: int
    tenant: str
    priority: int = 0
    place: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """How the acquire of one token ended; fence, remaining and weight are 0 unless it holds a lease.

    One that waits has its place in ``fence`` and the rest of its wait in ``remaining_ms``. ``waited_ms`` is how long it
    had waited when it last asked; ``remaining_ms`` was read after that.
    """

    token: str
    outcome: Outcome
    fence: int
    remaining_ms: int
    weight: int
    ticket: bytes = b""
    waited_ms: int = 0

    @property
    def held(self) -> bool:
        """Whether the token holds a lease now."""
        return self.outcome in (Outcome.GRANTED, Outcome.HELD)


@dataclass(frozen=True, slots=True)
class AcquireResult:
    """Attempts in the order of their tokens, and what stopped the first refused one."""

    attempts: Sequence[Attempt]
    limiting_scope: str
    used: int
    capacity: int
    retry_after_ms: int


@dataclass(frozen=True, slots=True)
class RenewItem:
    """One lease to renew; ``ttl_ms`` 0 keeps its own ttl, ``weight`` 0 keeps its weight.

    With its ``ticket`` it lives on even when the store has lost it.
    """

    token: str
    ttl_ms: int = 0
    weight: int = 0
    ticket: bytes = b""


@dataclass(frozen=True, slots=True)
class RenewResult:
    """How the renewal of one lease ended."""

    token: str
    outcome: Renewal
    remaining_ms: int
    weight: int
    ticket: bytes = b""


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """Whether a live lease was freed, and how long it had been held."""

    token: str
    freed: bool
    late: bool
    held_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Capacity of one scope; ``max_lifetime_ms`` 0 is unlimited.

    Attributes:
        max_waiting: requests of all tenants that may wait in the pool before one for this scope is refused.
        max_waiting_per_tenant: likewise of one tenant.
        shares: weight of tenants in the queue; others have 1.
    """

    pool: str
    scope: str
    capacity: int
    max_lifetime_ms: int
    paused: bool
    version: int
    updated_at: datetime
    max_waiting: int = DEFAULT_MAX_WAITING
    max_waiting_per_tenant: int = DEFAULT_MAX_WAITING
    shares: Mapping[str, int] = field(default_factory=dict)

    @property
    def rules(self) -> "PolicyRules":
        """What a change may change."""
        return PolicyRules(
            self.capacity, self.max_lifetime_ms, self.max_waiting, self.max_waiting_per_tenant, self.shares
        )

    def share_of(self, tenant: str) -> int:
        """Return a tenant's weight in the queue."""
        return self.shares.get(tenant, DEFAULT_SHARE)


@dataclass(frozen=True, slots=True)
class PoolPolicies:
    """Every policy of a pool, by scope, and the longest ttl that was ever granted in it."""

    pool: str
    scopes: Mapping[str, Policy]
    longest_ttl_ms: int = DEFAULT_TTL_MS


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """The part of a policy that operators choose."""

    capacity: int
    max_lifetime_ms: int
    max_waiting: int = DEFAULT_MAX_WAITING
    max_waiting_per_tenant: int = DEFAULT_MAX_WAITING
    shares: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """A new capacity of one scope; ``expected_version`` 0 overwrites whatever is stored.

    Attributes:
        max_waiting: None keeps what is stored, likewise ``max_waiting_per_tenant``.
        shares: of these tenants; 0 forgets one. Others keep theirs.
    """

    pool: str
    scope: str
    capacity: int
    max_lifetime_ms: int
    expected_version: int
    actor: str
    reason: str
    max_waiting: int | None = None
    max_waiting_per_tenant: int | None = None
    shares: Mapping[str, int] = field(default_factory=dict)

    def applied_to(self, stored: Policy | None) -> PolicyRules:
        """Return the rules after the change."""
        before = stored.rules if stored else PolicyRules(0, 0)
        shares = {tenant: share for tenant, share in {**before.shares, **self.shares}.items() if share}
        return PolicyRules(
            self.capacity,
            self.max_lifetime_ms,
            before.max_waiting if self.max_waiting is None else self.max_waiting,
            before.max_waiting_per_tenant
            if self.max_waiting_per_tenant is None
            else self.max_waiting_per_tenant,
            shares,
        )


@dataclass(frozen=True, slots=True)
class StoredPolicies:
    """Policies after a change.

    Attributes:
        changed: those that the change touched.
        policies: every policy of the pool.
        pool_is_new: whether the pool had none before.
    """

    changed: Sequence[Policy]
    policies: Sequence[Policy]
    pool_is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A live lease and who holds it."""

    token: str
    expires_ms: int
    remaining_ms: int
    age_ms: int
    fence: int
    owner: str
    job: str
    weight: int
    scopes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeState:
    """What one scope holds."""

    scope: str
    capacity: int
    used: int
    holder_count: int
    next_expiry_ms: int
    paused: bool
    waiting_count: int = 0


@dataclass(frozen=True, slots=True)
class PoolState:
    """What a pool holds now."""

    scopes: Sequence[ScopeState]
    fence: int
    relearning_ms: int

    @property
    def paused(self) -> bool:
        """Whether new grants are stopped."""
        return any(scope.paused for scope in self.scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A request that waits; ``position`` counts from 1, 0 where nobody has counted."""

    token: str
    owner: str
    job: str
    tenant: str
    priority: int
    scopes: Sequence[str]
    weight: int
    age_ms: int
    remaining_ms: int
    position: int = 0


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A waiter as the queue keeps it.

    Attributes:
        waiter: who waits.
        tag: virtual time at which its tenant's next request starts.
        place: rises in the order of joining.
        cost: virtual time that its grant adds to the tag.
    """

    waiter: Waiter
    tag: int
    place: int
    cost: int


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain has left."""

    held: int
    waiting: int
    state: PoolState


@dataclass(frozen=True, slots=True)
class ReapResult:
    """What one call of the reaper removed and left."""

    reaped: int
    more: bool
    held: int


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """What a dispatch found; ``next_ms`` is when to look again, 0 when only an event can change something."""

    reaped: int
    more: bool
    held: int
    next_ms: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One thing that happened to a lease or a policy; ``event_id`` is unique inside a pool."""

    pool: str
    event_id: str
    kind: str
    at: datetime
    token: str = ""
    fence: int = 0
    weight: int = 0
    scopes: Sequence[str] = field(default=())
    owner: str = ""
    job: str = ""
    note: str = ""
