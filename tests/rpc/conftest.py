"""Overrides pytest-grpc's fixture names with servers and channels of grpc.aio.

A test module gives `grpc_servicers` (pairs of a generated add function and a servicer) and `grpc_stub_cls`; it gets
`grpc_server` (started), `grpc_channel` (ours, connected to it) and `grpc_stub`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from servicekit.grpc_client import Channel
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.settings import ServiceSettings


@pytest.fixture
def grpc_settings() -> ServiceSettings:
    return ServiceSettings.from_environment({})


@pytest.fixture
def grpc_health() -> Health:
    return Health()


@pytest.fixture
def grpc_idempotent() -> frozenset[str]:
    return frozenset()


@pytest.fixture
async def grpc_server(
    grpc_settings: ServiceSettings,
    grpc_servicers: Sequence[tuple[Callable[[Any, Any], None], Any]],
    grpc_health: Health,
) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(grpc_settings, grpc_servicers, grpc_health)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def grpc_channel(
    grpc_server: GrpcServer, grpc_settings: ServiceSettings, grpc_idempotent: frozenset[str]
) -> AsyncIterator[Channel]:
    channel = Channel(
        grpc_server.address, auth=grpc_settings.auth, name="the server", idempotent=grpc_idempotent
    )
    yield channel
    await channel.stop()


@pytest.fixture
def grpc_stub(grpc_stub_cls: Callable[[Any], Any], grpc_channel: Channel) -> Any:
    return grpc_stub_cls(grpc_channel.raw)
