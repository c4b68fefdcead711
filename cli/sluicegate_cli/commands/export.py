"""`sluicegate export`: collection records of an account as a CSV file."""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from servicekit.ids import uuid7
from sluicegate.task.v1 import task_pb2
from sluicegate_cli.clients import Clients, ask
from sluicegate_cli.instants import parse_time
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import JsonFlag, plain, print_fields
from sluicegate_cli.task_following import follow

_CHANNEL = "export-small"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    account: Annotated[str, typer.Option(help="Whose records.")],
    from_: Annotated[
        str, typer.Option("--from", help="First instant, with a zone; default: a day ago.")
    ] = "",
    until: Annotated[str, typer.Option(help="End, exclusive, with a zone; default: now.")] = "",
    export_id: Annotated[str, typer.Option(help="Name of the result; the same name is written once.")] = "",
    channel: Annotated[str, typer.Option(help="Where it runs.")] = _CHANNEL,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it to its end.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Write the collection records of one account to a CSV file."""
    now = datetime.now(UTC)
    payload = {
        "export_id": export_id or str(uuid7(now)),
        "account_id": account,
        "from": _instant(from_, now - timedelta(days=1), "--from"),
        "until": _instant(until, now, "--until"),
    }
    request = task_pb2.CreateTaskRequest(
        channel=channel,
        kind="export",
        payload_json=json.dumps(payload),
        idempotency_key=f"export:{export_id}" if export_id else "",
    )

    async def work(clients: Clients) -> int:
        task = (await clients.task.CreateTask(request)).task
        if wait:
            return await follow(clients, task.task_id, as_json=as_json)
        print_fields(plain(task), as_json=as_json)
        return ExitCode.OK

    raise typer.Exit(ask(work))


def _instant(text: str, default: datetime, option: str) -> str:
    if not text:
        return default.isoformat()
    try:
        return parse_time(text).isoformat()
    except ValueError as error:
        raise CommandError(f"{option}: {error}", ExitCode.BAD_INPUT) from error
