"""Assemble the command line; the outermost shell that turns every failure into one message and an exit code."""

import os
import sys

import typer

from devengines.errors import EngineError
from servicekit.errors import ServiceError
from sluicegate_cli.commands import (
    accounts,
    backlog,
    cards,
    channels,
    clean_data,
    doctor,
    explain,
    export,
    migrate,
    mode,
    observe,
    quarantine,
    slots,
    tasks,
    trace,
    up,
)
from sluicegate_cli.outcome import CommandError, ExitCode, code_of, told
from sluicegate_cli.output import note

app = typer.Typer(
    name="sluicegate",
    help="Bounded background work: slots, exactly-once ingest, fenced tasks, resumable streams.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (accounts, cards, channels, mode, quarantine, slots, tasks):
    app.add_typer(group.app)
for single in (backlog, clean_data, doctor, explain, export, migrate, observe, trace, up):
    single.add_to(app)


def run() -> None:
    """Run the command line and leave with its exit code; a traceback is never shown."""
    sys.exit(_guarded())


def _guarded() -> int:  # noqa: PLR0911 - one return per kind of ending
    try:
        app(prog_name="sluicegate")
    except CommandError as error:
        return _failed(error.message, error.code)
    except ServiceError as error:
        return _failed(told(error), code_of(error))
    except EngineError as error:
        return _failed(str(error), ExitCode.FAILED)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        if os.environ.get("SLUICEGATE_TRACEBACK"):
            raise
        return _failed(
            f"This is a bug ({type(error).__name__}: {error}).\n"
            "SLUICEGATE_TRACEBACK=1 shows where it happened; please report that.",
            ExitCode.FAILED,
        )
    return ExitCode.OK


def _failed(message: str, code: ExitCode) -> int:
    note(f"sluicegate: {message}")
    return code


if __name__ == "__main__":
    run()
