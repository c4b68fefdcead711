"""Find or build nsqd, and run it or the development broker as a child process.

Everything here blocks: call it from synchronous code or through `asyncio.to_thread`.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from devengines.child import spawn
from devengines.errors import EngineError
from devengines.ports import free_ports, is_free

NSQD_VERSION = "1.3.0"
NSQD_FLAGS = (
    "--mem-queue-size=0",
    "--sync-timeout=200ms",
    "--msg-timeout=60s",
    "--max-msg-timeout=15m",
    "--max-req-timeout=1h",
)

_PACKAGE = "github.com/nsqio/nsq/apps/nsqd"
_BUILD_SECONDS = 600
_START_SECONDS = 15.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.02
_START_ATTEMPTS = 5
_HOST = "127.0.0.1"


def build_nsqd() -> Path | None:
    """Return an nsqd to run: from PATH, else built before, else built now with `go` (half a minute), else None."""
    found = shutil.which("nsqd")
    if found is not None:
        return Path(found)
    built = _cache() / f"nsqd-{NSQD_VERSION}"
    if built.exists():
        return built
    go, module = shutil.which("go"), _module()
    if go is None or module is None:
        return None
    return _build(go, module, built)


class BrokerProcess:
    """Run one broker; a port given as 0 is chosen by `start` and then kept over restarts.

    Args:
        data_dir: holds the log, and nsqd's queues.
        tcp_port: 0 for any free port.
        http_port: 0 for any free port.
        flags: are added to the documented ones; the last one of a name wins.
    """

    name = "broker"
    durable = False

    def __init__(
        self, data_dir: Path, tcp_port: int = 0, http_port: int = 0, *, flags: tuple[str, ...] = ()
    ) -> None:
        self.data_dir = data_dir
        self._flags = flags
        self.tcp_port = tcp_port
        self.http_port = http_port
        self._fixed_ports = bool(tcp_port and http_port)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def tcp_address(self) -> str:
        """The `host:port` for clients."""
        return f"{_HOST}:{self.tcp_port}"

    @property
    def http_address(self) -> str:
        """The `host:port` for statistics and control."""
        return f"{_HOST}:{self.http_port}"

    @property
    def log_path(self) -> Path:
        """The file with everything that the process wrote."""
        return self.data_dir / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Say whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until `/ping` answers.

        Raises:
            EngineError: it ended or did not answer within 15 s; the message holds the end of its log.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        for attempt in range(_START_ATTEMPTS):
            if not self._fixed_ports:
                self.tcp_port, self.http_port = free_ports(2)
            try:
                self._start_once()
            except EngineError:
                if self._fixed_ports or attempt == _START_ATTEMPTS - 1:
                    raise
            else:
                self._fixed_ports = True
                return

    def stop(self) -> int | None:
        """Ask it to end and wait up to 60 s, then kill it; returns the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        self._end(signal.SIGKILL)

    def suspend(self) -> None:
        """Stop it without ending it, as a stalled machine does."""
        self._signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Undo `suspend`."""
        self._signal(signal.SIGCONT)

    def _command(self) -> list[str]:
        raise EngineError("no command")

    def _start_once(self) -> None:
        command = self._command()
        self._check_ports()
        with self.log_path.open("ab") as log:
            self._process = spawn(command, log)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                break
            if self._answers():
                return
            time.sleep(_POLL_SECONDS)
        self.kill()
        raise EngineError(f"{self.name} did not start: {self._log_tail()}")

    def _check_ports(self) -> None:
        """Find out before starting, or somebody else's broker on the same ports would look like ours."""
        for port in (self.tcp_port, self.http_port):
            if not is_free(port):
                raise EngineError(f"{self.name} did not start: port {port} is taken, choose another one")

    def _answers(self) -> bool:
        try:
            info = _get_json(f"http://{self.http_address}/info")
        except (OSError, ValueError):
            return False
        return bool(info.get("tcp_port") == self.tcp_port and self.running)

    def _log_tail(self) -> str:
        text = self.log_path.read_text(errors="replace").strip()
        return text[-500:] or "no output"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


class NsqdProcess(BrokerProcess):
    """Run the real nsqd with the flags this project documents.

    Args:
        data_dir: holds the queues; a restart continues with them.
        tcp_port: 0 for any free port.
        http_port: 0 for any free port.
        binary: the program; by default `build_nsqd` finds it.
        flags: are added to `NSQD_FLAGS`; the last one of a name wins.
    """

    name = "nsqd"
    durable = True

    def __init__(
        self,
        data_dir: Path,
        tcp_port: int = 0,
        http_port: int = 0,
        *,
        binary: Path | None = None,
        flags: tuple[str, ...] = (),
    ) -> None:
        super().__init__(data_dir, tcp_port, http_port, flags=flags)
        self._binary = binary

    def _command(self) -> list[str]:
        binary = self._binary or build_nsqd()
        if binary is None:
            raise EngineError(
                "nsqd is not on PATH and can't be built: install Go 1.21 or later, or nsqd 1.3.0"
            )
        return [
            str(binary),
            f"--tcp-address={self.tcp_address}",
            f"--http-address={self.http_address}",
            f"--broadcast-address={_HOST}",
            f"--data-path={self.data_dir}",
            "--log-level=warn",
            *_merge(NSQD_FLAGS, self._flags),
        ]


class DevbrokerProcess(BrokerProcess):
    """Run the development broker; nothing survives its end."""

    name = "devbroker"

    def _command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "devbroker",
            f"--tcp-address={self.tcp_address}",
            f"--http-address={self.http_address}",
            *self._flags,
        ]

    def set_faults(self, **faults: Any) -> dict[str, Any]:
        """Set faults through the control endpoint and return its answer."""
        body = json.dumps(faults).encode()
        return _get_json(f"http://{self.http_address}/faults", body)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sluicegate" / "bin"


def _module() -> Path | None:
    """Return the Go module's folder: in the repository, or inside an installed package."""
    here = Path(__file__).resolve().parent
    candidates = (here / "_data" / "nsqd", here.parents[1] / "deploy" / "nsqd")
    return next((path for path in candidates if (path / "go.mod").exists()), None)


def _build(go: str, module: Path, target: Path) -> Path | None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        partial = target.with_suffix(f".{os.getpid()}")
        result = subprocess.run(
            [go, "build", "-mod=readonly", "-o", str(partial), _PACKAGE],
            cwd=module,
            timeout=_BUILD_SECONDS,
            check=False,
            capture_output=True,
            text=True,
        )
        if result.returncode != 0:
            print(f"nsqd can't be built: {result.stderr.strip()[-500:]}", file=sys.stderr)  # noqa: T201
            return None
        partial.rename(target)
        return target


def _merge(defaults: tuple[str, ...], changes: tuple[str, ...]) -> list[str]:
    merged = {flag.partition("=")[0]: flag for flag in (*defaults, *changes)}
    return list(merged.values())


def _get_json(url: str, body: bytes | None = None) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, data=body), timeout=1.0) as response:  # noqa: S310 - own address
        found: dict[str, Any] = json.loads(response.read())
        return found
