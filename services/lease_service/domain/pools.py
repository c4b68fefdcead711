"""What operators may do with pools: policies, pauses, looking inside, taking leases away."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from lease_service.domain.model import (
    AuditEvent,
    AuditKind,
    DispatchResult,
    Drained,
    Holder,
    Policy,
    PolicyChange,
    PoolPolicies,
    PoolState,
    QueuedRequest,
    ScopeState,
    StoredPolicies,
    Waiter,
)
from lease_service.domain.policy_cache import PolicyCache
from lease_service.domain.queue_view import in_order, why_waiting
from lease_service.domain.slots import CALL_SECONDS, within
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError, invalid_field
from servicekit.ids import new_token

DEFAULT_PAGE = 100
_FIRST_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 0.5

PushFailed = Callable[[str, Exception], None]


class PoolStore(Protocol):
    """What is known about leases."""

    async def push_policies(self, pool: str, policies: Sequence[Policy], *, pool_is_new: bool) -> None:
        """Make the store of leases know policies, so that no replica can use older ones."""
        ...

    async def force_release(self, pool: str, token: str, note: str) -> tuple[bool, int]:
        """Take a lease away; returns whether it was live, and the fence afterwards."""
        ...

    async def holders(self, pool: str, after: tuple[int, str], page_size: int) -> list[Holder]:
        """Return a page of live leases, soonest to expire first."""
        ...

    async def explain(self, policies: PoolPolicies) -> PoolState:
        """Return what a pool holds."""
        ...

    async def waiters(self, pool: str) -> list[QueuedRequest]:
        """Return everybody who waits, in no order."""
        ...

    async def dispatch(self, pool: str, longest_ttl_ms: int = 0) -> DispatchResult:
        """Grant to waiters what is free; says how many leases are held and how many requests wait."""
        ...


class PolicyStore(Protocol):
    """Where policies live; a change and its audit event are stored together."""

    async def read(self, pool: str) -> PoolPolicies:
        """Read the policies of one pool; empty for an unknown one."""
        ...

    async def read_all(self) -> list[Policy]:
        """Read every policy, in order of pool and scope."""
        ...

    async def set(self, change: PolicyChange) -> StoredPolicies:
        """Store the policy of one scope. Raises ServiceError STALE_VERSION."""
        ...

    async def pause(self, pool: str, *, paused: bool, actor: str, reason: str) -> StoredPolicies:
        """Stop or allow new grants. Raises ServiceError NOT_FOUND."""
        ...

    async def put_audit(self, events: Sequence[AuditEvent]) -> None:
        """Store audit events."""
        ...


class Pools:
    """Policies and what operators see.

    Args:
        leases: where leases live.
        policies: where policies live.
        cache: what this process knows of them; cleared after every change.
        push_failed: told when a stored policy could not be pushed: other replicas follow when their caches end.
        clock: paces the looks of a drain, and dates its audit event.
    """

    def __init__(
        self,
        leases: PoolStore,
        policies: PolicyStore,
        cache: PolicyCache,
        *,
        push_failed: PushFailed,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._leases = leases
        self._policies = policies
        self._cache = cache
        self._push_failed = push_failed

    async def set_policy(self, change: PolicyChange) -> Policy:
        """Store the policy of one scope and push it; a shrink takes effect as leases end.

        Raises:
            ServiceError: STALE_VERSION, DEPENDENCY_AWAY.
        """
        stored = await self._store(change.pool, self._policies.set(change))
        return next(policy for policy in stored.policies if policy.scope == change.scope)

    async def pause(self, pool: str, *, paused: bool, actor: str, reason: str) -> Sequence[Policy]:
        """Stop or allow new grants of a pool; raises ServiceError NOT_FOUND for an unknown one."""
        work = self._policies.pause(pool, paused=paused, actor=actor, reason=reason)
        return (await self._store(pool, work)).policies

    async def policies(self, pool: str) -> Sequence[Policy]:
        """Read the policies of one pool, or of all for an empty name."""
        if not pool:
            return await within(CALL_SECONDS, self._policies.read_all())
        found = await within(CALL_SECONDS, self._policies.read(pool))
        return [found.scopes[scope] for scope in sorted(found.scopes)]

    async def holders(self, pool: str, page_token: str, page_size: int) -> tuple[list[Holder], str]:
        """Return a page of live leases and where the next page starts.

        Raises:
            ServiceError: NOT_FOUND for an unknown pool, INVALID_FIELD for a page token that was not given out.
        """
        after = _read_page_token(page_token)
        await self._known(pool)
        size = page_size or DEFAULT_PAGE
        found = await within(CALL_SECONDS, self._leases.holders(pool, after, size + 1))
        page = found[:size]
        more = len(found) > size
        return page, f"{page[-1].expires_ms}-{page[-1].token}" if more else ""

    async def explain(self, pool: str) -> PoolState:
        """Return what a pool holds; raises ServiceError NOT_FOUND for an unknown one."""
        return await within(CALL_SECONDS, self._leases.explain(await self._known(pool)))

    async def waiters(
        self, pool: str, page_token: str = "", page_size: int = 0
    ) -> tuple[list[Waiter], str, int]:
        """Return a page of those who wait, in order, where the next page starts, and how many wait.

        Raises:
            ServiceError: NOT_FOUND for an unknown pool, INVALID_FIELD for a page token that was not given out.
        """
        if page_token and not page_token.isdecimal():
            raise invalid_field("page_token", "not one that ListWaiters gave out")
        start = int(page_token or 0)
        found = await self._queue(pool)
        end = start + (page_size or DEFAULT_PAGE)
        return found[start:end], str(end) if end < len(found) else "", len(found)

    async def explain_waiter(self, pool: str, token: str, state: PoolState) -> tuple[Waiter | None, str]:
        """Return who waits with a token, and why; None and what is known otherwise."""
        queue = await self._queue(pool)
        waiter = next((waiter for waiter in queue if waiter.token == token), None)
        if waiter is None:
            return None, f"{token} does not wait in {pool}; {verdict(pool, state)}"
        return waiter, why_waiting(pool, state, waiter, queue)

    async def drain(self, pool: str, *, actor: str, reason: str, wait_seconds: float) -> Drained:
        """Pause a pool and wait until nothing is held, at most ``wait_seconds``; returns what is left.

        Raises:
            ServiceError: NOT_FOUND for an unknown pool.
        """
        ends_at = self._clock.monotonic() + wait_seconds
        await self.pause(pool, paused=True, actor=actor, reason=f"drain: {reason}".rstrip(": "))
        pause = _FIRST_LOOK_SECONDS
        while True:
            found = await within(CALL_SECONDS, self._leases.dispatch(pool))
            left = ends_at - self._clock.monotonic()
            if not found.held or left <= 0:
                break
            await self._clock.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_LOOK_SECONDS)
        event = AuditEvent(
            pool=pool,
            event_id=f"drain-{new_token()}",
            kind=AuditKind.DRAIN,
            at=self._clock.now(),
            owner=actor,
            note=f"{found.held} leases left; {reason}".rstrip("; "),
        )
        await within(CALL_SECONDS, self._policies.put_audit([event]))
        return Drained(found.held, found.waiting, await self.explain(pool))

    async def force_release(self, pool: str, token: str, *, actor: str, reason: str) -> tuple[bool, int]:
        """Take a lease away, or send a waiter away; returns whether it was there, and the pool's fence afterwards."""
        await self._known(pool)
        return await within(CALL_SECONDS, self._leases.force_release(pool, token, f"by {actor}: {reason}"))

    async def _queue(self, pool: str) -> list[Waiter]:
        await self._known(pool)
        return in_order(await within(CALL_SECONDS, self._leases.waiters(pool)))

    async def _known(self, pool: str) -> PoolPolicies:
        policies = await self._cache.get(pool)
        if not policies.scopes:
            raise ServiceError(Reason.NOT_FOUND, f"pool {pool} has no policy", metadata={"pool": pool})
        return policies

    async def _store(self, pool: str, change: Awaitable[StoredPolicies]) -> StoredPolicies:
        try:
            stored = await within(CALL_SECONDS, change)
        finally:
            self._cache.forget(pool)
        try:
            await self._leases.push_policies(pool, stored.policies, pool_is_new=stored.pool_is_new)
        except Exception as error:  # noqa: BLE001 - the change is stored: it must not look refused
            self._push_failed(pool, error)
        return stored


def verdict(pool: str, state: PoolState) -> str:
    """Say in one sentence why a request of weight 1 would be refused now, or that it would be granted."""
    if state.relearning_ms:
        return f"refused: {pool} has lost its leases and waits {state.relearning_ms} ms until none can be held any more"
    if state.paused:
        return f"refused: {pool} is paused"
    full = [scope for scope in state.scopes if scope.used >= scope.capacity]
    if full:
        return "refused: " + "; ".join(_describe_full(scope) for scope in full)
    return f"granted: every scope of {pool} has room"


def _describe_full(scope: ScopeState) -> str:
    if scope.capacity == 0:
        return f"{scope.scope} has capacity 0"
    return (
        f"{scope.scope} is full: {scope.used} of {scope.capacity} held by {scope.holder_count} leases, "
        f"the next expires in {scope.next_expiry_ms} ms if nobody renews it"
    )


def _read_page_token(page_token: str) -> tuple[int, str]:
    if not page_token:
        return 0, ""
    expires, _, token = page_token.partition("-")
    if not (expires.isdecimal() and token):
        raise invalid_field("page_token", "not one that ListHolders gave out")
    return int(expires), token
