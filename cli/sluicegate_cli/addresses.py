"""Where the services are: the environment first, then what a running `sluicegate up` wrote down, then the defaults."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from devengines.child import birth_of
from servicekit.settings import AuthSettings
from servicekit.values import SecretUrl
from sluicegate_cli.outcome import CommandError, ExitCode

DATA_FOLDER = ".sluicegate"
STATE_FILE = "state.json"

DEFAULTS = {
    "lease_service": "127.0.0.1:7101",
    "poller": "127.0.0.1:7102",
    "ingest_service": "127.0.0.1:7103",
    "collection_writer": "127.0.0.1:7104",
    "task_api": "127.0.0.1:7105",
}


@dataclass(frozen=True, slots=True)
class RunningState:
    """What a running `sluicegate up` tells other terminals.

    Attributes:
        pid: the supervisor's process id; with ``birth`` it names one process.
        services: name -> host:port of each gRPC server.
        pids: name -> process id of each child.
        web: address of the web console and the HTTP API.
    """

    pid: int
    birth: str
    data_dir: Path
    services: Mapping[str, str] = field(default_factory=dict)
    pids: Mapping[str, int] = field(default_factory=dict)
    postgres_dsn: str = ""
    redis_url: str = ""
    nsqd: str = ""
    nsqd_http: str = ""
    simulator: str = ""
    web: str = ""
    span_store: str = ""
    exports: str = ""
    metrics: Mapping[str, int] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether that process still runs."""
        return bool(self.birth) and birth_of(self.pid) == self.birth

    def save(self) -> None:
        """Write the state for this user's eyes alone, all or nothing."""
        path = self.data_dir / STATE_FILE
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        values = {name: getattr(self, name) for name in self.__slots__} | {"data_dir": str(self.data_dir)}
        partial.write_text(json.dumps(values, indent=1))
        partial.replace(path)

    @classmethod
    def load(cls, data_dir: Path) -> Self | None:
        """Read what was written down in a data directory; None when there is nothing to read."""
        try:
            values: dict[str, Any] = json.loads((data_dir / STATE_FILE).read_text())
            known = {name: value for name, value in values.items() if name in cls.__slots__}
            return cls(**known | {"data_dir": data_dir})
        except (OSError, ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything is that a command may need; empty where unknown."""

    services: Mapping[str, str]
    auth: AuthSettings
    tenant: str | None
    postgres_dsn: SecretUrl
    span_store: str
    web: str
    state: RunningState | None


def find_data_dir(given: Path | None = None) -> Path:
    """Return the data directory: what was given, SLUICEGATE_DATA_DIR, or `.sluicegate` here or in a folder above."""
    if given is not None:
        return given.absolute()
    named = os.environ.get("SLUICEGATE_DATA_DIR")
    if named:
        return Path(named).absolute()
    here = Path.cwd()
    found = (folder / DATA_FOLDER for folder in (here, *here.parents) if (folder / DATA_FOLDER).is_dir())
    return next(found, here / DATA_FOLDER)


def find() -> Addresses:
    """Find all addresses; never blocks on the network.

    Raises:
        CommandError: a variable can't be used.
    """
    state = RunningState.load(find_data_dir())
    if state is not None and not state.alive:
        state = None
    running = state.services if state else {}
    return Addresses(
        services={
            name: _variable(f"SLUICEGATE_{name.upper()}") or running.get(name, default)
            for name, default in DEFAULTS.items()
        },
        auth=_auth(),
        tenant=os.environ.get("SLUICEGATE_TENANT"),
        postgres_dsn=SecretUrl(_variable("SLUICEGATE_POSTGRES_DSN") or (state.postgres_dsn if state else "")),
        span_store=_variable("SLUICEGATE_SPAN_STORE") or (state.span_store if state else ""),
        web=_variable("SLUICEGATE_WEB") or (state.web if state else "http://127.0.0.1:7180"),
        state=state,
    )


def _auth() -> AuthSettings:
    token = _variable("SLUICEGATE_AUTH_TOKEN")
    return AuthSettings.model_validate({"mode": "token", "token": token} if token else {})


def _variable(name: str) -> str:
    """Read a variable, or the file that `<name>_FILE` names."""
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return os.environ.get(name, "")
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name}_FILE: can't read {path}: {error}", ExitCode.BAD_INPUT) from error
