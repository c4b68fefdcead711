"""`sluicegate export`: collection records of an account as a CSV file."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from servicekit.ids import uuid7
from sluicegate.task.v1 import task_pb2
from sluicegate_cli.addresses import find
from sluicegate_cli.clients import Clients, ask
from sluicegate_cli.commands.accounts import all_accounts
from sluicegate_cli.instants import parse_time
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import JsonFlag, note, plain, print_fields
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
    output: Annotated[Path | None, typer.Option(help="Also copy the result to this file.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it to its end.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Write the collection records of one account to a CSV file."""
    now = datetime.now(UTC)
    if export_id and not (from_ and until):
        raise CommandError(
            "--export-id names one result: give --from and --until too, so that it stays the same",
            ExitCode.BAD_INPUT,
        )
    first = _instant(from_, now - timedelta(days=1), "--from")
    end = _instant(until, now, "--until")
    if first >= end:
        raise CommandError(
            f"--from {first.isoformat()} is not before --until {end.isoformat()}", ExitCode.BAD_INPUT
        )
    if output is not None and not output.absolute().parent.is_dir():
        raise CommandError(f"--output: there is no folder {output.absolute().parent}", ExitCode.BAD_INPUT)
    payload = {
        "export_id": export_id or str(uuid7(now)),
        "account_id": account,
        "from": first.isoformat(),
        "until": end.isoformat(),
    }
    request = task_pb2.CreateTaskRequest(
        channel=channel,
        kind="export",
        payload_json=json.dumps(payload),
        idempotency_key=f"export:{export_id}" if export_id else "",
    )

    async def work(clients: Clients) -> int:
        await _need_account(clients, account)
        task = (await clients.task.CreateTask(request)).task
        if not wait and output is None:
            print_fields(plain(task), as_json=as_json)
            return ExitCode.OK
        code = await follow(clients, task.task_id, as_json=as_json)
        if code == ExitCode.OK:
            done = (await clients.task.GetTask(task_pb2.GetTaskRequest(task_id=task.task_id))).task
            _hand_over(json.loads(done.result_json)["object_key"], output)
        return code

    raise typer.Exit(ask(work))


async def _need_account(clients: Clients, account: str) -> None:
    """Refuse a name that is no account at once, and not after a task has run."""
    known = {found.account_id for found in await all_accounts(clients)}
    if account not in known:
        raise CommandError(
            f"there is no account {account}; known are {', '.join(sorted(known)) or 'none'}",
            ExitCode.BAD_INPUT,
        )


def _hand_over(object_key: str, output: Path | None) -> None:
    """Copy the published object, or say where it is; only a store in a folder of this machine can be reached."""
    state = find().state
    published = Path(state.exports) / object_key if state and state.exports else None
    if output is None:
        note(f"file: {published or object_key}")
    elif published is None:
        raise CommandError(f"the export store is not on this machine; the result is its object {object_key}")
    else:
        try:
            shutil.copyfile(published, output)
        except OSError as error:
            raise CommandError(f"can't copy {published} to {output}: {error.strerror}") from error
        note(f"file: {output}")


def _instant(text: str, default: datetime, option: str) -> datetime:
    if not text:
        return default
    try:
        return parse_time(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", ExitCode.BAD_INPUT) from error
