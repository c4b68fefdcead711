"""A real Chromium, driven by playwright; a test that asks for it is skipped where there is none."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, async_playwright

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@asynccontextmanager
async def chromium(profile: Path, *, dark: bool = False) -> AsyncIterator[BrowserContext]:
    """Run Chromium headless with an empty profile folder."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("missing engine: chromium is not on PATH")
    async with async_playwright() as driver:
        context = await driver.chromium.launch_persistent_context(
            profile,
            executable_path=program,
            headless=True,
            args=list(_FLAGS),
            color_scheme="dark" if dark else "light",
        )
        try:
            yield context
        finally:
            await context.close()
