"""The wait queue once more, in plain Python: every rule as a sort over all waiters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lease_service.domain.model import Claim, Policy, Wait

CONFIRM_MS = 3_000
RESERVE_AFTER_MS = 5_000
OLDEST_EVERY = 8
UNIT = 100_000

Shape = tuple[int, int, tuple[str, ...]]


@dataclass
class Waiting:
    token: str
    claim: Claim
    tenant: str
    shape: Shape
    seq: int
    deadline: int
    cost: int


@dataclass
class QueueOracle:
    """Knows who waits and who is next; whoever owns it knows what is free and makes the grants."""

    waiting: dict[str, Waiting] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    heads: dict[Shape, tuple[int, int]] = field(default_factory=dict)
    clock: int = 0
    turn: int = 0
    seq: int = 0
    suspected: bool = False

    def join(self, token: str, claim: Claim, wait: Wait, policies: Sequence[Policy], now: int) -> bool:
        mine = [other for other in self.waiting.values() if other.tenant == wait.tenant]
        if len(self.waiting) >= min(policy.max_waiting for policy in policies):
            return False
        if len(mine) >= min(policy.max_waiting_per_tenant for policy in policies):
            return False
        if not mine:
            self.tags[wait.tenant] = max(self.tags.get(wait.tenant, 0), self.clock)
        self.seq += 1
        share = min(policy.share_of(wait.tenant) for policy in policies)
        self.waiting[token] = Waiting(
            token,
            claim,
            wait.tenant,
            (wait.priority, claim.weight, tuple(sorted(claim.scopes))),
            self.seq,
            now + wait.wait_ms,
            max(claim.weight * UNIT // share, 1),
        )
        return True

    def close(self) -> None:
        """End an operation."""
        shapes = {waiter.shape for waiter in self.waiting.values()}
        self.heads = {shape: head for shape, head in self.heads.items() if shape in shapes}
        if not self.waiting:
            self.tags, self.clock, self.turn, self.suspected = {}, 0, 0, False

    def order(self, waiter: Waiting) -> tuple[int, int]:
        return self.tags[waiter.tenant], waiter.seq

    def reserved(self, policies: dict[str, Policy], used: Callable[[str], int], now: int) -> set[str]:
        found = set()
        for shape in {waiter.shape for waiter in self.waiting.values()}:
            _, weight, scopes = shape
            first = min((one for one in self.waiting.values() if one.shape == shape), key=self.order)
            free = {scope: policies[scope].capacity - used(scope) for scope in scopes}
            narrow = [scope for scope in scopes if free[scope] < weight]
            if weight == 1 or not narrow or any(policies[scope].paused for scope in scopes):
                continue
            scope = min(narrow, key=lambda scope: free[scope])
            if free[scope] <= 0 or weight > policies[scope].capacity:
                continue
            rivals = [one for one in self.waiting.values() if scope in one.shape[2]]
            if min(rivals, key=self.order) is not first:
                continue
            seq, since = self.heads.get(shape, (0, 0))
            if seq != first.seq:
                self.heads[shape] = first.seq, now
            elif now - since >= RESERVE_AFTER_MS:
                found.add(scope)
        return found

    def next(
        self, policies: dict[str, Policy], used: Callable[[str], int], reserved: set[str]
    ) -> Waiting | None:
        eligible = [
            waiter
            for waiter in self.waiting.values()
            if not any(policies[scope].paused or scope in reserved for scope in waiter.shape[2])
            and all(
                used(scope) + waiter.claim.weight <= policies[scope].capacity for scope in waiter.shape[2]
            )
        ]
        by_age = self.turn % OLDEST_EVERY == OLDEST_EVERY - 1
        return min(
            eligible,
            key=lambda waiter: (0 if by_age else -waiter.shape[0], *self.order(waiter)),
            default=None,
        )

    def charge(self, waiter: Waiting) -> None:
        self.turn += 1
        self.clock = max(self.clock, self.tags[waiter.tenant])
        self.tags[waiter.tenant] += waiter.cost
