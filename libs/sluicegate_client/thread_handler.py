"""Runs handlers that are plain functions, each attempt in a thread of its own."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from sluicegate_client.sync_context import LoopLink, StoppedError, SyncTaskContext
from sluicegate_client.task_context import StopReason, TaskContext

SyncHandler: TypeAlias = Callable[[SyncTaskContext], object]
Body: TypeAlias = Callable[[LoopLink, TaskContext], object]
_Outcome: TypeAlias = tuple[object, BaseException | None]


def in_thread(function: SyncHandler) -> Callable[[TaskContext], Any]:
    """Return a handler that runs a plain function in a thread and asks it to stop when it is cancelled itself."""

    def body(link: LoopLink, context: TaskContext) -> object:
        return function(SyncTaskContext(context.claimed, link, ends_at=context.ends_at))

    return threaded(body)


def threaded(body: Body) -> Callable[[TaskContext], Any]:
    """Return a handler that runs ``body`` in a thread.

    The thread is a daemon: one that never ends keeps neither its attempt nor the process.
    """

    async def run(context: TaskContext) -> object:
        loop = asyncio.get_running_loop()
        link, done = LoopLink(context, loop), loop.create_future()
        inside = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: inside.run(_work, body, link, context, done),
            name=f"task-{context.task_id}",
            daemon=True,
        )
        thread.start()
        try:
            return _result(await _until_done(done, link, context))
        finally:
            link.end()

    return run


async def _until_done(done: "asyncio.Future[_Outcome]", link: LoopLink, context: TaskContext) -> _Outcome:
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        link.stop()
        # It may clean up or finish; the attempt cancels once more when that takes too long.
        await asyncio.wait({done})
        outcome = done.result()
        if context.stop_reason is StopReason.DRAIN and outcome[1] is None:
            return outcome
        raise


def _work(body: Body, link: LoopLink, context: TaskContext, done: "asyncio.Future[_Outcome]") -> None:
    outcome: _Outcome
    try:
        outcome = (body(link, context), None)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends this attempt and nothing else
        outcome = (None, error)
    if not done.get_loop().is_closed():
        done.get_loop().call_soon_threadsafe(_settle, done, outcome)


def _settle(done: "asyncio.Future[_Outcome]", outcome: _Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


def _result(outcome: _Outcome) -> object:
    value, error = outcome
    if isinstance(error, StoppedError):
        raise asyncio.CancelledError
    if error is not None:
        raise error
    return value
