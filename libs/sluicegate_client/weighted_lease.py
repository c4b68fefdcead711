"""Leases of several units that a process uses locally: one call to the lease service serves many pieces of work."""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

from servicekit.errors import Reason, ServiceError
from servicekit.failures import describe
from servicekit.logs import get_logger
from sluicegate_client.local_lease import LocalLease, SlotLost, WorkGuard

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0

_log = get_logger(__name__)


class LeaseSource(Protocol):
    """Takes and gives back leases; `sluicegate_client.slots.Slots`."""

    async def acquire(
        self, pool: str, *, scopes: Sequence[str], weight: int, ttl: timedelta, job: str
    ) -> LocalLease:
        """Take one lease now and keep it renewed. Raises ServiceError when there is none."""
        ...

    async def release(self, lease: LocalLease) -> None:
        """Give a lease back."""
        ...

    def shrink(self, lease: LocalLease, weight: int) -> None:
        """Keep fewer units of a lease."""
        ...


@dataclass(slots=True, eq=False)
class _Part:
    lease: LocalLease
    used: int = 0

    @property
    def free(self) -> int:
        return 0 if self.lease.lost else max(0, self.lease.weight - self.used)


class WeightedLease:
    """Up to ``units`` units of a pool, held by this process and lent to its tasks one by one. A Component.

    It takes what is free and goes on trying for the rest; a lost lease is replaced by a fresh one. Units that are in
    use when their lease is lost are told: their work is cancelled with :class:`SlotLost`. Idle units are held too, so
    give back with :meth:`resize` what is not needed.

    Args:
        source: where leases come from.
        pool: from which pool.
        scopes: charged together for every unit.
        units: how many are wanted.
        ttl: life of each lease without renewal.
        job: what for; shown to operators.
    """

    def __init__(
        self, source: LeaseSource, pool: str, *, scopes: Sequence[str], units: int, ttl: timedelta, job: str
    ) -> None:
        self._source = source
        self._pool = pool
        self._scopes = tuple(scopes)
        self._wanted = units
        self._ttl = ttl
        self._job = job
        self._parts: list[_Part] = []
        self._waiters: deque[asyncio.Future[_Part]] = deque()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_use = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._problem: ServiceError | None = None

    @property
    def name(self) -> str:
        """The pool and what is held of it."""
        return f"slots of {self._pool} {','.join(self._scopes)}"

    @property
    def wanted(self) -> int:
        """How many units this process would like to hold."""
        return self._wanted

    @property
    def held(self) -> int:
        """How many units it holds now."""
        return sum(part.lease.weight for part in self._parts if not part.lease.lost)

    @property
    def in_use(self) -> int:
        """How many units are lent to tasks now, those of lost leases included."""
        return self._in_use

    @property
    def free(self) -> int:
        """How many units a task would get at once."""
        return sum(part.free for part in self._parts)

    @property
    def lost(self) -> bool:
        """Whether units are wanted but none is held."""
        return self._wanted > 0 and self.held == 0

    @property
    def problem(self) -> ServiceError | None:
        """Why there are fewer units than wanted, as the lease service last said; None when there are enough."""
        return self._problem

    def unit(self) -> "Unit":
        """Return a context manager that lends one unit; entering waits until one is free, in order of arrival."""
        return Unit(self)

    def resize(self, units: int) -> None:
        """Want another number of units. A surplus is given back as soon as it is not in use."""
        self._wanted = max(0, units)
        self._shed()
        self._changed.set()

    async def start(self) -> None:
        """Begin to take leases; does not wait for the first."""
        self._stopping = False
        self._task = asyncio.create_task(self._keep(), name=self.name)

    async def drain(self) -> None:
        """Lend no more units, wait for those in use, and give everything back."""
        self._stopping = True
        await self._end_keeping()
        self._refuse_waiters()
        await self._idle.wait()
        await self._give_back()

    async def stop(self) -> None:
        """Give everything back at once; units in use are told."""
        self._stopping = True
        await self._end_keeping()
        self._refuse_waiters()
        for part in self._parts:
            part.lease.lose("the process stops")
        await self._give_back()

    async def _take(self) -> _Part:
        if not self._waiters and not self._stopping:
            part = next((part for part in self._parts if part.free), None)
            if part is not None:
                self._charge(part)
                return part
        if self._stopping:
            raise self._closed()
        waiter: asyncio.Future[_Part] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._put(waiter.result())
            else:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
            raise

    def _charge(self, part: _Part) -> None:
        part.used += 1
        self._in_use += 1
        self._idle.clear()

    def _put(self, part: _Part) -> None:
        part.used -= 1
        self._in_use -= 1
        if self._in_use == 0:
            self._idle.set()
        if part not in self._parts and part.used == 0:
            self._background(part)
        self._shed()
        self._lend()

    def _lend(self) -> None:
        for part in self._parts:
            while part.free and self._waiters:
                waiter = self._waiters.popleft()
                if not waiter.done():
                    self._charge(part)
                    waiter.set_result(part)

    def _shed(self) -> None:
        surplus = self.held - self._wanted
        for part in list(self._parts):
            give = min(surplus, part.free)
            if give <= 0:
                continue
            surplus -= give
            if give == part.lease.weight:
                self._parts.remove(part)
                self._background(part)
            else:
                self._source.shrink(part.lease, part.lease.weight - give)

    def _background(self, part: _Part) -> None:
        task = asyncio.get_running_loop().create_task(self._source.release(part.lease))
        _background_tasks.add(task)
        task.add_done_callback(_background_tasks.discard)

    async def _keep(self) -> None:
        longest = _FIRST_PAUSE_SECONDS
        while True:
            self._changed.clear()
            missing = self._wanted - self.held
            if missing <= 0:
                self._problem = None
                await self._changed.wait()
            elif await self._grow(missing):
                longest = _FIRST_PAUSE_SECONDS
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(random.uniform(longest / 2, longest)):  # noqa: S311 - spreads load
                        await self._changed.wait()
                longest = min(longest * 2, _LONGEST_PAUSE_SECONDS)

    async def _grow(self, missing: int) -> bool:
        weight = missing
        while weight > 0:
            try:
                lease = await self._source.acquire(
                    self._pool, scopes=self._scopes, weight=weight, ttl=self._ttl, job=self._job
                )
            except ServiceError as error:
                self._note(error)
                weight = _smaller(error, weight)
            else:
                self._adopt(lease)
                return True
        return False

    def _adopt(self, lease: LocalLease) -> None:
        part = _Part(lease)
        self._parts.append(part)
        lease.add_listener(lambda loss: self._forget(part, loss))
        self._shed()
        self._lend()

    def _forget(self, part: _Part, loss: SlotLost) -> None:
        if part in self._parts:
            self._parts.remove(part)
            if not self._stopping:
                _log.warning(
                    "a lease was lost", pool=self._pool, units=part.lease.weight, problem=loss.message
                )
            self._background(part)
        self._changed.set()

    def _note(self, error: ServiceError) -> None:
        if self._problem is None or self._problem.reason is not error.reason:
            _log.info("fewer slots than wanted", pool=self._pool, held=self.held, problem=describe(error))
        self._problem = error

    def _refuse_waiters(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(self._closed())

    def _closed(self) -> ServiceError:
        return ServiceError(Reason.SLOT_UNAVAILABLE, f"the process stops lending slots of {self._pool}")

    async def _end_keeping(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _give_back(self) -> None:
        parts, self._parts = self._parts, []
        await asyncio.gather(*(self._source.release(part.lease) for part in parts))


class Unit:
    """One unit of a :class:`WeightedLease` while a block runs; made by :meth:`WeightedLease.unit`. Use once.

    Leaving raises :class:`SlotLost` when the lease was lost while the block ran.
    """

    def __init__(self, owner: WeightedLease) -> None:
        self._owner = owner
        self._part: _Part | None = None
        self._guard: WorkGuard | None = None

    @property
    def lease(self) -> LocalLease:
        """The lease that the unit belongs to; only inside the block."""
        if self._part is None:
            raise RuntimeError("a unit has a lease only inside its block")
        return self._part.lease

    @property
    def lost(self) -> bool:
        """Whether the work must stop; for code that can't be cancelled."""
        return self.lease.lost

    async def __aenter__(self) -> Self:
        self._part = await self._owner._take()  # noqa: SLF001 - its own module
        self._guard = WorkGuard(self._part.lease)
        self._guard.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._part is None or self._guard is None:
            return
        try:
            self._guard.leave(kind, error, trace)
        finally:
            self._owner._put(self._part)  # noqa: SLF001 - its own module


_background_tasks: set[asyncio.Task[None]] = set()


def _smaller(error: ServiceError, weight: int) -> int:
    """Return how many units to ask for after a refusal: what the refusal says is free, 0 when that is nothing."""
    if error.reason is not Reason.SLOT_UNAVAILABLE:
        return 0
    try:
        free = int(error.metadata["capacity"]) - int(error.metadata["used"])
    except (KeyError, ValueError):
        return 0
    return free if 0 < free < weight else 0
