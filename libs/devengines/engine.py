"""What every engine process has in common: start until ready, stop, kill, survive a dirty end.

Everything here blocks: call it from synchronous code or through `asyncio.to_thread`.
"""

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from devengines.child import birth_of, spawn
from devengines.errors import EngineError
from devengines.ports import free_port

_POLL_SECONDS = 0.02
_START_ATTEMPTS = 5


class EngineProcess(ABC):
    """Run one engine; a port given as 0 is chosen by `start` and then kept over restarts.

    Args:
        data_dir: holds the data and the log; made when missing.
        port: 0 for any free port.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_seconds: ClassVar[float] = 30.0
    stop_seconds: ClassVar[float] = 60.0

    def __init__(self, data_dir: Path, port: int = 0) -> None:
        self.data_dir = data_dir.absolute()
        self.port = port
        self._fixed_port = bool(port)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        """The file with everything that the process wrote."""
        return self.data_dir / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Say whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it answers; an unclean end before this is repaired.

        Raises:
            EngineError: it ended or did not answer in time; the message holds the end of its log.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._end_leftover()
        self._prepare()
        for attempt in range(_START_ATTEMPTS):
            if not self._fixed_port:
                self.port = free_port()
            try:
                self._start_once()
            except EngineError:
                if self._fixed_port or attempt == _START_ATTEMPTS - 1:
                    raise
            else:
                self._fixed_port = True
                return

    def stop(self) -> int | None:
        """Ask it to end and wait up to a minute, then kill it; returns the exit code."""
        return self._end(self.stop_signal)

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        self._end(signal.SIGKILL)

    def suspend(self) -> None:
        """Stop it without ending it, as a stalled machine does."""
        self._signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Undo `suspend`."""
        self._signal(signal.SIGCONT)

    @abstractmethod
    def _command(self) -> list[str]:
        """Return program and arguments for the chosen port."""

    @abstractmethod
    def _answers(self) -> bool:
        """Say whether our own child answers, and not somebody else on the same port."""

    def _prepare(self) -> None:  # noqa: B027 - nothing to do is the usual case
        """Make the data directory ready."""

    def _user(self) -> str | None:
        """Return the account to run as, None for our own."""
        return None

    def _start_once(self) -> None:
        with self.log_path.open("ab") as log:
            log_start = log.tell()
            self._process = spawn(self._command(), log, death_signal=self.stop_signal, user=self._user())
        self._pid_path.write_text(f"{self._process.pid} {birth_of(self._process.pid)}\n")
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline and self.running:
            if self._answers():
                return
            time.sleep(_POLL_SECONDS)
        self.kill()
        raise EngineError(f"{self.name} did not start: {self._log_tail(log_start)}")

    @property
    def _pid_path(self) -> Path:
        return self.data_dir / f"{self.name}.pid"

    def _end_leftover(self) -> None:
        """End a process that an unclean end of its supervisor left behind on the same data."""
        with contextlib.suppress(OSError, ValueError):
            number, _, birth = self._pid_path.read_text().strip().partition(" ")
            if birth and birth_of(int(number)) == birth:
                _end_stranger(int(number), self.stop_signal, self.stop_seconds)
        self._pid_path.unlink(missing_ok=True)

    def _log_tail(self, start: int) -> str:
        text = self.log_path.read_bytes()[start:].decode(errors="replace").strip()
        return text[-800:] or "no output"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        try:
            code = process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self._pid_path.unlink(missing_ok=True)
        return code


def _end_stranger(pid: int, number: signal.Signals, seconds: float) -> None:
    """End a process that is not our child and wait until it is gone."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        while birth_of(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
