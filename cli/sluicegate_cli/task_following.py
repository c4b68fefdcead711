"""Follow a task's text events and say how it ended."""

import asyncio
import sys

from servicekit.errors import Reason, ServiceError
from sluicegate.task.v1 import task_pb2
from sluicegate_cli.clients import Clients
from sluicegate_cli.outcome import ExitCode
from sluicegate_cli.output import note, plain, print_json

_RETRY_SECONDS = 1.0
_MOST_RETRIES = 30


async def follow(clients: Clients, task_id: str, *, after: str = "", as_json: bool) -> int:
    """Print a task's text as it comes, continuing after every broken connection; returns the exit code."""
    cursor, failures, ended = after, 0, False
    while not ended:
        try:
            async for event in clients.task.WatchTask(
                task_pb2.WatchTaskRequest(task_id=task_id, after=cursor)
            ):
                cursor, failures = event.cursor or cursor, 0
                _show(event, as_json=as_json)
                ended = event.kind == "end"
            ended = True
        except ServiceError as error:
            failures += 1
            if error.reason is not Reason.DEPENDENCY_AWAY or failures > _MOST_RETRIES:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
    task = (await clients.task.GetTask(task_pb2.GetTaskRequest(task_id=task_id))).task
    _say_end(task, as_json=as_json)
    return ExitCode.OK if task.state == task_pb2.TASK_STATE_SUCCEEDED else ExitCode.FAILED


def _show(event: task_pb2.WatchTaskResponse, *, as_json: bool) -> None:
    if as_json:
        print_json(event)
    elif event.kind == "text":
        sys.stdout.write(event.data)
        sys.stdout.flush()
    elif event.kind == "reset":
        note("\n-- a new attempt begins; its text starts again --")
    elif event.kind == "progress":
        note(f"progress: {event.data}")


def _say_end(task: task_pb2.Task, *, as_json: bool) -> None:
    if as_json:
        print_json(task)
        return
    state = plain(task)["state"]
    sys.stdout.write("\n")
    note(
        f"task {task.task_id} {state} after {task.attempt_count} attempt(s)"
        + (f": {task.error}" if task.error else "")
    )
    if task.result_json:
        note(f"result: {task.result_json}")
