"""The inside of a handler's process: runs the function and says over a pipe what it writes and how it ended."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from sluicegate_client.sync_context import SyncTaskContext
from sluicegate_client.task_context import StopReason, encode_result, result_json
from sluicegate_client.task_errors import ClaimLostError, PermanentError, TransientError, describe_failure
from sluicegate_client.worker_calls import ClaimedTask

_PR_SET_PDEATHSIG = 1
_CHARACTERS_PER_MESSAGE = 262_144
_ERRORS = {error.__name__: error for error in (ClaimLostError, PermanentError)}


@dataclass(frozen=True, slots=True)
class ChildTask:
    """What a handler's process is to run."""

    function: Callable[[SyncTaskContext], object]
    claimed: ClaimedTask
    remaining_seconds: float | None


class PipeLink:
    """Carries the words of a handler in a process to the worker; each call waits for its answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def write(self, text: str) -> None:
        """Add text to the task's text events."""
        for start in range(0, len(text), _CHARACTERS_PER_MESSAGE):
            self._call("write", text[start : start + _CHARACTERS_PER_MESSAGE])

    def flush(self) -> None:
        """Wait until all text is committed."""
        self._call("flush")

    def progress(self, percent: float, message: str) -> None:
        """Report progress."""
        self._call("progress", percent, message)

    def stop_reason(self) -> StopReason | None:
        """Return None: who should stop is killed."""
        return None

    def wait(self, seconds: float | None) -> bool:
        """Sleep; who should stop is killed."""
        threading.Event().wait(seconds)
        return False

    def _call(self, *message: object) -> None:
        self._connection.send(message)
        problem, words = self._connection.recv()
        if problem:
            raise _ERRORS.get(problem, TransientError)(words)


def run_child(connection: Connection, task: ChildTask) -> None:
    """Run a handler to its end and say how it ended; the process's main function."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_the_parent()
    ends_at = None if task.remaining_seconds is None else time.monotonic() + task.remaining_seconds
    context = SyncTaskContext(task.claimed, PipeLink(connection), ends_at=ends_at)
    last: tuple[object, ...]
    try:
        result = encode_result(task.function(context))
        last = ("result", result_json(result.value), result.export)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends this attempt and nothing else
        last = ("failure", describe_failure(error))
    connection.send(last)


def _die_with_the_parent() -> None:
    """Ask the kernel, where it can, to end this process with the server that forked it, which ends with the worker."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
