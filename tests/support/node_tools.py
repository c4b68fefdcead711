"""Tools written in Node that tests start, installed once per lock file into the user's cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "node"
INSTALL_SECONDS = 300


def node_tool(name: str) -> Path:
    """Return an installed tool's executable; see :func:`node_modules`."""
    return node_modules() / ".bin" / name


def node_modules() -> Path:
    """Return the folder of all packages; installs them the first time, which takes about half a minute.

    Skips the test, saying why, where Node or npm is missing or the packages can't be had.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("no Node: node and npm are not on PATH")
    return _installed() / "node_modules"


def _installed() -> Path:
    lock = (SOURCE / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluicegate" / "node"
    folder = cache / hashlib.sha256(lock).hexdigest()[:16]
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "install.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not folder.exists():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    building = folder.with_suffix(".building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, building / name)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        done = subprocess.run(
            command, cwd=building, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm ci took more than {INSTALL_SECONDS} s")
    if done.returncode != 0:
        pytest.skip(f"npm ci failed: {done.stderr.strip().splitlines()[-1:]}")
    building.rename(folder)
