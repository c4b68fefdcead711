"""`sluicegate migrate`: bring the database to this version's tables."""

from typing import Annotated

import typer

from devengines.migrate import migrate as apply
from devengines.migrate import pending
from sluicegate_cli.addresses import find
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import JsonFlag, print_json, stdout


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("migrate")(migrate)


def migrate(
    dsn: Annotated[
        str,
        typer.Option(envvar="SLUICEGATE_POSTGRES_DSN", help="The database; default: the running system's."),
    ] = "",
    check: Annotated[bool, typer.Option("--check", help="Only say what is missing (exit code 1).")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Apply every migration that the database has not got yet."""
    address = dsn or find().postgres_dsn.get_secret_value()
    if not address:
        raise CommandError(
            "which database? Set SLUICEGATE_POSTGRES_DSN or start `sluicegate up`", ExitCode.BAD_INPUT
        )
    found = pending(address) if check else apply(address)
    word = "missing" if check else "applied"
    if as_json:
        print_json({word: found})
    else:
        stdout.print("\n".join(f"{word}: {name}" for name in found) or "nothing to do", markup=False)
    if check and found:
        raise typer.Exit(ExitCode.FAILED)
