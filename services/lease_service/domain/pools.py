"""What operators may do with pools: policies, pauses, looking inside, taking leases away."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from lease_service.domain.model import (
    Holder,
    Policy,
    PolicyChange,
    PoolPolicies,
    PoolState,
    ScopeState,
    StoredPolicies,
)
from lease_service.domain.policy_cache import PolicyCache
from lease_service.domain.slots import CALL_SECONDS, within
from servicekit.errors import Reason, ServiceError, invalid_field

DEFAULT_PAGE = 100

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


class Pools:
    """Policies and what operators see.

    Args:
        leases: where leases live.
        policies: where policies live.
        cache: what this process knows of them; cleared after every change.
        push_failed: told when a stored policy could not be pushed: other replicas follow when their caches end.
    """

    def __init__(
        self, leases: PoolStore, policies: PolicyStore, cache: PolicyCache, *, push_failed: PushFailed
    ) -> None:
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

    async def force_release(self, pool: str, token: str, *, actor: str, reason: str) -> tuple[bool, int]:
        """Take a lease away; returns whether it was live, and the pool's fence afterwards."""
        await self._known(pool)
        return await within(CALL_SECONDS, self._leases.force_release(pool, token, f"by {actor}: {reason}"))

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
