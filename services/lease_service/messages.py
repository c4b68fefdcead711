"""The wire forms of slots: requests into values of the domain, values and failures into answers."""

from collections.abc import Sequence

from lease_service.domain.model import (
    Attempt,
    Claim,
    Holder,
    Policy,
    PolicyChange,
    ReleaseResult,
    Renewal,
    RenewItem,
    RenewResult,
    ScopeState,
    Wait,
    Waiter,
)
from servicekit import principal
from servicekit.errors import ServiceError
from sluicegate.lease.v1 import lease_pb2 as wire

_RENEWED = {
    Renewal.OK: wire.RENEW_OUTCOME_OK,
    Renewal.LOST: wire.RENEW_OUTCOME_LOST,
    Renewal.MAX_LIFETIME: wire.RENEW_OUTCOME_MAX_LIFETIME,
}


def claim_of(request: wire.AcquireRequest | wire.AcquireBatchRequest) -> Claim:
    """Read what is asked for."""
    return Claim(
        pool=request.pool,
        scopes=tuple(request.scopes),
        weight=request.weight,
        owner=request.owner,
        ttl_ms=request.ttl_ms,
        job=request.job,
    )


def wait_of(request: wire.AcquireRequest) -> Wait:
    """Read how it waits; without a tenant in the caller's line."""
    return Wait(
        wait_ms=request.wait_ms,
        tenant=request.tenant or principal.current().tenant,
        priority=request.priority,
    )


def lease_of(attempt: Attempt) -> wire.Lease:
    """Write a granted lease."""
    return wire.Lease(
        token=attempt.token,
        fence=attempt.fence,
        remaining_ms=attempt.remaining_ms,
        weight=attempt.weight,
        ticket=attempt.ticket,
    )


def granted_of(attempt: Attempt) -> wire.AcquireResponse:
    """Write the answer of an acquire that was granted."""
    return wire.AcquireResponse(lease=lease_of(attempt), waited_ms=attempt.waited_ms)


def policies_of(policies: Sequence[Policy]) -> list[wire.Policy]:
    """Write policies."""
    return [policy_of(policy) for policy in policies]


def policy_of(policy: Policy) -> wire.Policy:
    """Write a policy."""
    message = wire.Policy(
        pool=policy.pool,
        scope=policy.scope,
        capacity=policy.capacity,
        max_lifetime_ms=policy.max_lifetime_ms,
        version=policy.version,
        paused=policy.paused,
        max_waiting=policy.max_waiting,
        max_waiting_per_tenant=policy.max_waiting_per_tenant,
        shares=[
            wire.TenantShare(tenant=tenant, weight=share) for tenant, share in sorted(policy.shares.items())
        ],
    )
    message.updated_at.FromDatetime(policy.updated_at)
    return message


def holder_of(holder: Holder) -> wire.Holder:
    """Write a holder."""
    return wire.Holder(
        token=holder.token,
        owner=holder.owner,
        job=holder.job,
        scopes=holder.scopes,
        weight=holder.weight,
        age_ms=holder.age_ms,
        remaining_ms=holder.remaining_ms,
        fence=holder.fence,
    )


def scope_state_of(scope: ScopeState) -> wire.ScopeState:
    """Write what a scope holds."""
    return wire.ScopeState(
        scope=scope.scope,
        capacity=scope.capacity,
        used=scope.used,
        holder_count=scope.holder_count,
        next_expiry_ms=scope.next_expiry_ms,
        waiting_count=scope.waiting_count,
    )


def waiter_of(waiter: Waiter) -> wire.Waiter:
    """Write a waiter."""
    return wire.Waiter(
        token=waiter.token,
        owner=waiter.owner,
        job=waiter.job,
        tenant=waiter.tenant,
        priority=waiter.priority,
        scopes=waiter.scopes,
        weight=waiter.weight,
        position=waiter.position,
        age_ms=waiter.age_ms,
        remaining_ms=waiter.remaining_ms,
    )


def renew_items_of(request: wire.RenewRequest) -> list[RenewItem]:
    """Read what to renew."""
    return [RenewItem(item.token, item.ttl_ms, item.weight, item.ticket) for item in request.items]


def renewals_of(results: Sequence[RenewResult]) -> wire.RenewResponse:
    """Write how renewals ended."""
    return wire.RenewResponse(
        results=[
            wire.RenewResult(
                token=result.token,
                outcome=_RENEWED[result.outcome],
                remaining_ms=result.remaining_ms,
                weight=result.weight,
                ticket=result.ticket,
            )
            for result in results
        ]
    )


def releases_of(results: Sequence[ReleaseResult]) -> wire.ReleaseResponse:
    """Write how releases ended."""
    return wire.ReleaseResponse(
        results=[wire.ReleaseResult(token=result.token, freed=result.freed) for result in results]
    )


def change_of(request: wire.SetPolicyRequest) -> PolicyChange:
    """Read a change of a policy."""
    return PolicyChange(
        pool=request.pool,
        scope=request.scope,
        capacity=request.capacity,
        max_lifetime_ms=request.max_lifetime_ms,
        expected_version=request.expected_version,
        actor=request.actor,
        reason=request.reason,
        max_waiting=request.max_waiting if request.HasField("max_waiting") else None,
        max_waiting_per_tenant=(
            request.max_waiting_per_tenant if request.HasField("max_waiting_per_tenant") else None
        ),
        shares={share.tenant: share.weight for share in request.shares},
    )


def error_of(error: ServiceError) -> wire.SessionError:
    """Write a failure."""
    return wire.SessionError(
        reason=f"REASON_{error.reason.value}",
        message=error.message,
        retry_after_ms=0 if error.retry_after is None else round(error.retry_after.total_seconds() * 1000),
        metadata=error.metadata,
    )
