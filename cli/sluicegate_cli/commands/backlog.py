"""`sluicegate backlog`: what waits where."""

import typer

from sluicegate.poller.v1 import poller_pb2
from sluicegate_cli.clients import Clients, ask
from sluicegate_cli.output import JsonFlag, plain, print_json, print_rows, stdout

_COLUMNS = ("topic", "channel", "depth", "in_flight_count", "deferred_count")
_ACCOUNT_COLUMNS = (
    *("account_id", "card_count", "due_card_count", "held_slots", "in_flight_count"),
    *("success_count", "failure_count", "blocked_reason"),
)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("backlog")(backlog)


def backlog(as_json: JsonFlag = False) -> None:
    """Say what waits where: broker depth, cards due, polling per account, pause state."""
    waiting, status = ask(_read)
    if as_json:
        print_json({**plain(waiting), "accounts": plain(status)["accounts"]})
        return
    if not waiting.broker_known:
        stdout.print("The broker could not be asked: its depth is unknown, not zero.")
    print_rows([plain(topic) for topic in waiting.topics], _COLUMNS, as_json=False, empty="No topics yet.")
    stdout.print(f"\ncards due: {waiting.due_card_count}, the latest by {waiting.oldest_due_ms / 1000:.1f} s")
    stdout.print(
        f"polling: {f'paused: {waiting.pause_reason}' if waiting.paused else 'running'}\n", markup=False
    )
    print_rows(
        [plain(row) for row in status.accounts], _ACCOUNT_COLUMNS, as_json=False, empty="No accounts yet."
    )


async def _read(clients: Clients) -> tuple[poller_pb2.GetBacklogResponse, poller_pb2.GetStatusResponse]:
    return (
        await clients.poller.GetBacklog(poller_pb2.GetBacklogRequest()),
        await clients.poller.GetStatus(poller_pb2.GetStatusRequest()),
    )
