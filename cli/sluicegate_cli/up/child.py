"""One supervised process: its command, its log, its end."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devengines.child import spawn

_MAX_LOG_BYTES = 10 * 1024 * 1024
_TAIL_BYTES = 1500
_POLL_SECONDS = 0.05


@dataclass(slots=True)
class Child:
    """A process that runs one module of ours.

    Attributes:
        address: ``host:port`` of its gRPC server; empty when it has none.
        log: everything it writes; kept below about 10 MiB by turning it over at each start.
    """

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    address: str = ""
    metrics_port: int = 0
    started_at: float = 0.0
    restarts: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def running(self) -> bool:
        """Say whether it lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id, 0 when it does not run."""
        return self._process.pid if self._process is not None and self.running else 0

    @property
    def exit_code(self) -> int | None:
        """How the last run ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start it; it ends with this process, however that ends."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        _turn_over(self.log)
        with self.log.open("ab") as log:
            self._process = spawn(
                [sys.executable, "-m", *self.arguments],
                log,
                death_signal=signal.SIGKILL,
                environment={**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"},
            )
        self.started_at = time.monotonic()

    async def stop(self, within: float) -> bool:
        """Ask it to end, after the time kill it; returns whether it ended by itself."""
        if self._process is None or not self.running:
            return True
        self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + within
        while self.running and time.monotonic() < deadline:  # noqa: ASYNC110 - a process, no event
            await asyncio.sleep(_POLL_SECONDS)
        ended = not self.running
        self.kill()
        return ended

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()

    def tail(self) -> str:
        """Return the last lines of its log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(f"    {line}" for line in lines[-6:]) or "    (no output)"


def _turn_over(log: Path) -> None:
    """Keep one older log beside the present one."""
    if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
