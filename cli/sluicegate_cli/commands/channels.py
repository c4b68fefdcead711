"""`sluicegate channels`: where tasks run, how many at once, and whether."""

from typing import Annotated

import typer

from sluicegate.operator.v1 import operator_pb2
from sluicegate_cli.clients import Clients, actor, ask
from sluicegate_cli.output import JsonFlag, plain, print_fields, print_rows

app = typer.Typer(name="channels", help="Channels: list, save, pause, resume.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The channel's name.")]
ReasonOption = Annotated[str, typer.Option(help="Why; written to the audit.")]

_COLUMNS = (
    *("name", "concurrency", "running_count", "ready_count", "deferred_count", "oldest_ready_ms"),
    *("max_backlog", "max_attempts", "paused"),
)


@app.command("list")
def list_channels(as_json: JsonFlag = False) -> None:
    """List all channels with what waits and runs."""

    async def work(clients: Clients) -> operator_pb2.ListChannelsResponse:
        return await clients.operator.ListChannels(operator_pb2.ListChannelsRequest())

    rows = [plain(channel) for channel in ask(work).channels]
    print_rows(rows, _COLUMNS, as_json=as_json, empty="No channels.")


@app.command("save")
def save(
    name: NameArgument,
    concurrency: Annotated[int, typer.Option(min=0, help="Tasks that run at once.")],
    max_backlog: Annotated[int, typer.Option(min=1, help="Waiting tasks allowed.")] = 10_000,
    max_attempts: Annotated[int, typer.Option(min=1, max=100, help="Attempts a task gets by default.")] = 3,
    reason: ReasonOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Create or change a channel."""
    channel = operator_pb2.Channel(
        name=name, concurrency=concurrency, max_backlog=max_backlog, max_attempts=max_attempts
    )
    print_fields(plain(ask(lambda clients: save_channel(clients, channel, reason))), as_json=as_json)


@app.command("pause")
def pause(name: NameArgument, reason: ReasonOption = "", as_json: JsonFlag = False) -> None:
    """Start no new attempts in a channel; running ones go on."""

    async def work(clients: Clients) -> operator_pb2.Channel:
        request = operator_pb2.PauseChannelRequest(name=name, actor=actor(), reason=reason)
        return (await clients.operator.PauseChannel(request)).channel

    print_fields(plain(ask(work)), as_json=as_json)


@app.command("resume")
def resume(name: NameArgument, reason: ReasonOption = "", as_json: JsonFlag = False) -> None:
    """Start attempts in a channel again."""

    async def work(clients: Clients) -> operator_pb2.Channel:
        request = operator_pb2.ResumeChannelRequest(name=name, actor=actor(), reason=reason)
        return (await clients.operator.ResumeChannel(request)).channel

    print_fields(plain(ask(work)), as_json=as_json)


async def save_channel(clients: Clients, channel: operator_pb2.Channel, reason: str) -> operator_pb2.Channel:
    """Store a channel."""
    request = operator_pb2.SaveChannelRequest(channel=channel, actor=actor(), reason=reason)
    return (await clients.operator.SaveChannel(request)).channel
