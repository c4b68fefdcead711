"""The gRPC edge of the lease service: wire to domain and back. Bounds of fields are checked before a method runs."""

# ruff: noqa: N802, ARG002 - gRPC names the methods and hands a context to each

from collections.abc import Sequence
from typing import Any

from lease_service.domain.model import (
    Attempt,
    Claim,
    Holder,
    Outcome,
    Policy,
    PolicyChange,
    Renewal,
    RenewItem,
    ScopeState,
)
from lease_service.domain.pools import Pools, verdict
from lease_service.domain.slots import Slots, require_held
from servicekit.telemetry import Metric, counter
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc

_RENEWED = {
    Renewal.OK: wire.RENEW_OUTCOME_OK,
    Renewal.LOST: wire.RENEW_OUTCOME_LOST,
    Renewal.MAX_LIFETIME: wire.RENEW_OUTCOME_MAX_LIFETIME,
}
_CALLERS_FAULT = (Outcome.SPENT, Outcome.REUSED, Outcome.TOO_WIDE)


class LeaseServicer(lease_pb2_grpc.LeaseServiceServicer):
    """Answers ``sluicegate.lease.v1.LeaseService``.

    Args:
        slots: what callers may do.
        pools: what operators may do.
    """

    def __init__(self, slots: Slots, pools: Pools) -> None:
        self._slots = slots
        self._pools = pools

    async def Acquire(self, request: wire.AcquireRequest, context: Any) -> wire.AcquireResponse:
        """Take one lease, or say what is in the way."""
        claim = _claim(request)
        result = await self._slots.acquire_batch(claim, [request.token])
        _count("acquire", result.attempts[0].outcome.name)
        return wire.AcquireResponse(lease=_lease(require_held(claim, result)))

    async def AcquireBatch(
        self, request: wire.AcquireBatchRequest, context: Any
    ) -> wire.AcquireBatchResponse:
        """Take as many leases of one shape as there is room for."""
        claim = _claim(request)
        result = await self._slots.acquire_batch(claim, request.tokens)
        for attempt in result.attempts:
            _count("acquire", attempt.outcome.name)
        if all(attempt.outcome in _CALLERS_FAULT for attempt in result.attempts):
            require_held(claim, result)
        return wire.AcquireBatchResponse(
            leases=[_lease(attempt) for attempt in result.attempts if attempt.held],
            limiting_scope=result.limiting_scope,
            retry_after_ms=result.retry_after_ms,
        )

    async def Renew(self, request: wire.RenewRequest, context: Any) -> wire.RenewResponse:
        """Extend leases; one result per item."""
        items = [RenewItem(item.token, item.ttl_ms, item.weight, item.ticket) for item in request.items]
        results = await self._slots.renew(request.pool, items)
        for result in results:
            _count("renew", result.outcome.name)
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

    async def Release(self, request: wire.ReleaseRequest, context: Any) -> wire.ReleaseResponse:
        """Give leases back; one result per token."""
        results = await self._slots.release(request.pool, request.tokens)
        for result in results:
            _count("release", "LATE" if result.late else "FREED" if result.freed else "NOT_HELD")
        return wire.ReleaseResponse(
            results=[wire.ReleaseResult(token=result.token, freed=result.freed) for result in results]
        )

    async def SetPolicy(self, request: wire.SetPolicyRequest, context: Any) -> wire.SetPolicyResponse:
        """Store the capacity of one scope."""
        change = PolicyChange(
            pool=request.pool,
            scope=request.scope,
            capacity=request.capacity,
            max_lifetime_ms=request.max_lifetime_ms,
            expected_version=request.expected_version,
            actor=request.actor,
            reason=request.reason,
        )
        return wire.SetPolicyResponse(policy=_policy(await self._pools.set_policy(change)))

    async def GetPolicy(self, request: wire.GetPolicyRequest, context: Any) -> wire.GetPolicyResponse:
        """Read the policies of one pool, or of all."""
        return wire.GetPolicyResponse(policies=_policies(await self._pools.policies(request.pool)))

    async def PausePool(self, request: wire.PausePoolRequest, context: Any) -> wire.PausePoolResponse:
        """Stop new grants of a pool."""
        changed = await self._pools.pause(
            request.pool, paused=True, actor=request.actor, reason=request.reason
        )
        return wire.PausePoolResponse(policies=_policies(changed))

    async def ResumePool(self, request: wire.ResumePoolRequest, context: Any) -> wire.ResumePoolResponse:
        """Allow new grants of a pool again."""
        changed = await self._pools.pause(
            request.pool, paused=False, actor=request.actor, reason=request.reason
        )
        return wire.ResumePoolResponse(policies=_policies(changed))

    async def ListHolders(self, request: wire.ListHoldersRequest, context: Any) -> wire.ListHoldersResponse:
        """Return a page of live leases."""
        holders, following = await self._pools.holders(request.pool, request.page_token, request.page_size)
        return wire.ListHoldersResponse(
            holders=[_holder(holder) for holder in holders], next_page_token=following
        )

    async def Explain(self, request: wire.ExplainRequest, context: Any) -> wire.ExplainResponse:
        """Say what a pool holds and why a request would wait."""
        state = await self._pools.explain(request.pool)
        return wire.ExplainResponse(
            scopes=[_scope_state(scope) for scope in state.scopes],
            paused=state.paused,
            fence=state.fence,
            verdict=verdict(request.pool, state),
        )

    async def ForceRelease(
        self, request: wire.ForceReleaseRequest, context: Any
    ) -> wire.ForceReleaseResponse:
        """Take a lease away from its holder."""
        freed, fence = await self._pools.force_release(
            request.pool, request.token, actor=request.actor, reason=request.reason
        )
        return wire.ForceReleaseResponse(freed=freed, fence=fence)


def _claim(request: wire.AcquireRequest | wire.AcquireBatchRequest) -> Claim:
    return Claim(
        pool=request.pool,
        scopes=tuple(request.scopes),
        weight=request.weight,
        owner=request.owner,
        ttl_ms=request.ttl_ms,
        job=request.job,
    )


def _count(operation: str, outcome: str) -> None:
    counter(Metric.SLOT_REQUESTS).labels(operation, outcome.lower()).inc()


def _lease(attempt: Attempt) -> wire.Lease:
    return wire.Lease(
        token=attempt.token,
        fence=attempt.fence,
        remaining_ms=attempt.remaining_ms,
        weight=attempt.weight,
        ticket=attempt.ticket,
    )


def _policies(policies: Sequence[Policy]) -> list[wire.Policy]:
    return [_policy(policy) for policy in policies]


def _policy(policy: Policy) -> wire.Policy:
    message = wire.Policy(
        pool=policy.pool,
        scope=policy.scope,
        capacity=policy.capacity,
        max_lifetime_ms=policy.max_lifetime_ms,
        version=policy.version,
        paused=policy.paused,
    )
    message.updated_at.FromDatetime(policy.updated_at)
    return message


def _holder(holder: Holder) -> wire.Holder:
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


def _scope_state(scope: ScopeState) -> wire.ScopeState:
    return wire.ScopeState(
        scope=scope.scope,
        capacity=scope.capacity,
        used=scope.used,
        holder_count=scope.holder_count,
        next_expiry_ms=scope.next_expiry_ms,
    )
