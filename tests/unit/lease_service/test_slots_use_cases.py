"""Use-cases: unknown outcomes are given back, hung stores do not hang callers, refusals are typed."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from lease_service.domain import slots as module
from lease_service.domain.model import (
    AcquireResult,
    Attempt,
    Claim,
    Outcome,
    Policy,
    PolicyChange,
    PoolPolicies,
    PoolState,
    ReleaseResult,
    RenewItem,
    RenewResult,
    ScopeState,
    StoredPolicies,
    Wait,
)
from lease_service.domain.policy_cache import PolicyCache
from lease_service.domain.pools import Pools, verdict
from lease_service.domain.slots import Slots, require_held
from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError
from tests.support.waiting import eventually

CLAIM = Claim(pool="p", scopes=("a",), weight=1, owner="o")


class Leases:
    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.hang = False
        self.more_to_reap = 0
        self.acquired: list[str] = []
        self.released: list[str] = []
        self.pushed: list[Sequence[Policy]] = []

    async def acquire(
        self, claim: Claim, tokens: Sequence[str], policies: PoolPolicies, wait: Wait | None = None
    ) -> AcquireResult:
        self.acquired += tokens
        if self.hang:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        if self.more_to_reap:
            self.more_to_reap -= 1
            return AcquireResult([Attempt(tokens[0], Outcome.FULL, 0, 0, 0)], "a", 1, 1, 0)
        return AcquireResult(
            [Attempt(token, Outcome.GRANTED, 1, claim.ttl_ms, 1) for token in tokens], "", 0, 0, 0
        )

    async def renew(self, pool: str, items: Sequence[RenewItem]) -> list[RenewResult]:
        return []

    async def release(self, pool: str, tokens: Sequence[str]) -> list[ReleaseResult]:
        self.released += tokens
        return [ReleaseResult(token, freed=True, late=False, held_ms=0) for token in tokens]

    async def held(self, pool: str, tokens: Sequence[str]) -> list[int]:
        return [0] * len(tokens)

    async def push_policies(self, pool: str, policies: Sequence[Policy], *, pool_is_new: bool) -> None:
        if self.failure is not None:
            raise self.failure
        self.pushed.append(policies)


class Policies:
    def __init__(self) -> None:
        self.widened: list[int] = []
        self.policy = Policy(
            pool="p",
            scope="a",
            capacity=1,
            max_lifetime_ms=0,
            paused=False,
            version=1,
            updated_at=datetime.now(UTC),
        )

    async def read(self, pool: str) -> PoolPolicies:
        return PoolPolicies(pool, {"a": self.policy} if pool == "p" else {})

    async def widen_ttl(self, pool: str, ttl_ms: int) -> None:
        self.widened.append(ttl_ms)

    async def set(self, change: PolicyChange) -> StoredPolicies:
        return StoredPolicies([self.policy], [self.policy])


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.fixture
def policies() -> Policies:
    return Policies()


@pytest.fixture
def cache(policies: Policies) -> PolicyCache:
    return PolicyCache(policies.read, ttl=2, clock=ManualClock())


@pytest.fixture
def slots(leases: Leases, policies: Policies, cache: PolicyCache) -> Slots:
    return Slots(leases, policies, cache)


async def test_an_unknown_outcome_is_given_back(slots: Slots, leases: Leases) -> None:
    leases.failure = ConnectionResetError()
    with pytest.raises(ConnectionResetError):
        await slots.acquire_batch(CLAIM, ["t"])
    await slots.drain()
    assert leases.released == ["t"]


async def test_a_caller_that_goes_away_gives_back_what_it_may_have_got(slots: Slots, leases: Leases) -> None:
    leases.hang = True
    task = asyncio.create_task(slots.acquire_batch(CLAIM, ["t"]))
    await eventually(lambda: leases.acquired)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await slots.drain()
    assert leases.released == ["t"]


async def test_a_hung_store_does_not_hang_its_caller(
    slots: Slots, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 0.05)
    leases.hang = True
    with pytest.raises(ServiceError, match="outcome is unknown") as late:
        await slots.acquire_batch(CLAIM, ["t"])
    assert late.value.reason is Reason.DEPENDENCY_AWAY
    await slots.drain()
    assert leases.released == ["t"]


async def test_a_refusal_while_more_can_be_reaped_is_tried_again(slots: Slots, leases: Leases) -> None:
    leases.more_to_reap = 3
    result = await slots.acquire_batch(CLAIM, ["t"])
    assert result.attempts[0].held
    assert leases.acquired == ["t"] * 4


async def test_a_longer_ttl_is_remembered_first(slots: Slots, policies: Policies) -> None:
    await slots.acquire_batch(Claim(pool="p", scopes=("a",), weight=1, owner="o", ttl_ms=60_000), ["t"])
    assert policies.widened == []
    await slots.acquire_batch(Claim(pool="p", scopes=("a",), weight=1, owner="o", ttl_ms=60_001), ["u"])
    assert policies.widened == [60_001]


@pytest.mark.parametrize(
    ("claim", "tokens", "reason"),
    [
        (Claim(pool="p", scopes=("a", "a"), weight=1, owner="o"), ["t"], Reason.INVALID_FIELD),
        (Claim(pool="p", scopes=("a",), weight=1, owner="o"), ["t", "t"], Reason.INVALID_FIELD),
        (Claim(pool="p", scopes=("b",), weight=1, owner="o"), ["t"], Reason.NOT_FOUND),
        (Claim(pool="q", scopes=("a",), weight=1, owner="o"), ["t"], Reason.NOT_FOUND),
    ],
)
async def test_what_can_not_be_granted_is_not_tried(
    slots: Slots, leases: Leases, claim: Claim, tokens: list[str], reason: Reason
) -> None:
    with pytest.raises(ServiceError) as refused:
        await slots.acquire_batch(claim, tokens)
    assert refused.value.reason is reason
    assert leases.acquired == []


@pytest.mark.parametrize(
    ("outcome", "reason", "waits"),
    [
        (Outcome.FULL, Reason.SLOT_UNAVAILABLE, True),
        (Outcome.PAUSED, Reason.PAUSED, True),
        (Outcome.RELEARNING, Reason.SLOT_UNAVAILABLE, True),
        (Outcome.SPENT, Reason.SLOT_LOST, False),
        (Outcome.REUSED, Reason.KEY_REUSED, False),
        (Outcome.TOO_WIDE, Reason.INVALID_FIELD, False),
    ],
)
def test_refusals_are_typed(outcome: Outcome, reason: Reason, *, waits: bool) -> None:
    result = AcquireResult([Attempt("t", outcome, 0, 0, 0)], "a", 3, 3, 700)
    with pytest.raises(ServiceError) as refused:
        require_held(CLAIM, result)
    assert refused.value.reason is reason
    assert (refused.value.retry_after is not None) == waits


async def test_a_stored_policy_is_no_failure_when_it_can_not_be_pushed(
    leases: Leases, policies: Policies, cache: PolicyCache
) -> None:
    told: list[str] = []
    pools = Pools(leases, policies, cache, push_failed=lambda pool, _: told.append(pool), clock=ManualClock())  # type: ignore[arg-type]
    change = PolicyChange(
        pool="p", scope="a", capacity=1, max_lifetime_ms=0, expected_version=0, actor="me", reason=""
    )
    assert await pools.set_policy(change) is policies.policy
    assert (len(leases.pushed), told) == (1, [])
    leases.failure = ConnectionResetError()
    assert await pools.set_policy(change) is policies.policy
    assert told == ["p"]


def test_the_verdict_names_what_is_in_the_way() -> None:
    def scope(name: str, used: int, capacity: int, *, paused: bool = False) -> ScopeState:
        return ScopeState(
            scope=name, capacity=capacity, used=used, holder_count=used, next_expiry_ms=900, paused=paused
        )

    assert verdict("p", PoolState([scope("a", 1, 2)], 1, 0)).startswith("granted")
    assert "a is full: 2 of 2" in verdict("p", PoolState([scope("a", 2, 2), scope("b", 0, 1)], 1, 0))
    assert "capacity 0" in verdict("p", PoolState([scope("a", 0, 0)], 1, 0))
    assert "paused" in verdict("p", PoolState([scope("a", 0, 1, paused=True)], 1, 0))
    assert "lost its leases" in verdict("p", PoolState([scope("a", 0, 1)], 1, 5_000))
