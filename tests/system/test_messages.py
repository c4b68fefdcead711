"""What is said when nothing runs or something is wrong: one clear message, an exit code, no traceback."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import command


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody answers."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("cards", "list"),
        ("backlog",),
        ("slots", "list"),
        ("channels", "list"),
        ("tasks", "create"),
        ("explain", "0197a000-0000-7000-8000-000000000000"),
    ],
)
def test_a_service_that_is_away_is_named(arguments: tuple[str, ...], nobody: str, tmp_path: Path) -> None:
    names = ("LEASE_SERVICE", "POLLER", "INGEST_SERVICE", "TASK_API", "COLLECTION_WRITER")
    variables = {f"SLUICEGATE_{name}": nobody for name in names}
    ended = command(*arguments, variables={**variables, "SLUICEGATE_DATA_DIR": str(tmp_path)})
    ended.assert_clear(3, f"at {nobody} can't be reached", "sluicegate up")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SLUICEGATE_POSTGRES_DSN", "postgresql://who:hidden-word@{}/db", "PostgreSQL at"),
        ("SLUICEGATE_REDIS_URL", "redis://:hidden-word@{}/0", "Redis at"),
        ("SLUICEGATE_NSQD", "{}", "nsqd at"),
    ],
)
def test_an_engine_of_yours_that_is_away_is_named(
    variable: str, value: str, words: str, nobody: str, tmp_path: Path
) -> None:
    variables = {variable: value.format(nobody)}
    ended = command("up", "--data-dir", str(tmp_path / "data"), variables=variables, within=120)
    ended.assert_clear(3, words, "can't be used", f"unset {variable}")
    assert "hidden-word" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cards", "poll"), "Missing argument"),
        (("nonsense",), "No such command"),
        (("mode", "set", "maybe"), "Invalid value"),
        (("tasks", "create", "--payload", "[1]"), "JSON object"),
        (("trace",), "name one of"),
        (("observe", "x.csv", "--card", "C", "--zone", "Not/AZone"), "no such zone"),
        (("export", "--account", "a", "--from", "2026-01-01"), "has no zone"),
        (("up", "--scenario", "none"), "Invalid value"),
    ],
)
def test_bad_usage_ends_with_2(arguments: tuple[str, ...], words: str) -> None:
    command(*arguments).assert_clear(2, words)


def test_a_folder_that_was_not_ours_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    command("clean-data", "--yes", "--data-dir", str(tmp_path)).assert_clear(1, "nothing was removed")
    assert (tmp_path / "precious").exists()


def test_migrations_of_an_unreachable_database(nobody: str) -> None:
    command("migrate", "--dsn", f"postgresql://who@{nobody}/db").assert_clear(1, "refused")
