"""Any service of ours inside the test's event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from servicekit.grpc_server import GrpcServer
from servicekit.lifecycle import App


@asynccontextmanager
async def running(app: App) -> AsyncIterator[str]:
    """Run an app and give its address; it drains and stops at the end, as on SIGTERM."""
    started = []
    try:
        for component in app.components:
            await component.start()
            started.append(component)
        await app.health.start()
        yield next(item.address for item in app.components if isinstance(item, GrpcServer))
    finally:
        await app.health.stop()
        for component in reversed(started):
            await component.drain()
        for component in reversed(started):
            await component.stop()
