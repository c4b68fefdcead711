"""`sluicegate accounts`: carrier accounts."""

from pathlib import Path
from typing import Annotated

import typer

from sluicegate.ingest.v1 import ingest_pb2
from sluicegate_cli.card_files import ACCOUNT_COLUMNS, account_of, usable
from sluicegate_cli.clients import Clients, actor, ask
from sluicegate_cli.files import Report, batches, csv_rows, opened
from sluicegate_cli.output import JsonFlag, plain, print_rows

app = typer.Typer(
    name="accounts", help="Carrier accounts: gateway, limits, reset day, zone.", no_args_is_help=True
)

_BATCH = 500
_COLUMNS = (
    *("account_id", "gateway_kind", "gateway_url", "reset_day", "time_zone"),
    *("poll_limit", "poll_interval_s", "enabled"),
)


@app.command("import")
def import_accounts(
    file: Annotated[Path, typer.Argument(help="CSV with a header; `-` is standard input.")],
    as_json: JsonFlag = False,
) -> None:
    """Create or change accounts from CSV.

    Columns: account_id, gateway_kind, gateway_url, reset_day, time_zone, and if wanted name, credential_name,
    poll_limit, stop_resume_limit, poll_interval_seconds, enabled. Rows that can't be used are named by line.
    """
    report = Report()
    ask(lambda clients: save_accounts(clients, file, report))
    raise typer.Exit(report.finish(file, as_json=as_json))


@app.command("list")
def list_accounts(as_json: JsonFlag = False) -> None:
    """List all accounts."""
    accounts = ask(all_accounts)
    print_rows([plain(account) for account in accounts], _COLUMNS, as_json=as_json)


async def save_accounts(clients: Clients, file: Path, report: Report) -> None:
    """Store the accounts of a CSV file; rows that can't be used go to the report."""
    with opened(file) as text:
        read = (usable(row, account_of, report) for row in csv_rows(text, file, ACCOUNT_COLUMNS, report))
        for batch in batches((row for row in read if row is not None), _BATCH):
            request = ingest_pb2.SaveAccountsRequest(accounts=[row.row for row in batch], actor=actor())
            answer = await clients.ingest.SaveAccounts(request)
            report.add("accounts saved", len(answer.accounts))


async def all_accounts(clients: Clients) -> list[ingest_pb2.Account]:
    """Read all accounts, page by page."""
    found: list[ingest_pb2.Account] = []
    token = ""
    while True:
        answer = await clients.ingest.ListAccounts(
            ingest_pb2.ListAccountsRequest(page_size=1000, page_token=token)
        )
        found += answer.accounts
        token = answer.next_page_token
        if not token:
            return found
