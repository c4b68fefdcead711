"""Looks after the pools in which somebody waits here: grants what falls free by expiry, at the moment it does.

Releases, shrunk weights and policies dispatch by themselves, inside their own scripts. A pool is looked at when its
next lease or deadline ends, not more often: idle waiters cost nothing, however many there are.
"""

from typing import Protocol

from lease_service.domain.model import DispatchResult, PoolPolicies
from servicekit.clock import Clock

_SHORTEST_SECONDS = 0.02
_LONGEST_SECONDS = 60.0
_DOUBT_SECONDS = 1.0
_ROUNDS_PER_POOL = 64


class Dispatching(Protocol):
    """Leases that others wait for."""

    async def dispatch(self, pool: str, longest_ttl_ms: int = 0) -> DispatchResult:
        """Grant to waiters what is free."""
        ...


class Waiters(Protocol):
    """Who waits here."""

    def pools(self) -> list[str]:
        """Return the pools in which somebody waits here."""
        ...

    def queued(self, pool: str) -> int:
        """Return how many the store must know at least."""
        ...

    def call_all(self, pool: str | None = None) -> None:
        """Let everybody ask again."""
        ...


class Policies(Protocol):
    """What this process knows of policies."""

    async def get(self, pool: str) -> PoolPolicies:
        """Return a pool's policies."""
        ...


class Dispatcher:
    """The dispatcher of this process; any number may run at once.

    Args:
        leases: where leases live.
        waiters: who waits here.
        policies: tell how long a pool relearns.
        clock: tells when to look.
    """

    def __init__(self, leases: Dispatching, waiters: Waiters, policies: Policies, *, clock: Clock) -> None:
        self._leases = leases
        self._waiters = waiters
        self._policies = policies
        self._clock = clock
        self._due: dict[str, float] = {}
        self._doubted: set[str] = set()

    def look_soon(self, pool: str) -> None:
        """Look at a pool in the next round."""
        if pool in self._due:
            self._due[pool] = self._clock.monotonic()

    async def run_once(self) -> None:
        """Look at every pool that is due."""
        pools = self._waiters.pools()
        now = self._clock.monotonic()
        self._due = {pool: self._due.get(pool, now) for pool in pools}
        self._doubted &= self._due.keys()
        for pool in pools:
            if self._due[pool] <= now:
                self._due[pool] = now + _DOUBT_SECONDS  # should the look fail
                seconds = await self._look(pool)
                self._due[pool] = self._clock.monotonic() + seconds

    async def _look(self, pool: str) -> float:
        longest_ttl_ms = (await self._policies.get(pool)).longest_ttl_ms
        for _ in range(_ROUNDS_PER_POOL):
            result = await self._leases.dispatch(pool, longest_ttl_ms)
            if not result.more:
                break
        else:
            return 0.0
        if self._has_lost_waiters(pool, result):
            return _DOUBT_SECONDS
        seconds = result.next_ms / 1000 if result.next_ms else _LONGEST_SECONDS
        return min(max(seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)

    def _has_lost_waiters(self, pool: str, result: DispatchResult) -> bool:
        """Notice a store that knows fewer waiters than wait here, twice in a row: then everybody asks again.

        Once may be a grant that is on its way.
        """
        if result.waiting >= self._waiters.queued(pool):
            self._doubted.discard(pool)
            return False
        if pool in self._doubted:
            self._doubted.discard(pool)
            self._waiters.call_all(pool)
        else:
            self._doubted.add(pool)
        return True
