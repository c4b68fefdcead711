"""The slots of the pool ``tasks``, held through lease_service."""

from collections.abc import Sequence
from datetime import timedelta

from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.ids import new_token
from sluicegate.lease.v1 import lease_pb2, lease_pb2_grpc
from task_api.domain.model import Slot

POOL = "tasks"
WORKERS_SCOPE = "workers"
_CALL_SECONDS = 2.0
_MOST_TOKENS = 100
_FULL_RETRY = timedelta(milliseconds=500)


def channel_scope(channel: str) -> str:
    """Return the scope that limits a channel."""
    return f"channel:{channel}"


class TaskSlots:
    """One slot is one unit of the worker limit and of a channel's limit, taken together or not at all.

    Args:
        channel: the connection to lease_service.
        slot_life: life of a slot without renewal; longer than a claim's.
    """

    def __init__(self, channel: Channel, *, slot_life: timedelta) -> None:
        self._stub = lease_pb2_grpc.LeaseServiceStub(channel.raw)
        self._life_ms = slot_life // timedelta(milliseconds=1)

    async def acquire(self, channel: str, *, count: int, owner: str) -> tuple[Sequence[Slot], timedelta]:
        """Take up to ``count`` slots; answer them, and when to try again for the rest."""
        request = lease_pb2.AcquireBatchRequest(
            pool=POOL,
            tokens=[new_token() for _ in range(min(count, _MOST_TOKENS))],
            scopes=[WORKERS_SCOPE, channel_scope(channel)],
            weight=1,
            ttl_ms=self._life_ms,
            owner=owner,
            job=channel,
        )
        try:
            answer = await self._stub.AcquireBatch(request, timeout=_CALL_SECONDS)
        except ServiceError as error:
            if error.reason in (Reason.SLOT_UNAVAILABLE, Reason.PAUSED, Reason.NOT_FOUND):
                return [], error.retry_after or _FULL_RETRY
            raise
        slots = [Slot(lease.token, lease.fence) for lease in answer.leases]
        return slots, timedelta(milliseconds=answer.retry_after_ms)

    async def renew(self, tokens: Sequence[str]) -> set[str]:
        """Extend slots; answer the tokens that are lost."""
        lost: set[str] = set()
        for start in range(0, len(tokens), _MOST_TOKENS):
            items = [lease_pb2.RenewItem(token=token) for token in tokens[start : start + _MOST_TOKENS]]
            answer = await self._stub.Renew(
                lease_pb2.RenewRequest(pool=POOL, items=items), timeout=_CALL_SECONDS
            )
            lost.update(
                result.token for result in answer.results if result.outcome == lease_pb2.RENEW_OUTCOME_LOST
            )
        return lost

    async def release(self, tokens: Sequence[str]) -> None:
        """Give slots back."""
        for start in range(0, len(tokens), _MOST_TOKENS):
            request = lease_pb2.ReleaseRequest(pool=POOL, tokens=tokens[start : start + _MOST_TOKENS])
            await self._stub.Release(request, timeout=_CALL_SECONDS)

    async def save_limit(self, channel: str, concurrency: int, *, actor: str, reason: str) -> None:
        """Store the limit of a channel."""
        await self._set(channel_scope(channel), concurrency, actor=actor, reason=reason)

    async def save_worker_limit(self, limit: int, *, actor: str, reason: str) -> None:
        """Store how many tasks may run at once, all channels together."""
        await self._set(WORKERS_SCOPE, limit, actor=actor, reason=reason)

    async def stored_scopes(self) -> set[str]:
        """Return the scopes that have a limit."""
        answer = await self._stub.GetPolicy(lease_pb2.GetPolicyRequest(pool=POOL), timeout=_CALL_SECONDS)
        return {policy.scope for policy in answer.policies}

    async def _set(self, scope: str, capacity: int, *, actor: str, reason: str) -> None:
        request = lease_pb2.SetPolicyRequest(
            pool=POOL, scope=scope, capacity=capacity, actor=actor, reason=reason
        )
        await self._stub.SetPolicy(request, timeout=_CALL_SECONDS)
