"""The gRPC edge of the lease service. Bounds of fields are checked before a method runs."""

# ruff: noqa: N802, ARG002 - gRPC names the methods and hands a context to each

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from lease_service.domain.pools import Pools, verdict
from lease_service.domain.refusals import CALLERS_FAULT
from lease_service.domain.session import Sessions
from lease_service.domain.slots import Slots, require_held
from lease_service.domain.waiting_room import WaitingRoom
from lease_service.messages import (
    change_of,
    claim_of,
    granted_of,
    holder_of,
    lease_of,
    policies_of,
    policy_of,
    releases_of,
    renew_items_of,
    renewals_of,
    scope_state_of,
    wait_of,
    waiter_of,
)
from lease_service.session import SessionStream, note_wait
from servicekit.telemetry import Metric, counter
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc


class LeaseServicer(lease_pb2_grpc.LeaseServiceServicer):
    """Answers ``sluicegate.lease.v1.LeaseService``.

    Args:
        slots: what callers may do.
        waiting: where requests wait.
        sessions: the streams of this process.
        pools: what operators may do.
    """

    def __init__(self, slots: Slots, waiting: WaitingRoom, sessions: Sessions, pools: Pools) -> None:
        self._slots = slots
        self._waiting = waiting
        self._sessions = sessions
        self._pools = pools

    async def Acquire(self, request: wire.AcquireRequest, context: Any) -> wire.AcquireResponse:
        """Take one lease, or say what is in the way."""
        claim = claim_of(request)
        if request.wait_ms:
            result = await self._waiting.acquire(claim, request.token, wait_of(request))
        else:
            result = await self._slots.acquire_batch(claim, [request.token])
        _count("acquire", result.attempts[0].outcome.name)
        note_wait(result.attempts[0])
        return granted_of(require_held(claim, result))

    async def AcquireBatch(
        self, request: wire.AcquireBatchRequest, context: Any
    ) -> wire.AcquireBatchResponse:
        """Take as many leases of one shape as there is room for."""
        claim = claim_of(request)
        result = await self._slots.acquire_batch(claim, request.tokens)
        for attempt in result.attempts:
            _count("acquire", attempt.outcome.name)
        if all(attempt.outcome in CALLERS_FAULT for attempt in result.attempts):
            require_held(claim, result)
        return wire.AcquireBatchResponse(
            leases=[lease_of(attempt) for attempt in result.attempts if attempt.held],
            limiting_scope=result.limiting_scope,
            retry_after_ms=result.retry_after_ms,
        )

    async def Renew(self, request: wire.RenewRequest, context: Any) -> wire.RenewResponse:
        """Extend leases; one result per item."""
        results = await self._slots.renew(request.pool, renew_items_of(request))
        for result in results:
            _count("renew", result.outcome.name)
        return renewals_of(results)

    async def Release(self, request: wire.ReleaseRequest, context: Any) -> wire.ReleaseResponse:
        """Give leases back; one result per token."""
        results = await self._slots.release(request.pool, request.tokens)
        for result in results:
            _count("release", "LATE" if result.late else "FREED" if result.freed else "NOT_HELD")
        return releases_of(results)

    async def Session(self, request_iterator: Any, context: Any) -> AsyncIterator[wire.SessionResponse]:
        """Answer batches of calls, and push grants and losses, for as long as the stream lives."""
        stream = SessionStream(self._slots, self._waiting, self._sessions)
        async with aclosing(stream.serve(request_iterator)) as responses:
            async for response in responses:
                yield response

    async def SetPolicy(self, request: wire.SetPolicyRequest, context: Any) -> wire.SetPolicyResponse:
        """Store the capacity of one scope."""
        return wire.SetPolicyResponse(policy=policy_of(await self._pools.set_policy(change_of(request))))

    async def GetPolicy(self, request: wire.GetPolicyRequest, context: Any) -> wire.GetPolicyResponse:
        """Read the policies of one pool, or of all."""
        return wire.GetPolicyResponse(policies=policies_of(await self._pools.policies(request.pool)))

    async def PausePool(self, request: wire.PausePoolRequest, context: Any) -> wire.PausePoolResponse:
        """Stop new grants of a pool."""
        changed = await self._pools.pause(
            request.pool, paused=True, actor=request.actor, reason=request.reason
        )
        return wire.PausePoolResponse(policies=policies_of(changed))

    async def ResumePool(self, request: wire.ResumePoolRequest, context: Any) -> wire.ResumePoolResponse:
        """Allow new grants of a pool again."""
        changed = await self._pools.pause(
            request.pool, paused=False, actor=request.actor, reason=request.reason
        )
        return wire.ResumePoolResponse(policies=policies_of(changed))

    async def ListHolders(self, request: wire.ListHoldersRequest, context: Any) -> wire.ListHoldersResponse:
        """Return a page of live leases."""
        holders, following = await self._pools.holders(request.pool, request.page_token, request.page_size)
        return wire.ListHoldersResponse(
            holders=[holder_of(holder) for holder in holders], next_page_token=following
        )

    async def ListWaiters(self, request: wire.ListWaitersRequest, context: Any) -> wire.ListWaitersResponse:
        """Return a page of those who wait."""
        waiters, following, total = await self._pools.waiters(
            request.pool, request.page_token, request.page_size
        )
        return wire.ListWaitersResponse(
            waiters=[waiter_of(waiter) for waiter in waiters], next_page_token=following, total=total
        )

    async def DrainPool(self, request: wire.DrainPoolRequest, context: Any) -> wire.DrainPoolResponse:
        """Pause a pool and wait until nothing is held."""
        left = await self._pools.drain(
            request.pool, actor=request.actor, reason=request.reason, wait_seconds=request.wait_ms / 1000
        )
        return wire.DrainPoolResponse(
            held=left.held,
            waiting=left.waiting,
            scopes=[scope_state_of(scope) for scope in left.state.scopes],
        )

    async def Explain(self, request: wire.ExplainRequest, context: Any) -> wire.ExplainResponse:
        """Say what a pool holds and why a request would wait."""
        state = await self._pools.explain(request.pool)
        waiter, words = None, verdict(request.pool, state)
        if request.token:
            waiter, words = await self._pools.explain_waiter(request.pool, request.token, state)
        return wire.ExplainResponse(
            scopes=[scope_state_of(scope) for scope in state.scopes],
            paused=state.paused,
            fence=state.fence,
            verdict=words,
            waiter=waiter_of(waiter) if waiter else None,
        )

    async def ForceRelease(
        self, request: wire.ForceReleaseRequest, context: Any
    ) -> wire.ForceReleaseResponse:
        """Take a lease away from its holder."""
        freed, fence = await self._pools.force_release(
            request.pool, request.token, actor=request.actor, reason=request.reason
        )
        return wire.ForceReleaseResponse(freed=freed, fence=fence)


def _count(operation: str, outcome: str) -> None:
    counter(Metric.SLOT_REQUESTS).labels(operation, outcome.lower()).inc()
