"""What a process believes about a lease that it holds, and how its work is stopped when the lease is gone.

The local deadline is counted from the moment before the request was sent, on the machine's monotonic clock, with a
margin: it passes before the lease ends on the server, also when no reply ever comes again.
"""

import asyncio
import contextlib
import time
import weakref
from collections.abc import Callable
from types import TracebackType

from servicekit.errors import Reason, ServiceError

MARGIN_SHARE = 0.05
LEAST_MARGIN_SECONDS = 0.02
MOST_MARGIN_SECONDS = 1.0


class SlotLost(ServiceError):  # noqa: N818 - reads as what happened
    """The lease is no longer held: the work that it allowed must stop."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.SLOT_LOST, message)


LostListener = Callable[[SlotLost], None]


class HeldLease:
    """One granted lease, as its holder knows it; renewed from any thread.

    Args:
        pool: where it was granted.
        token: its id.
        fence: to be stored with whatever is written under the lease.
        weight: units held; a smaller one asks the next renewal to give back the rest.
        ttl_seconds: its life without renewal.
        deadline: monotonic seconds, from :func:`local_deadline`.
        ticket: proof of the lease for the lease service; each renewal brings a newer one.
    """

    def __init__(
        self,
        pool: str,
        token: str,
        *,
        fence: int,
        weight: int,
        ttl_seconds: float,
        deadline: float,
        ticket: bytes = b"",
    ) -> None:
        self.pool = pool
        self.token = token
        self.fence = fence
        self.weight = weight
        self.ttl_seconds = ttl_seconds
        self.deadline = deadline
        self.ticket = ticket
        self._loss: SlotLost | None = None

    @property
    def lost(self) -> bool:
        """Whether the work must stop; also true from the very moment of the deadline, before anybody was told."""
        return self._loss is not None or time.monotonic() >= self.deadline

    @property
    def abandoned(self) -> bool:
        """Whether nobody is left who could do the work."""
        return False

    def extend(self, deadline: float) -> None:
        """Move the deadline; any thread. A lease whose deadline has passed stays lost."""
        if not self.lost:
            self.deadline = max(self.deadline, deadline)

    def lose(self, message: str) -> None:
        """Say that the lease is gone; any thread."""
        self._loss = self._loss or SlotLost(f"pool {self.pool}: {message}")


class LocalLease(HeldLease):
    """A lease whose work runs in an event loop. Made and listened to there; see :class:`HeldLease`."""

    def __init__(
        self,
        pool: str,
        token: str,
        *,
        fence: int,
        weight: int,
        ttl_seconds: float,
        deadline: float,
        ticket: bytes = b"",
    ) -> None:
        super().__init__(
            pool,
            token,
            fence=fence,
            weight=weight,
            ttl_seconds=ttl_seconds,
            deadline=deadline,
            ticket=ticket,
        )
        self._listeners: list[LostListener] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    @property
    def abandoned(self) -> bool:
        """Whether the event loop that did the work is gone."""
        return self._loop.is_closed()

    def add_listener(self, listener: LostListener) -> None:
        """Call ``listener`` in the event loop when the lease is lost; at once if it already is."""
        self._listeners.append(listener)
        if self._loss is not None:
            listener(self._loss)

    def remove_listener(self, listener: LostListener) -> None:
        """Call it no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def lose(self, message: str) -> None:
        """Say that the lease is gone; any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and its work with it
            self._loop.call_soon_threadsafe(self._lose, message)

    def close(self) -> None:
        """Stop watching the deadline: the lease is being given back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._listeners.clear()

    def _arm(self) -> None:
        delay = max(0.0, self.deadline - time.monotonic())
        self._timer = self._loop.call_later(delay, _on_timer, weakref.ref(self))

    def _tick(self) -> None:
        if self._loss is not None or self._timer is None:
            return
        if time.monotonic() >= self.deadline:
            self._lose("the lease could not be renewed in time")
        else:
            self._arm()

    def _lose(self, message: str) -> None:
        if self._loss is None:
            self._loss = SlotLost(f"pool {self.pool}: {message}")
            for listener in list(self._listeners):
                listener(self._loss)


class WorkGuard:
    """Cancels the task that entered it when a lease is lost, and turns that cancellation into :class:`SlotLost`."""

    def __init__(self, lease: LocalLease) -> None:
        self._lease = lease
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._loss: SlotLost | None = None

    def enter(self) -> None:
        """Watch over the present task from now on."""
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._lease.add_listener(self._stop)

    def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Stop watching.

        Raises:
            SlotLost: the lease was lost, and nothing else went wrong.
        """
        self._lease.remove_listener(self._stop)
        if self._loss is None:
            if kind is None and self._lease.lost:
                raise SlotLost(f"pool {self._lease.pool}: the lease ended before the work did")
            return
        asked_by_others = self._task is not None and self._task.uncancel() > self._cancelling
        if asked_by_others or (kind is not None and not issubclass(kind, asyncio.CancelledError)):
            return
        raise self._loss from error

    def _stop(self, loss: SlotLost) -> None:
        if self._loss is None and self._task is not None:
            self._loss = loss
            self._task.cancel()


def local_deadline(sent_at: float, remaining_ms: int, ttl_seconds: float) -> float:
    """Return the monotonic second at which work must stop.

    Args:
        sent_at: monotonic seconds just before the request was sent.
        remaining_ms: what the server said.
        ttl_seconds: the lease's full life; the margin is 5 % of it, at least 20 ms and at most 1 s.
    """
    margin = min(max(ttl_seconds * MARGIN_SHARE, LEAST_MARGIN_SECONDS), MOST_MARGIN_SECONDS)
    return sent_at + remaining_ms / 1000 - margin


def _on_timer(reference: "weakref.ref[LocalLease]") -> None:
    lease = reference()
    if lease is not None:
        lease._tick()  # noqa: SLF001 - its own module
