"""Child processes that never outlive whoever started them.

Linux sends the death signal when the *thread* that started a child ends: children started from another thread than
the main one are not tied.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_PROC = Path("/proc")
_STATE, _STARTED = 0, 19  # fields of /proc/PID/stat after the program name
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def spawn(
    command: Sequence[str],
    log: IO[bytes],
    *,
    death_signal: signal.Signals = signal.SIGTERM,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that Ctrl-C reaches only whoever supervises it.

    Args:
        command: program and arguments.
        log: takes everything the program writes.
        death_signal: what the program gets when this process dies in any way (Linux only).
        user: name of the account to run as; only root can ask for that.
        environment: variables of the child; by default this process's own.
        directory: where the child runs.
    """
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_tie_to_parent(death_signal),  # noqa: PLW1509 - two system calls, no lock
        user=user,
        group=user,
        extra_groups=[] if user else None,
        env=None if environment is None else dict(environment),
        cwd=directory,
    )


def command_of(pid: int) -> str:
    """Return the command line of a running process, empty when there is none with this id."""
    if (_PROC / "self").exists():
        with contextlib.suppress(OSError):
            return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    return _ask_ps(pid, "command=")


def birth_of(pid: int) -> str:
    """Return when a process started, empty when it is gone or only waits to be reaped: with the id it names one."""
    if (_PROC / "self").exists():
        with contextlib.suppress(OSError, IndexError):
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            return "" if fields[_STATE] == "Z" else fields[_STARTED]
        return ""
    return _ask_ps(pid, "lstart=")


def _ask_ps(pid: int, column: str) -> str:
    asked = ["ps", "-p", str(pid), "-o", column]
    return subprocess.run(asked, check=False, capture_output=True, text=True).stdout.strip()


def _tie_to_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    if _LIBC is None or threading.current_thread() is not threading.main_thread():
        return None
    parent = os.getpid()

    def tie() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != parent:
            os.kill(os.getpid(), death_signal)

    return tie
