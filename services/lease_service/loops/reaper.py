"""Removes expired leases and spent tokens, and repairs used weights that differ from the leases."""

from collections.abc import Sequence
from typing import Protocol

from lease_service.domain.model import PoolPolicies, PoolState, ReapResult
from servicekit.clock import Clock
from servicekit.logs import get_logger
from servicekit.telemetry import Metric, counter, gauge

_ROUNDS_PER_POOL = 64

_log = get_logger(__name__)


class PoolNames(Protocol):
    """Knows which pools there are."""

    async def pools(self) -> list[str]:
        """Return the names of all pools."""
        ...

    async def read(self, pool: str) -> PoolPolicies:
        """Read the policies of one pool."""
        ...


class Reapable(Protocol):
    """Leases that may have expired."""

    async def reap(self, pool: str) -> ReapResult:
        """Remove some expired leases."""
        ...

    async def recount(self, pool: str, most: int) -> int:
        """Repair used weights; returns how many, or -1 for a pool larger than ``most``."""
        ...

    async def explain(self, policies: PoolPolicies) -> PoolState:
        """Return what a pool holds."""
        ...


class Reaper:
    """The reaper of every pool. An acquire reaps its own pool, so slots do not wait for this loop.

    Args:
        leases: where leases live.
        names: which pools there are; while it is away the last known ones are reaped.
        clock: tells when a recount is due.
        recount_every: seconds.
        recount_most: larger pools are not recounted.
    """

    def __init__(
        self, leases: Reapable, names: PoolNames, *, clock: Clock, recount_every: float, recount_most: int
    ) -> None:
        self._leases = leases
        self._names = names
        self._clock = clock
        self._recount_every = recount_every
        self._recount_most = recount_most
        self._known: Sequence[str] = ()
        self._recount_at = clock.monotonic()

    async def run_once(self) -> None:
        """Reap every pool; now and then recount it too."""
        try:
            self._known = await self._names.pools()
        finally:
            recount = self._clock.monotonic() >= self._recount_at
            if recount:
                self._recount_at = self._clock.monotonic() + self._recount_every
            for pool in self._known:
                await self._reap(pool)
                if recount:
                    await self._recount(pool)

    async def _reap(self, pool: str) -> None:
        for _ in range(_ROUNDS_PER_POOL):
            result = await self._leases.reap(pool)
            if result.reaped:
                counter(Metric.SLOTS_REAPED).inc(result.reaped)
            if not result.more:
                return

    async def _recount(self, pool: str) -> None:
        repaired = await self._leases.recount(pool, self._recount_most)
        if repaired > 0:
            _log.error("used weights had drifted and were repaired", pool=pool, scopes=repaired)
        state = await self._leases.explain(await self._names.read(pool))
        for scope in state.scopes:
            gauge(Metric.SLOTS_USED).labels(pool, scope.scope).set(scope.used)
            gauge(Metric.SLOTS_CAPACITY).labels(pool, scope.scope).set(scope.capacity)
            gauge(Metric.SLOTS_WAITING).labels(pool, scope.scope).set(scope.waiting_count)
