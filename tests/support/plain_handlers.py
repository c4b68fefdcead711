"""Handlers that are plain functions, found by their names from processes; the payload says what to do."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from sluicegate_client.worker import (
    ClaimLostError,
    PermanentError,
    StoppedError,
    SyncTaskContext,
    ThrottledError,
)


class BrokenError(Exception):
    """Can't even say what it is."""

    def __str__(self) -> str:
        raise SystemExit(7)


def _too_deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(10_000):
        value = {"deep": value}
    return value


def _recurse() -> None:
    _recurse()


class Sly(Mapping[str, Any]):
    """A result that runs code of its own when it is read."""

    def __getitem__(self, key: str) -> Any:
        """Answer nothing."""
        raise KeyError(key)

    def __len__(self) -> int:
        """Pretend to hold something."""
        return 1

    def __iter__(self) -> Iterator[str]:
        """Raise what is no Exception."""
        raise SystemExit(4)


BAD_RESULTS: dict[str, Any] = {
    "no mapping": lambda: [1],
    "nan": lambda: {"n": float("nan")},
    "nul": lambda: {"n": "a\x00b"},
    "surrogate": lambda: {"n": "\ud800"},
    "50 MB": lambda: {"n": "x" * 50_000_000},
    "deep": _too_deep,
    "no json": lambda: {"n": object()},
    "sly": Sly,
}
ERRORS: dict[str, tuple[BaseException, str]] = {
    "permanent": (PermanentError("wrong prompt"), "permanent"),
    "throttled": (ThrottledError("slow down"), "throttled"),
    "throttled for no time": (ThrottledError("slow down", retry_after="5"), "throttled"),  # type: ignore[arg-type]
    "exit": (SystemExit(3), "transient"),
    "interrupt": (KeyboardInterrupt(), "transient"),
    "generator exit": (GeneratorExit(), "transient"),
    "stop iteration": (StopIteration(1), "transient"),
    "stopped by itself": (StoppedError(), "transient"),
    "broken": (BrokenError(), "transient"),
    "unstorable": (Exception("\x00\ud800" * 20_000), "transient"),
}
DEATHS = {
    "exit": lambda: os._exit(5),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
}


def words(task: SyncTaskContext) -> dict[str, object]:
    """Write text and progress from a function that may not await."""
    for word in task.payload["words"]:
        task.text.write(word)
    task.text.flush()
    task.progress(50, "half")
    return {"count": len(task.payload["words"]), "pid": os.getpid()}


def misbehave(task: SyncTaskContext) -> object:
    """End as the payload says."""
    how, name = task.payload["how"], task.payload["name"]
    if how == "return":
        return BAD_RESULTS[name]()
    if how == "die":
        task.text.write("last words")
        task.text.flush()
        DEATHS[name]()
    if name == "recursion":
        _recurse()
    raise ERRORS[name][0]


LET_GO = threading.Event()
"""Ends `never_end` in a thread of the test's own process, which nothing else can end."""


def never_end(task: SyncTaskContext) -> None:
    """Go on whatever anybody says, most of the time with the interpreter's lock held."""
    task.text.write("begun")
    task.text.flush()
    while not LET_GO.is_set():
        try:
            sum(range(100_000))
            time.sleep(0.001)
        except ClaimLostError:
            continue


def hold_the_lock(task: SyncTaskContext) -> None:
    """Let no other thread of this interpreter run for longer than two lives of a claim."""
    ctypes.PyDLL(None).usleep(2_500_000)
