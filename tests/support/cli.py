"""The `sluicegate` command as another terminal runs it: a process of its own, its exit code, what it printed."""

import json
import multiprocessing
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["sluicegate_cli.main", "sluicegate_cli.up.run"])


def clean_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without any address of ours."""
    prefixes = (
        "SLUICEGATE_",
        *(f"{name}_" for name in ("LEASE", "POLLER", "INGEST", "COLLECTION", "TASK_API")),
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**kept, "COLUMNS": "200", **variables}


def command(*arguments: str, variables: Mapping[str, str] | None = None, within: float = 60) -> "Ended":
    """Run the `sluicegate` command to its end.

    Every run is a process that a server forks which has loaded the command's code and nothing else: what differs from
    a shell's run is that the interpreter does not start anew, which takes longer than most commands.
    """
    with TemporaryDirectory(prefix="sluicegate-command-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        environment = clean_environment(**(variables or {}))
        process = _FORKS.Process(target=_run, args=(arguments, environment, os.getcwd(), out, err))  # noqa: PTH109
        process.start()
        process.join(within)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        said = [path.read_text(errors="replace") if path.exists() else "" for path in (out, err)]
        assert code is not None, f"sluicegate {arguments} did not end within {within} s: {said}"
        return Ended(code, *said)


class Ended:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """What it printed with --json."""
        return json.loads(self.out)

    def assert_clear(self, code: int, *words: str) -> None:
        """Check the exit code, that each word is said, and that no traceback is."""
        said = self.out + self.err
        assert self.code == code, f"exit code {self.code}: {said}"
        assert "Traceback" not in said
        for word in words:
            assert re.search(word, said), f"{word!r} is not said in: {said}"


def _run(
    arguments: tuple[str, ...], environment: Mapping[str, str], folder: str, out: Path, err: Path
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(handle, stream.fileno())
        os.close(handle)
    sys.argv = ["sluicegate", *arguments]
    from sluicegate_cli.main import run  # noqa: PLC0415 - here, where it is loaded already

    try:
        run()
    finally:
        sys.stdout.flush()
