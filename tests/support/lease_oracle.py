"""The rules of slots once more, in plain Python: what the scripts are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lease_service.domain.model import Claim, Outcome, Policy, PoolPolicies, Renewal, Wait
from tests.support.lease_queue_oracle import CONFIRM_MS, QueueOracle

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
    pushed: bool = False
    """Granted to a waiter that has not confirmed it."""


@dataclass
class Oracle:
    now: int = 0
    held: dict[str, Held] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    queue: QueueOracle = field(default_factory=QueueOracle)
    shrunk: bool = False

    def settle(self, *, dispatched: bool = True) -> None:
        """End an operation that may have freed something."""
        if dispatched:
            self.dispatch()
        self.queue.close()
        self.shrunk = False

    def used(self, scope: str) -> int:
        return sum(lease.weight for lease in self.held.values() if scope in lease.scopes)

    def live(self) -> dict[str, Held]:
        return {token: lease for token, lease in self.held.items() if lease.expires > self.now}

    def reap(self) -> int:
        expired = [token for token, lease in self.held.items() if lease.expires <= self.now]
        for token in expired:
            lease = self.held.pop(token)
            if lease.pushed:
                self.queue.suspected = bool(self.queue.waiting)
            else:
                self.spent[token] = lease.expires + SPENT_MS
        return len(expired)

    def dispatch(self) -> set[str]:
        """Grant what fits; returns reserved scopes. Whoever is chosen while its replica is suspected is dropped."""
        if not self.queue.waiting:
            return set()
        queue = self.queue
        for waiter in [one for one in queue.waiting.values() if one.deadline <= self.now]:
            del queue.waiting[waiter.token]
        while True:
            reserved = queue.reserved(self.policies, self.used, self.now)
            waiter = queue.next(self.policies, self.used, reserved)
            if waiter is None:
                return reserved
            del queue.waiting[waiter.token]
            if not queue.suspected:
                self._grant(waiter.claim, waiter.token, pushed=True)
                queue.charge(waiter)

    def learn(self, policies: PoolPolicies, scopes: Sequence[str]) -> None:
        for scope in scopes:
            known, given = self.policies.get(scope), policies.scopes[scope]
            if known is None or known.version <= given.version:
                self.policies[scope] = given

    def acquire(
        self, claim: Claim, tokens: Sequence[str], policies: PoolPolicies, wait: Wait | None = None
    ) -> list[Outcome]:
        self.reap()
        self.learn(policies, claim.scopes)
        if wait and self.queue.waiting:
            self.queue.suspected = False
        reserved = self.dispatch()
        given = [policies.scopes[scope] for scope in claim.scopes]
        found = []
        for token in tokens:
            outcome = self._acquire_one(claim, token, reserved)
            if outcome in (Outcome.PAUSED, Outcome.FULL) and wait and token not in self.queue.waiting:
                rules = [self.policies[scope] for scope in claim.scopes]
                if claim.weight > 1 and any(claim.weight > rule.capacity for rule in rules):
                    outcome = Outcome.TOO_WIDE
                elif self.queue.join(token, claim, wait, given, self.now):
                    outcome = Outcome.WAITING
                else:
                    outcome = Outcome.BACKLOG_FULL
            elif outcome is Outcome.FULL and wait:
                outcome = Outcome.WAITING
            found.append(outcome)
        self.queue.close()
        return found

    def _acquire_one(self, claim: Claim, token: str, reserved: set[str]) -> Outcome:
        if token in self.held:
            return self._acquire_again(claim, self.held[token])
        if token in self.queue.waiting:
            mine = self.queue.waiting[token].claim.owner == claim.owner
            return Outcome.FULL if mine else Outcome.REUSED
        refusal = self._refusal(claim, token, reserved)
        if refusal is None:
            self._grant(claim, token)
        return refusal or Outcome.GRANTED

    def _refusal(self, claim: Claim, token: str, reserved: set[str]) -> Outcome | None:
        rules = [self.policies[scope] for scope in claim.scopes]
        if self.spent.get(token, 0) > self.now:
            return Outcome.SPENT
        if any(rule.paused for rule in rules):
            return Outcome.PAUSED
        if claim.weight > 1 and any(claim.weight > rule.capacity for rule in rules):
            return Outcome.TOO_WIDE
        if reserved & set(claim.scopes) or any(
            self.used(rule.scope) + claim.weight > rule.capacity for rule in rules
        ):
            return Outcome.FULL
        return None

    def _acquire_again(self, claim: Claim, lease: Held) -> Outcome:
        if lease.owner != claim.owner:
            return Outcome.REUSED
        if not lease.pushed:
            return Outcome.HELD
        lease.pushed = False
        lease.expires = self.now + lease.ttl
        if lease.max_until:
            lease.expires = min(lease.expires, lease.max_until)
        return Outcome.GRANTED

    def _grant(self, claim: Claim, token: str, *, pushed: bool = False) -> None:
        rules = [self.policies[scope] for scope in claim.scopes]
        lifetimes = [rule.max_lifetime_ms for rule in rules if rule.max_lifetime_ms]
        longest = min(lifetimes, default=0)
        life = min(claim.ttl_ms, longest) if longest else claim.ttl_ms
        life = min(life, CONFIRM_MS) if pushed else life
        self.held[token] = Held(
            claim.owner,
            claim.weight,
            tuple(claim.scopes),
            claim.ttl_ms,
            self.now + life,
            self.now + longest if longest else 0,
            pushed=pushed,
        )

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
            self.shrunk = True
        return outcome, expires - self.now, lease.weight

    def release(self, token: str) -> tuple[bool, bool]:
        self.queue.waiting.pop(token, None)
        lease = self.held.pop(token, None)
        self.spent[token] = max(self.spent.get(token, 0), self.now + SPENT_MS)
        live = lease is not None and lease.expires > self.now
        return live, lease is not None and not live
