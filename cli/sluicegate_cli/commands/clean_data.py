"""`sluicegate clean-data`: start over."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from sluicegate_cli.addresses import find_data_dir
from sluicegate_cli.outcome import CommandError
from sluicegate_cli.output import stdout
from sluicegate_cli.up.lock import DataLock


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("clean-data")(clean_data)


def clean_data(
    data_dir: Annotated[Path | None, typer.Option(help="Where `sluicegate up` keeps its data.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget everything that `sluicegate up` has stored."""
    folder = find_data_dir(data_dir)
    if not folder.is_dir():
        stdout.print(f"there is no data in {folder}", markup=False)
        return
    if not (folder / "lock").exists():
        raise CommandError(f"{folder} was not made by `sluicegate up`: nothing was removed")
    if not yes and not typer.confirm(f"Remove everything in {folder}?"):
        raise typer.Exit(1)
    with DataLock(folder):
        shutil.rmtree(folder)
    stdout.print(f"removed {folder}", markup=False)
