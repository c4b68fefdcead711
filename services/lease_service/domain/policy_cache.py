"""The policies that this process knows: at most two seconds old, and never a guess.

A failed read pauses new grants of the pool and says so; an expired entry is never served.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lease_service.domain.model import PoolPolicies
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError

MAX_ENTRIES = 1024
MAX_LOADS = 8
COOL_DOWN_SECONDS = 1.0

Load = Callable[[str], Awaitable[PoolPolicies]]


@dataclass(frozen=True, slots=True)
class _Entry:
    until: float
    policies: PoolPolicies | None
    failure: Exception | None = None


class PolicyCache:
    """Policies by pool.

    Args:
        load: reads one pool's policies; runs in a task of its own, so a caller that goes away disturbs nobody.
        ttl: seconds for which a result counts, from the moment its load began; at most 2.
        clock: tells the time.
    """

    def __init__(self, load: Load, *, ttl: float, clock: Clock) -> None:
        self._load = load
        self._ttl = ttl
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._loading: dict[str, asyncio.Task[PoolPolicies]] = {}
        self._places = asyncio.Semaphore(MAX_LOADS)

    async def get(self, pool: str) -> PoolPolicies:
        """Return a pool's policies; waits for one load at most.

        Raises:
            ServiceError: DEPENDENCY_AWAY when they can't be read; new grants are paused meanwhile.
        """
        entry = self._entries.get(pool)
        if entry is not None and entry.until > self._clock.monotonic():
            if entry.policies is not None:
                return entry.policies
            raise _unreadable(pool) from entry.failure
        task = self._loading.get(pool)
        if task is None:
            task = asyncio.create_task(self._fetch(pool), name=f"policies of {pool}")
            task.add_done_callback(_note_failure)
            self._loading[pool] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise _unreadable(pool) from error

    def forget(self, pool: str) -> None:
        """Drop what is known about a pool; a load that has begun before is not kept either."""
        self._entries.pop(pool, None)
        self._loading.pop(pool, None)

    async def _fetch(self, pool: str) -> PoolPolicies:
        task = asyncio.current_task()
        try:
            async with self._places:
                began = self._clock.monotonic()
                policies = await self._load(pool)
        except TimeoutError:
            raise
        except Exception as error:
            self._keep(pool, task, _Entry(self._clock.monotonic() + COOL_DOWN_SECONDS, None, error))
            raise
        finally:
            current = self._loading.get(pool) is task
            if current:
                self._loading.pop(pool)
        if current:
            self._store(pool, _Entry(began + self._ttl, policies))
        return policies

    def _keep(self, pool: str, task: "asyncio.Task[PoolPolicies] | None", entry: _Entry) -> None:
        if self._loading.get(pool) is task:
            self._store(pool, entry)

    def _store(self, pool: str, entry: _Entry) -> None:
        self._entries[pool] = entry
        self._entries.move_to_end(pool)
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)


def _note_failure(task: "asyncio.Task[PoolPolicies]") -> None:
    if not task.cancelled():
        task.exception()  # a failure that nobody waits for any more is no news


def _unreadable(pool: str) -> ServiceError:
    return ServiceError(
        Reason.DEPENDENCY_AWAY,
        f"the slot policies of pool {pool} can't be read: new grants are paused until they can",
    )
