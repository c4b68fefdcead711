"""Who waits, in the order in which they would be granted, and why one of them still waits."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lease_service.domain.model import PoolState, QueuedRequest, ScopeState, Waiter


def in_order(requests: Iterable[QueuedRequest]) -> list[Waiter]:
    """Number waiters by when they would be granted if everything fitted and classes were strict. O(n log n).

    Inside a class a tenant's next request starts at the tenant's tag, and each one after it a cost later.
    """
    lines: dict[tuple[int, str], list[QueuedRequest]] = defaultdict(list)
    for request in requests:
        lines[request.waiter.priority, request.waiter.tenant].append(request)
    keyed = []
    for (priority, _), line in lines.items():
        line.sort(key=lambda request: request.place)
        tag = line[0].tag
        for request in line:
            keyed.append((-priority, tag, request.place, request.waiter))
            tag += request.cost
    keyed.sort(key=lambda row: row[:3])
    return [replace(row[3], position=position) for position, row in enumerate(keyed, 1)]


def why_waiting(pool: str, state: PoolState, waiter: Waiter, waiters: Sequence[Waiter]) -> str:
    """Say in one sentence why a request still waits."""
    ahead = [other for other in waiters if other.position < waiter.position]
    mine = sum(other.tenant == waiter.tenant for other in ahead)
    line = f"place {waiter.position} of {len(waiters)} in {pool} ({mine} of tenant {waiter.tenant} before it)"
    return f"waits, {line}: {_obstacle(pool, state, waiter)}; it gives up in {waiter.remaining_ms} ms"


def _obstacle(pool: str, state: PoolState, waiter: Waiter) -> str:
    if state.relearning_ms:
        return f"{pool} has lost its leases and grants nothing for another {state.relearning_ms} ms"
    if state.paused:
        return f"{pool} is paused"
    needed = [scope for scope in state.scopes if scope.scope in waiter.scopes]
    narrow = [scope for scope in needed if scope.capacity - scope.used < waiter.weight]
    if narrow:
        return "; ".join(_shortage(scope, waiter.weight) for scope in narrow)
    return "its scopes have room: it is kept back for a wide request that is first in order, or granted this moment"


def _shortage(scope: ScopeState, weight: int) -> str:
    if weight > scope.capacity:
        return f"{scope.scope} has capacity {scope.capacity} and it needs {weight}"
    return (
        f"it needs {weight} of {scope.scope}, of which {scope.used} of {scope.capacity} are held by "
        f"{scope.holder_count} leases, the next of which expires in {scope.next_expiry_ms} ms if nobody renews it"
    )
