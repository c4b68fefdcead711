"""`sluicegate cards`: the fleet."""

from pathlib import Path
from typing import Annotated

import typer

from sluicegate.ingest.v1 import ingest_pb2
from sluicegate.poller.v1 import poller_pb2
from sluicegate_cli.card_files import CARD_COLUMNS, card_of, usable
from sluicegate_cli.clients import Clients, actor, ask
from sluicegate_cli.commands.accounts import save_accounts
from sluicegate_cli.files import Numbered, Report, batches, csv_rows, opened, progress
from sluicegate_cli.outcome import CommandError
from sluicegate_cli.output import JsonFlag, plain, print_fields, print_rows

app = typer.Typer(name="cards", help="The fleet: import, list, show, poll now.", no_args_is_help=True)

_BATCH = 500
_COLUMNS = (
    *("card_id", "account_id", "lifecycle", "polling_enabled", "network_status", "realname_status"),
    *("cycle_used_bytes", "applied_count", "observed_at"),
)
_STEP_COLUMNS = ("kind", "outcome", "observation_id", "latency_ms", "message")

CardArgument = Annotated[str, typer.Argument(help="The card's id, usually its ICCID.")]


@app.command("import")
def import_cards(
    file: Annotated[Path, typer.Argument(help="CSV with a header; `-` is standard input.")],
    accounts: Annotated[Path | None, typer.Option(help="Import this CSV of accounts first.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create or change cards from CSV.

    Columns: card_id, account_id, and if wanted msisdn, lifecycle, polling_enabled. Rows that can't be used are named
    by line and the others are kept; then the exit code is 4.
    """
    report = Report()
    ask(lambda clients: import_files(clients, file, accounts, report, hidden=as_json))
    raise typer.Exit(report.finish(file, as_json=as_json))


@app.command("list")
def list_cards(
    account: Annotated[str, typer.Option(help="Only this account.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Most cards to list.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List cards by id."""
    cards = ask(lambda clients: _list(clients, account, limit))
    print_rows([plain(card) for card in cards], _COLUMNS, as_json=as_json, empty="No cards.")


@app.command("show")
def show_card(card_id: CardArgument, as_json: JsonFlag = False) -> None:
    """Show one card and what is known of it."""

    async def work(clients: Clients) -> list[ingest_pb2.Card]:
        return list((await clients.ingest.GetCards(ingest_pb2.GetCardsRequest(card_ids=[card_id]))).cards)

    found = ask(work)
    if not found:
        raise CommandError(f"there is no card {card_id}; `sluicegate cards list` shows those that exist")
    print_fields(plain(found[0]), as_json=as_json)


@app.command("poll")
def poll_card(card_id: CardArgument, as_json: JsonFlag = False) -> None:
    """Poll one card now, apply what its gateway says, and show each step."""

    async def work(clients: Clients) -> poller_pb2.PollCardResponse:
        return await clients.poller.PollCard(poller_pb2.PollCardRequest(card_id=card_id), timeout=60)

    steps = [plain(step) for step in ask(work).steps]
    print_rows(steps, _STEP_COLUMNS, as_json=as_json)
    if any(step["outcome"] in {"failed", "not_found", "quarantined"} for step in steps):
        raise typer.Exit(1)


async def import_files(
    clients: Clients, file: Path, accounts: Path | None, report: Report, *, hidden: bool
) -> None:
    """Store the accounts, where given, and the cards of CSV files; rows that can't be used go to the report."""
    if accounts is not None:
        await save_accounts(clients, accounts, report)
    with opened(file) as text, progress(file, hidden=hidden) as advance:
        read = (usable(row, card_of, report) for row in csv_rows(text, file, CARD_COLUMNS, report))
        for batch in batches((row for row in read if row is not None), _BATCH):
            await _save(clients, batch, report)
            advance(len(batch))


async def _save(clients: Clients, batch: list[Numbered[ingest_pb2.Card]], report: Report) -> None:
    request = ingest_pb2.SaveCardsRequest(cards=[item.row for item in batch], actor=actor())
    answer = await clients.ingest.SaveCards(request)
    report.add("cards created", answer.created_count)
    report.add("cards updated", answer.updated_count)
    for refused in answer.refused:
        report.refuse(batch[refused.index].line, f"card {refused.card_id}: {refused.message}")


async def _list(clients: Clients, account: str, limit: int) -> list[ingest_pb2.Card]:
    found: list[ingest_pb2.Card] = []
    token = ""
    while len(found) < limit:
        size = min(1000, limit - len(found))
        request = ingest_pb2.ListCardsRequest(account_id=account, page_size=size, page_token=token)
        answer = await clients.ingest.ListCards(request)
        found += answer.cards
        token = answer.next_page_token
        if not token:
            break
    return found
