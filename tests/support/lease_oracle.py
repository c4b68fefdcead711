"""The rules of slots once more, in plain Python: what the scripts are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lease_service.domain.model import Claim, Outcome, Policy, PoolPolicies, Renewal

SPENT_MS = 30_000


@dataclass
class Held:
    owner: str
    weight: int
    scopes: tuple[str, ...]
    ttl: int
    expires: int
    max_until: int
    fence: int = 0


@dataclass
class Oracle:
    now: int = 0
    held: dict[str, Held] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)

    def used(self, scope: str) -> int:
        return sum(lease.weight for lease in self.held.values() if scope in lease.scopes)

    def live(self) -> dict[str, Held]:
        return {token: lease for token, lease in self.held.items() if lease.expires > self.now}

    def reap(self) -> int:
        expired = [token for token, lease in self.held.items() if lease.expires <= self.now]
        for token in expired:
            self.spent[token] = self.held.pop(token).expires + SPENT_MS
        return len(expired)

    def learn(self, policies: PoolPolicies, scopes: Sequence[str]) -> None:
        for scope in scopes:
            known, given = self.policies.get(scope), policies.scopes[scope]
            if known is None or known.version <= given.version:
                self.policies[scope] = given

    def acquire(self, claim: Claim, tokens: Sequence[str], policies: PoolPolicies) -> list[Outcome]:
        self.reap()
        self.learn(policies, claim.scopes)
        return [self._acquire_one(claim, token) for token in tokens]

    def _acquire_one(self, claim: Claim, token: str) -> Outcome:
        rules = [self.policies[scope] for scope in claim.scopes]
        if token in self.held:
            return Outcome.HELD if self.held[token].owner == claim.owner else Outcome.REUSED
        if self.spent.get(token, 0) > self.now:
            return Outcome.SPENT
        if any(rule.paused for rule in rules):
            return Outcome.PAUSED
        if claim.weight > 1 and any(claim.weight > rule.capacity for rule in rules):
            return Outcome.TOO_WIDE
        if any(self.used(rule.scope) + claim.weight > rule.capacity for rule in rules):
            return Outcome.FULL
        lifetimes = [rule.max_lifetime_ms for rule in rules if rule.max_lifetime_ms]
        longest = min(lifetimes, default=0)
        life = min(claim.ttl_ms, longest) if longest else claim.ttl_ms
        self.held[token] = Held(
            claim.owner,
            claim.weight,
            tuple(claim.scopes),
            claim.ttl_ms,
            self.now + life,
            self.now + longest if longest else 0,
        )
        return Outcome.GRANTED

    def renew(self, token: str, ttl: int, weight: int) -> tuple[Renewal, int, int]:
        lease = self.live().get(token)
        if lease is None:
            return Renewal.LOST, 0, 0
        expires, outcome = self.now + (ttl or lease.ttl), Renewal.OK
        if lease.max_until and expires >= lease.max_until:
            expires, outcome = lease.max_until, Renewal.MAX_LIFETIME
        lease.expires = expires
        if 0 < weight < lease.weight:
            lease.weight = weight
        return outcome, expires - self.now, lease.weight

    def release(self, token: str) -> tuple[bool, bool]:
        lease = self.held.pop(token, None)
        self.spent[token] = max(self.spent.get(token, 0), self.now + SPENT_MS)
        live = lease is not None and lease.expires > self.now
        return live, lease is not None and not live
