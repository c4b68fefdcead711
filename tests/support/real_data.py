"""The folder of real inputs that nobody on this project wrote; tests that need it skip where it is absent."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def real_data(*parts: str) -> Path:
    """Return a file below the real-data folder; skips the test when it is not there."""
    folder = os.environ.get("SLUICEGATE_REAL_DATA", "../shared/data")
    path = (REPOSITORY / folder).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no real data: {'/'.join(parts)} is not below SLUICEGATE_REAL_DATA")
    return path


def real_answer(file: str, source: str, path: str) -> bytes:
    """Return one recorded answer's body out of a file of recorded answers, as JSON bytes."""
    for line in real_data("api", file).read_text(encoding="utf-8").splitlines():
        record: dict[str, Any] = json.loads(line)
        if record["source"] == source and record["path"] == path:
            return json.dumps(record["body"]).encode()
    raise LookupError(f"{file} has no {source} {path}")
