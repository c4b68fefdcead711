"""Slots for threads: ``with slots.hold("gateway:acme", scopes=["poll"]) as slot: ...``, no event loop needed.

Nothing can cancel a thread from outside. A block therefore asks: ``slot.check()`` raises :class:`SlotLost`,
``slot.lost`` tells, and ``on_lost`` is called (for example to close a socket that the block waits for). Leaving raises
it too.
"""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import grpc

from servicekit import grpc_status
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_call import AUTHORIZATION_KEY
from servicekit.ids import new_token
from servicekit.settings import AuthSettings
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from sluicegate_client.local_lease import HeldLease, SlotLost, local_deadline
from sluicegate_client.slot_renewal import CHANNEL_OPTIONS, Renewer
from sluicegate_client.slots import DEFAULT_TTL, half_window, milliseconds, slot_metadata, wait_milliseconds

_CALL_SECONDS = 2.5
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_UNKNOWN = frozenset({Reason.DEPENDENCY_AWAY, Reason.TIME_IS_UP, Reason.INTERNAL, Reason.CANCELLED})
_WORTH_WAITING = frozenset(
    {Reason.SLOT_UNAVAILABLE, Reason.PAUSED, Reason.DEPENDENCY_AWAY, Reason.TIME_IS_UP}
)

OnLost = Callable[[SlotLost], None]


class ThreadLease(HeldLease):
    """A lease whose work runs in a thread: who wants to know is called from a timer's or the renewing thread, once.

    Args:
        granted: what the lease service answered.
        pool: where it was granted.
        sent_at: monotonic seconds just before it was asked for.
        ttl_seconds: its life without renewal.
        on_lost: called when it is lost; must not block.
    """

    def __init__(
        self, granted: wire.Lease, pool: str, *, sent_at: float, ttl_seconds: float, on_lost: OnLost | None
    ) -> None:
        super().__init__(
            pool,
            granted.token,
            fence=granted.fence,
            weight=granted.weight,
            ttl_seconds=ttl_seconds,
            deadline=local_deadline(sent_at, granted.remaining_ms, ttl_seconds),
            ticket=granted.ticket,
        )
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = False
        if on_lost is not None:
            self._arm()

    def lose(self, message: str) -> None:
        """Say that the lease is gone; any thread."""
        with self._lock:
            if self._loss is not None or self._closed:
                return
            super().lose(message)
            loss, on_lost = self._loss, self._on_lost
        if on_lost is not None and loss is not None:
            on_lost(loss)

    def loss(self) -> SlotLost | None:
        """Return why the work must stop, or None while it may go on."""
        if self._loss is None and self.lost:
            self.lose("the lease could not be renewed in time")
        return self._loss

    def close(self) -> None:
        """Stop watching the deadline: the lease is being given back."""
        with self._lock:
            self._closed = True
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _arm(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._timer = threading.Timer(max(0.0, self.deadline - time.monotonic()), self._tick)
            self._timer.daemon = True
            self._timer.start()

    def _tick(self) -> None:
        if self.loss() is None:
            self._arm()


class SyncSlots:
    """A process's connection to the lease service, for threads. Safe for many threads; blocks.

    Args:
        target: the lease service, ``host:port``.
        owner: stable name of this process, shown to operators.
        auth: how to sign in.
    """

    def __init__(self, target: str, *, owner: str, auth: AuthSettings | None = None) -> None:
        self.owner = owner
        token = auth.token.get_secret_value() if auth and auth.mode == "token" and auth.token else None
        self._metadata = ((AUTHORIZATION_KEY, f"Bearer {token}"),) if token else ()
        self._channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._stub: Any = lease_pb2_grpc.LeaseServiceStub(self._channel)
        self._renewer = Renewer(target, auth)

    def hold(
        self,
        pool: str,
        *,
        scopes: Sequence[str],
        weight: int = 1,
        ttl: timedelta = DEFAULT_TTL,
        job: str = "",
        wait: timedelta | None = None,
        tenant: str = "",
        priority: int = 0,
        on_lost: OnLost | None = None,
    ) -> "SyncHold":
        """Return a context manager that holds a lease while its block runs.

        Entering raises ServiceError SLOT_UNAVAILABLE, PAUSED, NOT_FOUND, DEPENDENCY_AWAY, ...; leaving raises
        :class:`SlotLost` when the lease was lost while the block ran.

        Args:
            pool: from which pool.
            scopes: charged together, one to four.
            weight: units of every scope.
            ttl: life without renewal; at least 200 ms.
            job: what for; shown to operators.
            wait: how long to wait for a free slot, as in :meth:`Slots.hold`; None: not at all.
            tenant: in whose line; by default the caller's.
            priority: -10 to 10, higher ones first.
            on_lost: called from another thread at the moment of a loss.
        """
        request = wire.AcquireRequest(
            pool=pool,
            scopes=scopes,
            weight=weight,
            ttl_ms=milliseconds(ttl),
            owner=self.owner,
            job=job,
            tenant=tenant,
            priority=priority,
        )
        return SyncHold(self, request, ttl_seconds=ttl.total_seconds(), wait=wait, on_lost=on_lost)

    def close(self) -> None:
        """Close the connections; leases that are still held are left to their expiry. Blocks up to 2 s."""
        self._renewer.close()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _acquire(
        self, request: wire.AcquireRequest, *, ttl_seconds: float, on_lost: OnLost | None
    ) -> ThreadLease:
        request.token = new_token()
        sent_at = time.monotonic()
        try:
            seconds = _CALL_SECONDS + request.wait_ms / 1000
            answer = self._stub.Acquire(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            known = _service_error(error)
            if known.reason in _UNKNOWN:
                self._renewer.release_later(request.pool, request.token)
            raise known from None
        except BaseException:
            self._renewer.release_later(request.pool, request.token)
            raise
        lease = ThreadLease(
            answer.lease,
            request.pool,
            sent_at=sent_at + answer.waited_ms / 1000,
            ttl_seconds=ttl_seconds,
            on_lost=on_lost,
        )
        if lease.lost:
            self._release(lease)
            raise SlotLost(f"pool {request.pool}: the grant came too late to be used")
        self._renewer.add(lease)
        return lease

    def _release(self, lease: ThreadLease) -> None:
        self._renewer.remove(lease.token)
        lease.close()
        request = wire.ReleaseRequest(pool=lease.pool, tokens=[lease.token])
        try:
            self._stub.Release(request, timeout=_CALL_SECONDS, metadata=self._metadata)
        except grpc.RpcError:
            self._renewer.release_later(lease.pool, lease.token)
        except BaseException:
            self._renewer.release_later(lease.pool, lease.token)
            raise


class SyncHold:
    """Holds one lease while a block runs; made by :meth:`SyncSlots.hold`. Use once."""

    def __init__(
        self,
        slots: SyncSlots,
        request: wire.AcquireRequest,
        *,
        ttl_seconds: float,
        wait: timedelta | None,
        on_lost: OnLost | None,
    ) -> None:
        self._slots = slots
        self._request = request
        self._ttl_seconds = ttl_seconds
        self._wait = wait
        self._on_lost = on_lost
        self._lease: ThreadLease | None = None

    @property
    def lease(self) -> ThreadLease:
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
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What tells a called service under which lease a call is made; hand it to the stub."""
        return slot_metadata(self.lease)

    @property
    def lost(self) -> bool:
        """Whether the work must stop."""
        return self.lease.lost

    def check(self) -> None:
        """Raise :class:`SlotLost` when the work must stop; cheap enough for every turn of a loop."""
        loss = self.lease.loss()
        if loss is not None:
            raise loss

    def __enter__(self) -> Self:
        give_up_at = time.monotonic() + (self._wait.total_seconds() if self._wait else 0.0)
        longest = _FIRST_PAUSE_SECONDS
        while True:
            left = timedelta(seconds=max(give_up_at - time.monotonic(), 0))
            self._request.wait_ms = wait_milliseconds(left)
            try:
                self._lease = self._slots._acquire(  # noqa: SLF001 - its own module
                    self._request, ttl_seconds=self._ttl_seconds, on_lost=self._on_lost
                )
            except ServiceError as error:
                pause = half_window(longest)
                if error.reason not in _WORTH_WAITING or time.monotonic() + pause >= give_up_at:
                    raise
            else:
                return self
            time.sleep(pause)
            longest = min(longest * 2, _LONGEST_PAUSE_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = self.lease
        loss = lease.loss()
        self._slots._release(lease)  # noqa: SLF001 - its own module
        if loss is not None and kind is None:
            raise loss


def _service_error(error: Any) -> ServiceError:
    trailing = tuple(error.trailing_metadata() or ())
    return grpc_status.rebuild(error.code(), error.details() or "", trailing, peer="lease_service")
