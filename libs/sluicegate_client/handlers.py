"""Brings the handlers that users write into the one form that attempts run."""

import inspect

from sluicegate_client.attempt import Handler
from sluicegate_client.process_handler import in_process, is_loading_main
from sluicegate_client.thread_handler import SyncHandler, in_thread

__all__ = ["adapt", "is_loading_main"]


def adapt(function: Handler | SyncHandler, *, process: bool) -> Handler:
    """Return an async handler that runs an async function, or a plain one in a thread or a process.

    Raises:
        TypeError: an async function is to run in a process, or the process could not find the function.
    """
    is_async: bool = inspect.iscoroutinefunction(function)
    if is_async:
        if process:
            raise TypeError("only a plain function runs in a process")
        return function  # type: ignore[return-value]
    plain: SyncHandler = function  # type: ignore[assignment]
    return in_process(plain) if process else in_thread(plain)
