"""`sluicegate tasks`: durable tasks."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from sluicegate.task.v1 import task_pb2
from sluicegate_cli.clients import Clients, ask
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import JsonFlag, plain, print_fields, print_rows
from sluicegate_cli.task_following import follow

app = typer.Typer(
    name="tasks", help="Durable tasks: create, list, watch, cancel, retry.", no_args_is_help=True
)

TaskArgument = Annotated[str, typer.Argument(help="The task's id.")]
WatchFlag = Annotated[bool, typer.Option("--watch", help="Follow its text until it ends.")]

_COLUMNS = ("task_id", "channel", "kind", "state", "attempt_count", "progress_percent", "worker", "error")


class State(StrEnum):
    """States to look for."""

    READY = "ready"
    DEFERRED = "deferred"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@app.command("create")
def create(
    channel: Annotated[str, typer.Option(help="Where it runs.")] = "text-demo",
    kind: Annotated[str, typer.Option(help="What it is.")] = "text.demo",
    payload: Annotated[str, typer.Option(help="A JSON object.")] = "{}",
    key: Annotated[str, typer.Option(help="Idempotency key: the same again answers the same task.")] = "",
    priority: Annotated[int, typer.Option(min=-10, max=10)] = 0,
    delay_ms: Annotated[int, typer.Option(min=0, help="Earliest start, from now.")] = 0,
    max_attempts: Annotated[int, typer.Option(min=0, max=100, help="0 takes the channel's.")] = 0,
    watch: WatchFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Store a task; without options, the demo's text task."""
    request = task_pb2.CreateTaskRequest(
        channel=channel,
        kind=kind,
        payload_json=_checked(payload),
        idempotency_key=key,
        priority=priority,
        delay_ms=delay_ms,
        max_attempts=max_attempts,
    )

    async def work(clients: Clients) -> int:
        task = (await clients.task.CreateTask(request)).task
        if watch:
            return await follow(clients, task.task_id, as_json=as_json)
        print_fields(plain(task), as_json=as_json)
        return ExitCode.OK

    raise typer.Exit(ask(work))


@app.command("list")
def list_tasks(
    channel: Annotated[str, typer.Option(help="Only this channel.")] = "",
    state: Annotated[State | None, typer.Option(help="Only this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Most tasks to list.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List tasks, newest first."""
    wanted = f"TASK_STATE_{state.name}" if state else "TASK_STATE_UNSPECIFIED"

    async def work(clients: Clients) -> task_pb2.ListTasksResponse:
        request = task_pb2.ListTasksRequest(channel=channel, state=wanted, page_size=limit)
        return await clients.task.ListTasks(request)

    print_rows([plain(task) for task in ask(work).tasks], _COLUMNS, as_json=as_json, empty="No tasks.")


@app.command("watch")
def watch_task(
    task_id: TaskArgument,
    after: Annotated[str, typer.Option(help="Cursor of the last event seen.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Follow a task's text until it ends; the exit code is 0 when it succeeded. Looking never affects the task."""
    raise typer.Exit(ask(lambda clients: follow(clients, task_id, after=after, as_json=as_json)))


@app.command("cancel")
def cancel(
    task_id: TaskArgument,
    reason: Annotated[str, typer.Option(help="Why; shown with the task.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Ask a task to stop."""

    async def work(clients: Clients) -> task_pb2.Task:
        return (
            await clients.task.CancelTask(task_pb2.CancelTaskRequest(task_id=task_id, reason=reason))
        ).task

    print_fields(plain(ask(work)), as_json=as_json)


@app.command("retry")
def retry(task_id: TaskArgument, as_json: JsonFlag = False) -> None:
    """Run a failed or cancelled task again with a fresh attempt budget."""

    async def work(clients: Clients) -> task_pb2.Task:
        return (await clients.task.RetryTask(task_pb2.RetryTaskRequest(task_id=task_id))).task

    print_fields(plain(ask(work)), as_json=as_json)


def _checked(payload: str) -> str:
    try:
        value = json.loads(payload)
    except ValueError as error:
        raise CommandError(f"--payload is no JSON: {error}", ExitCode.BAD_INPUT) from error
    if not isinstance(value, dict):
        raise CommandError(
            '--payload should be a JSON object, such as \'{"prompt": "hello"}\'', ExitCode.BAD_INPUT
        )
    return payload
