"""`sluicegate export` refuses what can't work before it asks for a task."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluicegate_cli.main import app
from sluicegate_cli.outcome import CommandError, ExitCode


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--export-id", "march"], "--from and --until"),
        (["--from", "2026-03-02T00:00:00Z", "--until", "2026-03-01T00:00:00Z"], "is not before"),
        (["--from", "yesterday"], "--from"),
        (["--output", "nowhere/file.csv"], "there is no folder"),
    ],
)
def test_requests_that_cannot_work_are_refused_at_once(
    options: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["export", "--account", "acme", *options])
    assert isinstance(result.exception, CommandError)
    assert told in result.exception.message
    assert result.exception.code is ExitCode.BAD_INPUT
