"""Runs handlers that are plain functions, each attempt in a process of its own, which is killed to stop it.

The process is forked from a clean server process that has the handler's module loaded. Its text and progress go over a
pipe to the worker, which alone talks to task_api and renews the claim. A process that dies without a word is poison:
the attempt counts, and the task ends as failed once its attempts are used up.
"""

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

from sluicegate_client.process_child import ChildTask, run_child
from sluicegate_client.sync_context import LoopLink, StoppedError
from sluicegate_client.task_context import TaskContext, TaskResult
from sluicegate_client.task_errors import PermanentError, PoisonError, ReportedError, said
from sluicegate_client.thread_handler import SyncHandler, threaded

_SPAWN = multiprocessing.get_context("forkserver")
_MOURN_SECONDS = 5.0
_ASKING = (
    threading.Lock()
)  # two threads that ask for one exit code at once could spoil it; starting a process asks for all


def in_process(function: SyncHandler) -> Callable[[TaskContext], Any]:
    """Return a handler that runs a plain function in a process.

    Raises:
        TypeError: the function can't be found by its name from another process.
    """
    if "<" in function.__qualname__:
        raise TypeError(f"{function.__qualname__} must be at the top of a module to run in a process")
    _SPAWN.set_forkserver_preload([__name__, function.__module__])

    def body(link: LoopLink, context: TaskContext) -> object:
        return _supervise(ChildTask(function, context.claimed, context.remaining_seconds), link)

    return threaded(body)


def is_loading_main() -> bool:
    """Tell whether this is a handler's process that is still loading the worker's main module."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def _supervise(task: ChildTask, link: LoopLink) -> object:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=run_child, args=(theirs, task), daemon=True)
    with ours:
        try:
            with _ASKING:
                process.start()
        finally:
            theirs.close()
        link.when_stopped(lambda: _kill(process))
        try:
            return _serve(ours, process, link)
        finally:
            _kill(process)
            _exit_code(process)


def _serve(connection: Connection, process: ForkServerProcess, link: LoopLink) -> object:
    """Answer what the process says until its last word; raises what that says, PoisonError when there is none."""
    while True:
        if connection not in wait([connection, process.sentinel]):
            raise _death(process, link)
        try:
            message = connection.recv()
        except (EOFError, OSError) as error:
            raise _death(process, link) from error
        match message:
            case ("result", str() as text, export):
                return TaskResult(_decoded(text), export)
            case ("failure", report):
                raise ReportedError(report)
            case (call, *arguments):
                _answer(connection, link, call, arguments)


def _answer(connection: Connection, link: LoopLink, call: str, arguments: list[Any]) -> None:
    calls: dict[str, Callable[..., None]] = {
        "write": link.write,
        "flush": link.flush,
        "progress": link.progress,
    }
    answer = ("", "")
    try:
        calls[call](*arguments)
    except Exception as error:  # noqa: BLE001 - raised again on the other side, where the handler may catch it
        answer = (type(error).__name__, said(error))
    with suppress(OSError):
        connection.send(answer)


def _death(process: ForkServerProcess, link: LoopLink) -> BaseException:
    if link.stop_reason() is not None:
        return StoppedError()
    code = _exit_code(process)
    if code is None:
        how = "closed its pipe and went on"
    elif code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    else:
        how = f"ended with status {code}"
    return PoisonError(f"the handler's process {how} without a result")


def _exit_code(process: ForkServerProcess, within: float = _MOURN_SECONDS) -> int | None:
    """Wait for a process's end; its exit code, None when it goes on."""
    wait([process.sentinel], within)
    with _ASKING:
        process.join(0)
        return process.exitcode


def _kill(process: ForkServerProcess) -> None:
    """Kill a process and what it has started; one that is still coming up alone."""
    pid = process.pid
    if pid is None or _exit_code(process, 0) is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _decoded(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text)
    except RecursionError as error:
        raise PermanentError("the result is nested too deeply") from error
    return value
