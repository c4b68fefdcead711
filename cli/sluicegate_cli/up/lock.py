"""One `sluicegate up` per data directory, and one at a time between choosing its ports and serving on them."""

import asyncio
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Self

from sluicegate_cli.outcome import CommandError

LOCK_FILE = "lock"
_RETRY_SECONDS = 0.2


class DataLock:
    """Hold a data directory; the lock goes with the process, however that ends.

    Raises:
        CommandError: another process holds it; the message names its id.
    """

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_FILE
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("a+")
        except OSError as error:
            raise CommandError(f"can't use {self._path.parent} for data: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise CommandError(
                f"another `sluicegate up` (pid {holder}) uses {self._path.parent}.\n"
                "Stop it first (Ctrl-C there), or choose another folder with --data-dir."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()


@asynccontextmanager
async def port_choice(say: Callable[[str], None]) -> AsyncIterator[None]:
    """Keep other runs of this user from choosing the same free ports until this one's services listen on theirs."""
    path = Path(tempfile.gettempdir()) / f"sluicegate-up-{os.getuid()}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        waited = False
        while not _locked(handle):
            if not waited:
                say("another `sluicegate up` is starting: waiting until it has its ports")
            waited = True
            await asyncio.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
