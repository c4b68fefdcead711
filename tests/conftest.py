"""Fixtures that every test may ask for, and the summary's line about missing engines."""

from pathlib import Path

import pytest

from tests.support.engines import (
    broker_server,
    database,
    devbroker_server,
    empty_database,
    engines_folder,
    migrated_template,
    missing_engines,
    nsqd_server,
    postgres_server,
    redis_url,
    valkey_server,
)

__all__ = [
    "broker_server",
    "database",
    "devbroker_server",
    "empty_database",
    "engines_folder",
    "migrated_template",
    "nsqd_server",
    "postgres_server",
    "redis_url",
    "valkey_server",
]


SLOWEST_FIRST = ("system", "integration", "contract", "rpc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the layers whose files take longest, so that two workers end at about the same time."""
    items.sort(key=lambda item: _rank(item.path.relative_to(Path(__file__).parent).parts[0]))


def _rank(layer: str) -> int:
    return SLOWEST_FIRST.index(layer) if layer in SLOWEST_FIRST else len(SLOWEST_FIRST)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line which engines were missing and how many tests that cost."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)]
    counts = missing_engines(reasons)
    if counts:
        told = ", ".join(f"{engine} ({count} tests skipped)" for engine, count in sorted(counts.items()))
        terminalreporter.write_line(f"MISSING ENGINES: {told}", yellow=True)
    elif reasons:
        terminalreporter.write_line(
            f"engines: all that were asked for were there ({len(reasons)} other skips)"
        )
    else:
        terminalreporter.write_line("engines: all that were asked for were there")
