"""Environments of peers: each has one of its own in the user's cache, made on first use (needs a package index)."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path


async def environment(name: str, packages: Sequence[str]) -> Path | None:
    """Return the interpreter of a peer's environment; makes it when it is not there; None when it can't be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluicegate-bench"
    folder = cache / name.replace(" ", "-")
    python, done = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(packages)
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages],
        ):
            process = await asyncio.create_subprocess_exec(*command)
            if await process.wait():
                return None
        done.write_text(wanted, encoding="utf-8")
    return python
