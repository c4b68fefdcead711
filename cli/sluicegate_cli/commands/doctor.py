"""`sluicegate doctor`: what is here, what is missing, what runs."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from devengines import nsqd, postgres, valkey
from devengines.errors import EngineError
from servicekit.errors import ServiceError
from sluicegate_cli.addresses import RunningState, find_data_dir
from sluicegate_cli.clients import Clients, ask
from sluicegate_cli.outcome import ExitCode
from sluicegate_cli.output import JsonFlag, print_rows

_COLUMNS = ("what", "ok", "detail")
_WORKERS = ("export_worker", "demo_worker")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(as_json: JsonFlag = False) -> None:
    """Look at this machine and the running system; exit code 1: something needed is missing, 3: a service is away."""
    machine = [
        _row("Python", ok=True, detail=sys.version.split()[0]),
        _found("PostgreSQL", postgres.programs),
        _found("Valkey", valkey.program),
        _broker(),
        _program("node", "browser tests are skipped without it"),
        _data_dir(),
    ]
    services = ask(_services)
    print_rows([*machine, *services], _COLUMNS, as_json=as_json)
    if not all(row["ok"] for row in machine if row["needed"]):
        raise typer.Exit(ExitCode.FAILED)
    if not all(row["ok"] for row in services):
        raise typer.Exit(ExitCode.UNREACHABLE)


async def _services(clients: Clients) -> list[dict[str, Any]]:
    rows = [await _service(clients, name) for name in clients.addresses.services]
    return [*rows, *_workers(clients.addresses.state)]


def _workers(state: RunningState | None) -> list[dict[str, Any]]:
    """Tell of the processes without an address, as far as a running `sluicegate up` knows them."""
    pids = {name: pid for name, pid in (state.pids if state else {}).items() if name in _WORKERS}
    return [
        _row(name, ok=pid > 0, detail=f"running, pid {pid}" if pid else "is being restarted: see its log")
        for name, pid in pids.items()
    ]


async def _service(clients: Clients, name: str) -> dict[str, Any]:
    address = clients.addresses.services[name]
    try:
        serving = await clients.channel(name).health_check()
    except ServiceError:
        return _row(name, ok=False, detail=f"{address}: can't be reached; start `sluicegate up`")
    return _row(
        name, ok=serving, detail=f"{address}: {'serving' if serving else 'up, but not serving: see its log'}"
    )


def _found(what: str, find: Callable[[], Path]) -> dict[str, Any]:
    try:
        return _row(what, ok=True, detail=str(find()))
    except EngineError as error:
        return _row(what, ok=False, detail=str(error))


def _broker() -> dict[str, Any]:
    if shutil.which("nsqd"):
        return _row("nsqd", ok=True, detail=str(shutil.which("nsqd")))
    if shutil.which("go"):
        return _row("nsqd", ok=True, detail=f"is built with Go, {nsqd.NSQD_VERSION}, and kept")
    return _row("nsqd", ok=False, detail="neither nsqd nor Go: the development broker is used", needed=False)


def _program(name: str, without: str) -> dict[str, Any]:
    path = shutil.which(name)
    return _row(name, ok=path is not None, detail=path or without, needed=False)


def _data_dir() -> dict[str, Any]:
    folder = find_data_dir()
    return _row("data", ok=True, detail=f"{folder}{'' if folder.is_dir() else ' (not there yet)'}")


def _row(what: str, *, ok: bool, detail: str, needed: bool = True) -> dict[str, Any]:
    return {"what": what, "ok": ok, "detail": detail, "needed": needed}
