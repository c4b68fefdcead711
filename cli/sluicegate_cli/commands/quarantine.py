"""`sluicegate quarantine`: what can't be stored and waits for a person."""

from typing import Annotated

import typer

from sluicegate.ingest.v1 import ingest_pb2
from sluicegate_cli.clients import Clients, actor, ask
from sluicegate_cli.outcome import ExitCode
from sluicegate_cli.output import JsonFlag, plain, print_json, print_rows, stdout

app = typer.Typer(name="quarantine", help="Rows that can't be stored: look and replay.", no_args_is_help=True)

_COLUMNS = (
    "quarantine_id",
    "quarantined_at",
    "observation_id",
    "card_id",
    "sqlstate",
    "reason",
    "replayed_at",
)
_RESULT_COLUMNS = ("observation_id", "outcome", "increment_bytes", "message")


@app.command("list")
def list_items(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most rows to list.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List quarantined rows, newest first; --json shows their bodies."""

    async def work(clients: Clients) -> ingest_pb2.ListQuarantineResponse:
        return await clients.ingest.ListQuarantine(ingest_pb2.ListQuarantineRequest(page_size=limit))

    rows = [plain(item) for item in ask(work).items]
    print_rows(rows, _COLUMNS, as_json=as_json, empty="The quarantine is empty.")


@app.command("replay")
def replay(
    quarantine_ids: Annotated[list[int], typer.Argument(help="Rows to apply again.")],
    as_json: JsonFlag = False,
) -> None:
    """Apply quarantined rows again after their cause is fixed; exit code 4 when some stay."""

    async def work(clients: Clients) -> ingest_pb2.ReplayResponse:
        request = ingest_pb2.ReplayRequest(quarantine_ids=quarantine_ids, actor=actor())
        return await clients.ingest.Replay(request)

    answer = ask(work)
    if as_json:
        print_json(answer)
    else:
        print_rows([plain(result) for result in answer.results], _RESULT_COLUMNS, as_json=False, empty="")
        if answer.remaining_ids:
            stdout.print(f"still in quarantine: {', '.join(map(str, answer.remaining_ids))}")
    if answer.remaining_ids:
        raise typer.Exit(ExitCode.PARTLY_REFUSED)
