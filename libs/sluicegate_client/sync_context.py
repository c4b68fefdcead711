"""What a handler that is a plain function sees of its task, and what carries its words to the server."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from sluicegate_client.task_context import StopReason, TaskContext, TaskFacts
from sluicegate_client.worker_calls import ClaimedTask


class StoppedError(BaseException):
    """The handler was asked to stop; let it pass after cleaning up. No ``except Exception`` catches it."""


class Link(Protocol):
    """Carries what a plain handler says; every call blocks, and raises StoppedError once the attempt is over."""

    def write(self, text: str) -> None:
        """Add text to the task's text events."""

    def flush(self) -> None:
        """Wait until all text is committed."""

    def progress(self, percent: float, message: str) -> None:
        """Report progress."""

    def stop_reason(self) -> StopReason | None:
        """Return why the handler should stop; None while nobody asked."""

    def wait(self, seconds: float | None) -> bool:
        """Wait until the handler should stop; whether it should."""


class SyncText:
    """Writes a task's text events; the calls block."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def write(self, text: str) -> None:
        """Add text; waits only while much is unsent. Raises as TextWriter.write does, or StoppedError."""
        self._link.write(text)

    def flush(self) -> None:
        """Wait until everything written so far is committed; raises as :meth:`write` does."""
        self._link.flush()


class SyncTaskContext(TaskFacts):
    """One attempt of one task, as a plain function sees it.

    Attributes:
        text: writes the task's text events.
    """

    def __init__(self, claimed: ClaimedTask, link: Link, *, ends_at: float | None = None) -> None:
        super().__init__(claimed, ends_at=ends_at)
        self._link = link
        self.text = SyncText(link)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the handler should stop; None while nobody asked it to."""
        return self._link.stop_reason()

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: look at it between steps."""
        return self._link.stop_reason() is not None

    def raise_if_cancelled(self) -> None:
        """Raise StoppedError when the handler should stop."""
        if self.cancelled:
            raise StoppedError

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep, but not on when the handler should stop; whether it should."""
        return self._link.wait(seconds)

    def progress(self, percent: float, message: str = "") -> None:
        """Report the fraction done, 0 to 100; silently skipped while the server is away.

        Raises:
            ClaimLostError: the claim was lost; stop the work.
            StoppedError: the attempt is over.
        """
        self._link.progress(percent, message)


class LoopLink:
    """Carries the words of a handler in a thread to the event loop of the worker."""

    def __init__(self, context: TaskContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._stopped = threading.Event()
        self._over = False
        self._lock = threading.Lock()
        self._on_stop: Callable[[], None] | None = None

    def stop(self) -> None:
        """Ask the handler to stop."""
        with self._lock:
            self._stopped.set()
            tell = self._on_stop
        if tell is not None:
            tell()

    def end(self) -> None:
        """Let a handler that is still running write nothing more."""
        self._over = True
        self.stop()

    def when_stopped(self, tell: Callable[[], None]) -> None:
        """Call back once the handler should stop, at once when it should already."""
        with self._lock:
            self._on_stop = tell
            if not self._stopped.is_set():
                return
        tell()

    def write(self, text: str) -> None:
        """Add text to the task's text events."""
        self._run(self._context.text.write(text))

    def flush(self) -> None:
        """Wait until all text is committed."""
        self._run(self._context.text.flush())

    def progress(self, percent: float, message: str) -> None:
        """Report progress."""
        self._run(self._context.progress(percent, message))

    def stop_reason(self) -> StopReason | None:
        """Return why the handler should stop."""
        return (self._context.stop_reason or StopReason.DRAIN) if self._stopped.is_set() else None

    def wait(self, seconds: float | None) -> bool:
        """Wait until the handler should stop; whether it should."""
        return self._stopped.wait(seconds)

    def _run(self, call: Coroutine[Any, Any, None]) -> None:
        if self._over or self._loop.is_closed():
            call.close()
            raise StoppedError
        asyncio.run_coroutine_threadsafe(call, self._loop).result()
