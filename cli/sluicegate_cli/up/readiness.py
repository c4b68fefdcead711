"""Wait until everything really works."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp

from servicekit.errors import ServiceError
from servicekit.grpc_client import Channel
from servicekit.settings import AuthSettings
from sluicegate_cli.outcome import CommandError
from sluicegate_cli.up.child import Child

_SECONDS = 60.0
_POLL_SECONDS = 0.2


async def wait_serving(child: Child, auth: AuthSettings) -> None:
    """Wait until a service's own health says SERVING.

    Raises:
        CommandError: it ended, or did not get there within a minute; the message holds the end of its log.
    """
    channel = Channel(child.address, auth=auth, name=child.name)
    try:
        await _wait(child, lambda: _is_serving(channel))
    finally:
        await channel.stop()


async def wait_http(child: Child, url: str) -> None:
    """Wait until an HTTP address answers anything; raises CommandError as `wait_serving` does."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1), trust_env=False) as session:
        await _wait(child, lambda: _answers(session, url))


async def _wait(child: Child, is_ready: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        if not child.running:
            raise CommandError(f"{child.name} did not start (exit code {child.exit_code}):\n{child.tail()}")
        if await is_ready():
            return
        if time.monotonic() > deadline:
            raise CommandError(
                f"{child.name} is not ready after {_SECONDS:.0f} s; {child.log} ends with:\n{child.tail()}"
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _is_serving(channel: Channel) -> bool:
    try:
        return await channel.health_check()
    except ServiceError:
        return False


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url):
            return True
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
