"""Slots for Python programs: ``async with slots.hold("gateway:acme", scopes=["poll"]): ...``.

The lease is renewed every quarter of its ttl from a thread of its own, the work is cancelled with :class:`SlotLost`
when the lease is gone or could not be renewed in time, and the slot is given back at the end, whatever happens. Without
a slot nothing runs: when the outcome of an acquire is unknown, the token is given back in the background.
"""

import asyncio
import random
import time
import weakref
from collections.abc import Sequence
from contextvars import ContextVar, Token
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from servicekit import call_metadata
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.ids import new_token
from servicekit.settings import AuthSettings
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from sluicegate_client.local_lease import HeldLease, LocalLease, SlotLost, WorkGuard, local_deadline
from sluicegate_client.slot_renewal import Renewer
from sluicegate_client.weighted_lease import Unit, WeightedLease

__all__ = ["DEFAULT_TTL", "Hold", "LocalLease", "SlotLost", "Slots", "Unit", "WeightedLease", "current_lease"]

DEFAULT_TTL = timedelta(seconds=60)
TOKEN_KEY = "sluicegate-slot-token"  # noqa: S105 - the name of a metadata key
FENCE_KEY = "sluicegate-slot-fence"
POOL_KEY = "sluicegate-slot-pool"

_CALL_SECONDS = 2.5
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_LONGEST_WAIT_MS = 600_000
_UNKNOWN = frozenset({Reason.DEPENDENCY_AWAY, Reason.TIME_IS_UP, Reason.INTERNAL, Reason.CANCELLED})
_WORTH_WAITING = frozenset(
    {Reason.SLOT_UNAVAILABLE, Reason.PAUSED, Reason.DEPENDENCY_AWAY, Reason.TIME_IS_UP}
)
_SHORTEST_TTL = timedelta(milliseconds=200)

# A weak reference: whoever copied the context of finished work must not keep its lease alive.
_current: "ContextVar[weakref.ref[LocalLease] | None]" = ContextVar("slot", default=None)


def current_lease() -> LocalLease | None:
    """Return the lease that the present work holds, or None."""
    reference = _current.get()
    return None if reference is None else reference()


def slot_metadata(lease: HeldLease) -> tuple[tuple[str, str], ...]:
    """Return what tells a called service under which lease a call is made."""
    return ((POOL_KEY, lease.pool), (TOKEN_KEY, lease.token), (FENCE_KEY, str(lease.fence)))


class Slots:
    """A process's connection to the lease service. A Component; safe to use before ``start``.

    Args:
        target: the lease service, ``host:port``.
        owner: stable name of this process, shown to operators.
        auth: how to sign in.
    """

    name = "slots"

    def __init__(self, target: str, *, owner: str, auth: AuthSettings | None = None) -> None:
        self.owner = owner
        self._channel = Channel(target, auth=auth, name="lease_service", idempotent=("Release", "Renew"))
        self._stub: Any = lease_pb2_grpc.LeaseServiceStub(self._channel.raw)
        self._renewer = Renewer(target, auth)
        self._releasing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Do nothing: the connection is made with the first call."""

    async def drain(self) -> None:
        """Wait for slots that are being given back."""
        if self._releasing:
            await asyncio.wait(set(self._releasing))

    async def stop(self) -> None:
        """Close the connections; leases that are still held are left to their expiry."""
        await asyncio.to_thread(self._renewer.close)
        await self._channel.stop()

    def hold(
        self,
        pool: str,
        *,
        scopes: Sequence[str],
        weight: int = 1,
        ttl: timedelta = DEFAULT_TTL,
        owner: str | None = None,
        job: str = "",
        wait: timedelta | None = None,
        tenant: str = "",
        priority: int = 0,
        attach: bool = False,
    ) -> "Hold":
        """Return a context manager that holds a lease while its block runs.

        Entering raises ServiceError SLOT_UNAVAILABLE, PAUSED, NOT_FOUND, DEPENDENCY_AWAY, ...; leaving raises
        :class:`SlotLost` when the lease was lost while the block ran.

        Args:
            pool: from which pool.
            scopes: charged together, one to four.
            weight: units of every scope.
            ttl: life without renewal; at least 200 ms.
            owner: by default this process's name.
            job: what for; shown to operators.
            wait: how long to wait for a free slot in the service's fair queue; where the service can't queue, it is
                asked again after pauses of 200 ms to 2 s. None: not at all.
            tenant: in whose line; by default the caller's.
            priority: -10 to 10, higher ones first.
            attach: put pool, token and fence into the metadata of every call that the block makes over a
                `servicekit.grpc_client.Channel`, so that whoever it calls can refuse an older holder.
        """
        return Hold(
            self,
            pool,
            scopes,
            weight=weight,
            ttl=ttl,
            owner=owner or self.owner,
            job=job,
            wait=wait,
            tenant=tenant,
            priority=priority,
            attach=attach,
        )

    def weighted(
        self,
        pool: str,
        *,
        scopes: Sequence[str],
        units: int,
        ttl: timedelta = DEFAULT_TTL,
        job: str = "",
    ) -> WeightedLease:
        """Return leases of several units that a whole process uses locally; see :class:`WeightedLease`."""
        return WeightedLease(self, pool, scopes=scopes, units=units, ttl=ttl, job=job)

    async def acquire(
        self,
        pool: str,
        *,
        scopes: Sequence[str],
        weight: int = 1,
        ttl: timedelta = DEFAULT_TTL,
        owner: str | None = None,
        job: str = "",
        wait: timedelta | None = None,
        tenant: str = "",
        priority: int = 0,
    ) -> LocalLease:
        """Take one lease and keep it renewed until :meth:`release`; prefer :meth:`hold`.

        With ``wait`` the service may queue the request for that long, at most ten minutes.

        Raises:
            ServiceError: why there is none. When the outcome is unknown the token is given back in the background.
        """
        token = new_token()
        request = wire.AcquireRequest(
            pool=pool,
            token=token,
            scopes=scopes,
            weight=weight,
            ttl_ms=milliseconds(ttl),
            owner=owner or self.owner,
            job=job,
            wait_ms=wait_milliseconds(wait),
            tenant=tenant,
            priority=priority,
        )
        sent_at = time.monotonic()
        try:
            answer = await self._stub.Acquire(request, timeout=_CALL_SECONDS + request.wait_ms / 1000)
        except ServiceError as error:
            if error.reason in _UNKNOWN:
                self._renewer.release_later(pool, token)
            raise
        except BaseException:
            self._renewer.release_later(pool, token)
            raise
        return self._keep(pool, answer.lease, sent_at + answer.waited_ms / 1000, ttl.total_seconds())

    async def release(self, lease: LocalLease) -> None:
        """Give a lease back; goes on when the caller is cancelled, and in the background when the service is away."""
        self._renewer.remove(lease.token)
        lease.close()
        task = asyncio.create_task(self._release(lease.pool, lease.token), name="release slot")
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        await asyncio.shield(task)

    def shrink(self, lease: LocalLease, weight: int) -> None:
        """Keep fewer units of a lease from now on; the others are given back with a renewal that is sent at once."""
        lease.weight = weight
        self._renewer.renew_soon(lease.token)

    def _keep(self, pool: str, granted: wire.Lease, sent_at: float, ttl_seconds: float) -> LocalLease:
        lease = LocalLease(
            pool,
            granted.token,
            fence=granted.fence,
            weight=granted.weight,
            ttl_seconds=ttl_seconds,
            deadline=local_deadline(sent_at, granted.remaining_ms, ttl_seconds),
            ticket=granted.ticket,
        )
        if lease.lost:
            lease.close()
            self._renewer.release_later(pool, granted.token)
            raise SlotLost(f"pool {pool}: the grant came too late to be used")
        self._renewer.add(lease)
        return lease

    async def _release(self, pool: str, token: str) -> None:
        try:
            await self._stub.Release(wire.ReleaseRequest(pool=pool, tokens=[token]), timeout=_CALL_SECONDS)
        except ServiceError:
            self._renewer.release_later(pool, token)
        except asyncio.CancelledError:
            self._renewer.release_later(pool, token)
            raise


class Hold:
    """Holds one lease while a block runs; made by :meth:`Slots.hold`. Use once."""

    def __init__(
        self,
        slots: Slots,
        pool: str,
        scopes: Sequence[str],
        *,
        weight: int,
        ttl: timedelta,
        owner: str,
        job: str,
        wait: timedelta | None,
        tenant: str = "",
        priority: int = 0,
        attach: bool = False,
    ) -> None:
        self._slots = slots
        self._pool = pool
        self._shape = {
            "scopes": scopes,
            "weight": weight,
            "ttl": ttl,
            "owner": owner,
            "job": job,
            "tenant": tenant,
            "priority": priority,
        }
        self._wait = wait
        self._attach = attach
        self._metadata: Token[call_metadata.Pairs] | None = None
        self._lease: LocalLease | None = None
        self._guard: WorkGuard | None = None
        self._mark: Token[weakref.ref[LocalLease] | None] | None = None

    @property
    def lease(self) -> LocalLease:
        """The lease; only inside the block."""
        if self._lease is None:
            raise RuntimeError("a hold has a lease only inside its block")
        return self._lease

    @property
    def fence(self) -> int:
        """Store it with whatever is written under this lease, and refuse smaller ones."""
        return self.lease.fence

    @property
    def token(self) -> str:
        """The lease's id."""
        return self.lease.token

    @property
    def lost(self) -> bool:
        """Whether the work must stop; for code that can't be cancelled."""
        return self.lease.lost

    async def __aenter__(self) -> Self:
        self._lease = await self._acquire()
        self._guard = WorkGuard(self._lease)
        self._mark = _current.set(weakref.ref(self._lease))
        if self._attach:
            self._metadata = call_metadata.add(slot_metadata(self._lease))
        self._guard.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease, guard = self.lease, self._guard
        if self._mark is not None:
            _current.reset(self._mark)
        if self._metadata is not None:
            call_metadata.undo(self._metadata)
        try:
            if guard is not None:
                guard.leave(kind, error, trace)
        finally:
            await self._slots.release(lease)

    async def _acquire(self) -> LocalLease:
        give_up_at = time.monotonic() + (self._wait.total_seconds() if self._wait else 0.0)
        longest = _FIRST_PAUSE_SECONDS
        while True:
            left = timedelta(seconds=max(give_up_at - time.monotonic(), 0))
            try:
                return await self._slots.acquire(self._pool, wait=left, **self._shape)  # type: ignore[arg-type]
            except ServiceError as error:
                pause = half_window(longest)
                if error.reason not in _WORTH_WAITING or time.monotonic() + pause >= give_up_at:
                    raise
            await asyncio.sleep(pause)
            longest = min(longest * 2, _LONGEST_PAUSE_SECONDS)


def half_window(longest: float) -> float:
    """Return a random pause in the upper half of a window, in seconds: many waiters do not come back together."""
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreads load, hides nothing


def wait_milliseconds(wait: timedelta | None) -> int:
    """Return how long the service may queue a request: at most what it allows."""
    return 0 if wait is None else min(int(wait / timedelta(milliseconds=1)), _LONGEST_WAIT_MS)


def milliseconds(ttl: timedelta) -> int:
    """Return a ttl as the wire wants it; raises ValueError for one under 200 ms."""
    if ttl < _SHORTEST_TTL:
        raise ValueError(f"a ttl is at least {_SHORTEST_TTL / timedelta(milliseconds=1):.0f} ms")
    return int(ttl / timedelta(milliseconds=1))
