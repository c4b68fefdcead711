"""`sluicegate observe`: feed observations from a file."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated
from zoneinfo import ZoneInfo

import typer

from sluicegate.ingest.v1 import ingest_pb2
from sluicegate_cli.clients import Clients, ask
from sluicegate_cli.files import Report, batches, opened, progress
from sluicegate_cli.observations import (
    Observed,
    Series,
    csv_observations,
    jsonl_observations,
    latest_time,
    series_observations,
)
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import JsonFlag, plain
from sluicegate_cli.quantities import Unit

_BATCH = 200
_SECONDS = 60.0
_CHANGED = frozenset({"applied", "duplicate", "stale"})


class Form(StrEnum):
    """What a counter's numbers mean."""

    TOTAL = "total"
    DELTA = "delta"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("observe")(observe)


def observe(
    file: Annotated[
        Path, typer.Argument(help="JSON lines (.jsonl) or CSV (.csv); `-`: JSON lines on stdin.")
    ],
    sync: Annotated[bool, typer.Option("--sync", help="Apply now and say what became of each.")] = False,
    card: Annotated[str, typer.Option(help="The file is a counter series of this card.")] = "",
    time_column: Annotated[str, typer.Option(help="Column of a series with the times.")] = "time",
    value_column: Annotated[str, typer.Option(help="Column of a series with the counter.")] = "value",
    unit: Annotated[Unit, typer.Option(help="Unit of a series.")] = Unit.B,
    form: Annotated[Form, typer.Option(help="Whether a series counts up or holds differences.")] = Form.TOTAL,
    zone: Annotated[str, typer.Option(help="IANA zone of a series whose times have none.")] = "",
    end_now: Annotated[
        bool, typer.Option("--end-now", help="Move a series so that its last time is now.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Feed observations from a file; the same file twice changes nothing.

    Lines that can't be used are named and the others are kept; then the exit code is 4. docs/howto/observe.md has the
    shapes.
    """
    report = Report()
    series = _series(card, time_column, value_column, unit, form, zone) if card else None
    if series is not None and end_now:
        series = _ending_now(file, series)
    ask(lambda clients: _feed(clients, file, series, report, sync=sync, hidden=as_json))
    raise typer.Exit(report.finish(file, as_json=as_json))


async def _feed(
    clients: Clients, file: Path, series: Series | None, report: Report, *, sync: bool, hidden: bool
) -> None:
    send = _apply if sync else _submit
    with opened(file) as text, progress(file, hidden=hidden) as advance:
        for batch in batches(_observations(text, file, series, report), _BATCH):
            await send(clients, batch, report)
            advance(len(batch))


def _observations(text: IO[str], file: Path, series: Series | None, report: Report) -> Iterator[Observed]:
    if series is not None:
        return series_observations(text, file, series, report)
    if file.suffix.lower() == ".csv":
        return csv_observations(text, file, report)
    return jsonl_observations(text, report)


async def _submit(clients: Clients, batch: list[Observed], report: Report) -> None:
    request = ingest_pb2.SubmitRequest(observations=[item.row for item in batch])
    answer = await clients.ingest.Submit(request, timeout=_SECONDS)
    report.add("published", answer.accepted_count)
    refused = {item.index: item.message for item in answer.refused}
    for index, item in enumerate(batch):
        if index in refused:
            report.refuse(item.line, refused[index])
        else:
            report.keep_id(item.row.observation_id)


async def _apply(clients: Clients, batch: list[Observed], report: Report) -> None:
    request = ingest_pb2.ApplyObservationsRequest(observations=[item.row for item in batch])
    answer = await clients.ingest.ApplyObservations(request, timeout=_SECONDS)
    for item, result in zip(batch, answer.results, strict=True):
        outcome = plain(result)["outcome"]
        if outcome in _CHANGED:
            report.add(outcome)
            report.keep_id(item.row.observation_id)
        else:
            report.refuse(item.line, f"{outcome}: {result.message or item.row.card_id}")


def _series(card: str, time_column: str, value_column: str, unit: Unit, form: Form, zone: str) -> Series:
    try:
        found = ZoneInfo(zone) if zone else None
    except (ValueError, OSError, KeyError) as error:
        raise CommandError(f"--zone {zone}: there is no such zone", ExitCode.BAD_INPUT) from error
    return Series(card, time_column, value_column, unit, form is Form.DELTA, found)


def _ending_now(file: Path, series: Series) -> Series:
    if str(file) == "-":
        raise CommandError("--end-now reads the file twice: name a file", ExitCode.BAD_INPUT)
    with opened(file) as text:
        latest = latest_time(text, file, series)
    if latest is None:
        return series
    return replace(series, shift=datetime.now(UTC) - latest)
