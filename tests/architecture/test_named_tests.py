"""A test that the documentation names exists."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"`([a-z_/]+\.py)::(test_\w+)`")


def test_every_test_that_a_page_names_exists() -> None:
    named = {
        (page.name, *match.groups())
        for page in (TESTS.parent / "docs").rglob("*.md")
        for match in NAMED.finditer(page.read_text(encoding="utf-8"))
    }
    assert named
    missing = [
        (page, file, name)
        for page, file, name in sorted(named)
        if not (TESTS / file).exists() or f"def {name}(" not in (TESTS / file).read_text(encoding="utf-8")
    ]
    assert missing == []
