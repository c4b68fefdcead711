"""The repository speaks of itself alone: no machine, no registry, nothing left open."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OPEN = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error|xf" + r"ail)\b")
_REGISTRIES = ("py" + "pi", "pythonho" + "sted", "npm" + "js", "go" + "lang", "deb" + "ian", "ma" + "ven")
REGISTRY = re.compile(rf"//[a-z0-9.-]*({'|'.join(_REGISTRIES)})[a-z.-]*[:/]")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(wor" + r"k|ro" + r"ot|ho" + r"me|op" + r"t/wheels)/[a-z.]")


def tracked() -> list[Path]:
    try:
        listing = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this copy is no git checkout")
    return [ROOT / name for name in listing.splitlines()]


def matches(pattern: re.Pattern[str], suffixes: set[str] | None = None) -> list[str]:
    found = []
    for path in tracked():
        if (
            not path.is_file()
            or path.is_relative_to(ROOT / "gen")
            or (suffixes is not None and path.suffix not in suffixes)
        ):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match.group(0)}" for match in pattern.finditer(text)]
    return found


def test_no_registry_is_named() -> None:
    assert matches(REGISTRY) == []


def test_no_machine_path_is_named() -> None:
    assert matches(MACHINE_PATH) == []


def test_nothing_is_left_open() -> None:
    assert matches(LEFT_OPEN, {".py", ".lua", ".sql", ".proto"}) == []
