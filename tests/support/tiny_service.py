"""A service with a gRPC server, a loop and an engine that is or is not there: what the process tests run."""

import asyncio
import sys
from pathlib import Path
from typing import ClassVar

from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.lifecycle import App, Loop, main
from servicekit.redis import Redis
from servicekit.settings import ServiceSettings


class Settings(ServiceSettings):
    """Settings of the tiny service."""

    service_name: ClassVar[str] = "tiny_service"
    marks: Path = Path("/dev/null")
    needs_redis: bool = False
    hold_seconds: float = 0.0


class Marks:
    """Writes down what happens to it; its drain may take long."""

    name = "marks"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Write it down."""
        self._mark("start")

    async def drain(self) -> None:
        """Write it down and hold."""
        self._mark("drain")
        await asyncio.sleep(self._settings.hold_seconds)

    async def stop(self) -> None:
        """Write it down."""
        self._mark("stop")

    def _mark(self, text: str) -> None:
        with self._settings.marks.open("a") as file:
            file.write(text + "\n")


def build(settings: Settings) -> App:
    """Put it together."""
    health = Health()

    async def run_once() -> None:
        await asyncio.sleep(0)

    engines = [Redis(settings.redis)] if settings.needs_redis else []
    server = GrpcServer(settings, [], health)
    components = [*engines, Marks(settings), server, Loop("idle", run_once, every=0.05)]
    return App(name="tiny_service", components=components, health=health)


if __name__ == "__main__":
    sys.exit(main(Settings, build))
