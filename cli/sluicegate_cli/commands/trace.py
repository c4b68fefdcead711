"""`sluicegate trace`: the spans of an observation, a card or a task."""

from pathlib import Path
from typing import Annotated

import typer

from servicekit.span_store import SpanStore
from sluicegate_cli.addresses import find
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import JsonFlag, print_json, stdout
from sluicegate_cli.span_tree import as_rows, waterfall

_ATTRIBUTES = {
    "observation": "sluicegate.observation_id",
    "card": "sluicegate.card_id",
    "task": "sluicegate.task_id",
}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("trace")(trace)


def trace(
    observation: Annotated[str, typer.Option(help="An observation's id.")] = "",
    card: Annotated[str, typer.Option(help="A card's id.")] = "",
    task: Annotated[str, typer.Option(help="A task's id.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Draw every span of one observation, card or task, following links through batches."""
    asked = {name: value for name, value in zip(_ATTRIBUTES, (observation, card, task), strict=True) if value}
    if len(asked) != 1:
        raise CommandError("name one of --observation, --card, --task", ExitCode.BAD_INPUT)
    ((name, value),) = asked.items()
    spans = _store().whole_traces(_ATTRIBUTES[name], value)
    if not spans:
        raise CommandError(
            f"no span of {name} {value} is stored: spans arrive a few seconds late, and old ones go"
        )
    if as_json:
        print_json(as_rows(spans))
    else:
        stdout.print("\n".join(waterfall(spans)), markup=False)


def _store() -> SpanStore:
    path = find().span_store
    if not path or not Path(path).exists():
        raise CommandError(
            "there is no local span store: start `sluicegate up`, or set SLUICEGATE_SPAN_STORE to its file "
            "(with an OTLP endpoint the traces are in your tracing backend)",
            ExitCode.BAD_INPUT,
        )
    return SpanStore(path)
