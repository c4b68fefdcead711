"""`sluicegate quarantine`: what can't be stored and waits for a person."""

from typing import Annotated, Any

import typer

from sluicegate.collection.v1 import collection_pb2
from sluicegate.ingest.v1 import ingest_pb2
from sluicegate_cli.clients import Clients, actor, ask
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import JsonFlag, plain, print_json, print_rows, stdout

app = typer.Typer(name="quarantine", help="Rows that can't be stored: look and replay.", no_args_is_help=True)

_INGEST, _COLLECTION = "ingest", "collection"
_COLUMNS = (*("id", "quarantined_at", "observation_id", "card_id", "sqlstate", "reason", "replayed_at"),)
_RESULT_COLUMNS = ("id", "observation_id", "outcome", "increment_bytes", "message")


@app.command("list")
def list_items(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most rows to list.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List quarantined observations (ingest:N) and collection records (collection:N), newest first."""

    async def work(clients: Clients) -> list[dict[str, Any]]:
        applied = await clients.ingest.ListQuarantine(ingest_pb2.ListQuarantineRequest(page_size=limit))
        stored = await clients.collection.ListQuarantine(
            collection_pb2.ListQuarantineRequest(page_size=limit)
        )
        return [_row(_INGEST, item) for item in applied.items] + [
            _row(_COLLECTION, item) for item in stored.items
        ]

    rows = sorted(ask(work), key=lambda row: row["quarantined_at"], reverse=True)
    print_rows(rows[:limit], _COLUMNS, as_json=as_json, empty="The quarantine is empty.")


@app.command("replay")
def replay(
    ids: Annotated[
        list[str],
        typer.Argument(help="Rows as `list` names them: ingest:N, collection:N; N alone is ingest:N."),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Apply or store quarantined rows again after their cause is fixed; exit code 4 when some stay."""
    wanted = _parsed(ids)

    async def work(clients: Clients) -> dict[str, list[Any]]:
        answer: dict[str, list[Any]] = {"results": [], "remaining_ids": []}
        if wanted[_INGEST]:
            request = ingest_pb2.ReplayRequest(quarantine_ids=wanted[_INGEST], actor=actor())
            _add(answer, _INGEST, await clients.ingest.Replay(request))
        if wanted[_COLLECTION]:
            stored = collection_pb2.ReplayRequest(quarantine_ids=wanted[_COLLECTION], actor=actor())
            _add(answer, _COLLECTION, await clients.collection.Replay(stored))
        return answer

    answer = ask(work)
    if as_json:
        print_json(answer)
    else:
        print_rows(answer["results"], _RESULT_COLUMNS, as_json=False, empty="Replayed before: nothing to do.")
        if answer["remaining_ids"]:
            stdout.print(f"still in quarantine: {', '.join(answer['remaining_ids'])}")
    if answer["remaining_ids"]:
        raise typer.Exit(ExitCode.PARTLY_REFUSED)


def _row(origin: str, item: Any) -> dict[str, Any]:
    return {"id": f"{origin}:{item.quarantine_id}", "origin": origin, **plain(item)}


def _add(answer: dict[str, list[Any]], origin: str, part: Any) -> None:
    answer["results"] += [{"origin": origin, **_named(origin, plain(result))} for result in part.results]
    answer["remaining_ids"] += [f"{origin}:{row_id}" for row_id in part.remaining_ids]


def _named(origin: str, result: dict[str, Any]) -> dict[str, Any]:
    """Name the row where the service says which one it was."""
    row_id = result.get("quarantine_id")
    return result if row_id is None else {"id": f"{origin}:{row_id}", **result}


def _parsed(ids: list[str]) -> dict[str, list[int]]:
    wanted: dict[str, list[int]] = {_INGEST: [], _COLLECTION: []}
    for text in ids:
        origin, colon, number = text.rpartition(":")
        origin = origin if colon else _INGEST
        if origin not in wanted or not (number.isascii() and number.isdigit() and int(number) < 1 << 63):
            message = f"{text!r} is no row of the quarantine: give ingest:N or collection:N"
            raise CommandError(message, ExitCode.BAD_INPUT)
        wanted[origin].append(int(number))
    return wanted
