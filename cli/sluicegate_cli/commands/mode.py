"""`sluicegate mode`: how observations reach ingest_service."""

from enum import StrEnum
from typing import Annotated

import typer

from sluicegate.poller.v1 import poller_pb2
from sluicegate_cli.clients import Clients, actor, ask
from sluicegate_cli.output import JsonFlag, plain, print_fields

app = typer.Typer(name="mode", help="How observations are applied: by RPC or over NSQ.", no_args_is_help=True)


class Mode(StrEnum):
    """The two ways."""

    SYNC = "sync"
    ASYNC = "async"


@app.command("show")
def show(as_json: JsonFlag = False) -> None:
    """Show the mode, who set it and when."""

    async def work(clients: Clients) -> poller_pb2.GetModeResponse:
        return await clients.poller.GetMode(poller_pb2.GetModeRequest())

    print_fields(plain(ask(work)), as_json=as_json)


@app.command("set")
def set_mode(
    mode: Mode,
    reason: Annotated[str, typer.Option(help="Why; written to the audit.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Switch the mode, live; in force within 5 s, nothing is lost."""
    answer = ask(lambda clients: switch_mode(clients, mode, reason))
    print_fields(plain(answer), as_json=as_json)


async def switch_mode(clients: Clients, mode: Mode, reason: str) -> poller_pb2.SetModeResponse:
    """Store the mode."""
    value = poller_pb2.INGEST_MODE_SYNC if mode is Mode.SYNC else poller_pb2.INGEST_MODE_ASYNC
    return await clients.poller.SetMode(poller_pb2.SetModeRequest(mode=value, actor=actor(), reason=reason))
