"""What callers may do with slots. Every call ends within two seconds, also when a dependency hangs."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from lease_service.domain.model import (
    DEFAULT_TTL_MS,
    AcquireResult,
    Attempt,
    Claim,
    PoolPolicies,
    ReleaseResult,
    RenewItem,
    RenewResult,
    Wait,
)
from lease_service.domain.policy_cache import PolicyCache
from lease_service.domain.refusals import refusal
from servicekit.errors import Reason, ServiceError, invalid_field

CALL_SECONDS = 1.9
_REAP_ROUNDS = 16

Answer = TypeVar("Answer")


class LeaseStore(Protocol):
    """Where leases live; every operation is atomic."""

    async def acquire(
        self, claim: Claim, tokens: Sequence[str], policies: PoolPolicies, wait: Wait | None = None
    ) -> AcquireResult:
        """Take one lease per token, in order, until a scope is full; with ``wait`` the others wait.

        A driver error leaves the outcome unknown.
        """
        ...

    async def renew(self, pool: str, items: Sequence[RenewItem]) -> list[RenewResult]:
        """Extend leases; one result per item."""
        ...

    async def release(self, pool: str, tokens: Sequence[str]) -> list[ReleaseResult]:
        """Give leases back; one result per token. One that waits stops waiting."""
        ...

    async def held(self, pool: str, tokens: Sequence[str]) -> list[int]:
        """Return how many milliseconds each lease lives yet; 0 for none."""
        ...


class PolicyStore(Protocol):
    """Where policies live."""

    async def widen_ttl(self, pool: str, ttl_ms: int) -> None:
        """Remember that a longer ttl is about to be granted."""
        ...


class Slots:
    """Acquires, renews and releases. A Component, so that draining waits for what is being given back.

    Args:
        leases: where leases live.
        policies: where policies live.
        cache: what this process knows of them.
    """

    name = "leases"

    def __init__(self, leases: LeaseStore, policies: PolicyStore, cache: PolicyCache) -> None:
        self._leases = leases
        self._policies = policies
        self._cache = cache
        self._returning: set[asyncio.Task[None]] = set()

    async def acquire_batch(
        self, claim: Claim, tokens: Sequence[str], wait: Wait | None = None
    ) -> AcquireResult:
        """Take one lease per token until a scope is full; fewer leases than tokens is no error.

        With ``wait`` the others join the queue; :class:`lease_service.domain.waiting_room.WaitingRoom` waits for them.

        Raises:
            ServiceError: NOT_FOUND, INVALID_FIELD, DEPENDENCY_AWAY. After the last one, and after a driver error,
                leases may have been granted: they are given back in the background.
        """
        _check(claim, tokens)
        if not claim.ttl_ms:
            claim = replace(claim, ttl_ms=DEFAULT_TTL_MS)
        return await within(CALL_SECONDS, self._acquire(claim, tokens, wait))

    async def renew(self, pool: str, items: Sequence[RenewItem]) -> list[RenewResult]:
        """Extend leases; partial: one result per item, in order."""
        return await within(CALL_SECONDS, self._renew(pool, items))

    async def release(self, pool: str, tokens: Sequence[str]) -> list[ReleaseResult]:
        """Give leases back; partial and idempotent. Goes on when the caller goes away."""
        return await within(CALL_SECONDS, self._leases.release(pool, tokens))

    async def held(self, pool: str, tokens: Sequence[str]) -> list[int]:
        """Return how many milliseconds each lease lives yet; 0 for none."""
        return await within(CALL_SECONDS, self._leases.held(pool, tokens))

    async def start(self) -> None:
        """Do nothing: there is nothing to prepare."""

    async def drain(self) -> None:
        """Wait for leases that are being given back in the background."""
        if self._returning:
            await asyncio.wait(set(self._returning))

    async def stop(self) -> None:
        """Leave what is being given back to its expiry."""
        for task in self._returning:
            task.cancel()

    async def _acquire(self, claim: Claim, tokens: Sequence[str], wait: Wait | None) -> AcquireResult:
        policies = await self._policies_of(claim)
        if claim.ttl_ms > policies.longest_ttl_ms:
            await self._widen(claim.pool, claim.ttl_ms)
        try:
            for _ in range(_REAP_ROUNDS):
                result = await self._leases.acquire(claim, tokens, policies, wait)
                if not result.limiting_scope or result.retry_after_ms > 0:
                    break
        except ServiceError:
            raise
        except (
            BaseException
        ):  # unknown outcome, also when the caller has gone: nobody may keep what was granted
            self.give_back(claim.pool, tokens)
            raise
        return result

    async def _renew(self, pool: str, items: Sequence[RenewItem]) -> list[RenewResult]:
        longest = max(item.ttl_ms for item in items)
        if longest > DEFAULT_TTL_MS and longest > (await self._cache.get(pool)).longest_ttl_ms:
            await self._widen(pool, longest)
        return await self._leases.renew(pool, items)

    async def _policies_of(self, claim: Claim) -> PoolPolicies:
        policies = await self._cache.get(claim.pool)
        missing = [scope for scope in claim.scopes if scope not in policies.scopes]
        if missing:
            raise ServiceError(
                Reason.NOT_FOUND,
                f"pool {claim.pool} has no policy for scope {missing[0]}: set one with SetPolicy",
                metadata={"pool": claim.pool, "scope": missing[0]},
            )
        return policies

    async def _widen(self, pool: str, ttl_ms: int) -> None:
        await self._policies.widen_ttl(pool, ttl_ms)
        self._cache.forget(pool)

    def give_back(self, pool: str, tokens: Sequence[str]) -> None:
        """Release tokens in the background, whatever they hold; they also stop waiting."""
        task = asyncio.create_task(self._try_release(pool, tokens), name="give back")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _try_release(self, pool: str, tokens: Sequence[str]) -> None:
        try:
            await self._leases.release(pool, tokens)
        except Exception:  # noqa: BLE001 - a background shell; what can't be released expires
            return


def require_held(claim: Claim, result: AcquireResult) -> Attempt:
    """Return the first attempt.

    Raises:
        ServiceError: it holds nothing: SLOT_UNAVAILABLE, BACKLOG_FULL, PAUSED, INVALID_FIELD, KEY_REUSED, SLOT_LOST.
    """
    attempt = result.attempts[0]
    if not attempt.held:
        raise refusal(claim, attempt.outcome, result)
    return attempt


async def within(seconds: float, work: Coroutine[Any, Any, Answer] | Awaitable[Answer]) -> Answer:
    """Wait for some work, but no longer.

    Raises:
        ServiceError: DEPENDENCY_AWAY when the time is up; what was asked for may have happened.
    """
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise ServiceError(
            Reason.DEPENDENCY_AWAY, "the slot store did not answer in time: the outcome is unknown"
        ) from error


def _check(claim: Claim, tokens: Sequence[str]) -> None:
    if len(set(claim.scopes)) != len(claim.scopes):
        raise invalid_field("scopes", "the same scope twice")
    if len(set(tokens)) != len(tokens):
        raise invalid_field("tokens", "the same token twice")
