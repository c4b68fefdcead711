"""A whole lease service inside the test's event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lease_service.app import build
from lease_service.settings import Settings
from servicekit.grpc_server import GrpcServer


def lease_settings(database: str, redis_url: str, **variables: str) -> Settings:
    """Make settings with quick loops."""
    return Settings.from_environment(
        {
            "LEASE_SERVICE_GRPC__PORT": "0",
            "LEASE_SERVICE_METRICS_PORT": "0",
            "LEASE_SERVICE_POSTGRES__DSN": database,
            "LEASE_SERVICE_REDIS__URL": redis_url,
            "LEASE_SERVICE_SLOTS__REAP_EVERY": "50ms",
            "LEASE_SERVICE_SLOTS__AUDIT_EVERY": "50ms",
            "SLUICEGATE_LOG_LEVEL": "WARNING",
            **{f"LEASE_SERVICE_{name.upper()}": value for name, value in variables.items()},
        }
    )


@asynccontextmanager
async def running_lease_service(settings: Settings) -> AsyncIterator[str]:
    """Run one and give its address; it drains at the end, as on SIGTERM."""
    app = build(settings)
    started = []
    try:
        for component in app.components:
            await component.start()
            started.append(component)
        await app.health.start()
        [server] = [component for component in app.components if isinstance(component, GrpcServer)]
        yield server.address
    finally:
        await app.health.stop()
        for component in reversed(started):
            await component.drain()
        for component in reversed(started):
            await component.stop()
