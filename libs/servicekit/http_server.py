"""Serves an ASGI application as a component: clear start errors, and an end that open streams can't hold up."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import uvicorn

from servicekit.errors import Reason, ServiceError
from servicekit.logs import get_logger

_log = get_logger(__name__)

_BACKLOG = 2048
_ABORT_SECONDS = 1.0


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: the lifecycle owns signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves HTTP. A Component.

    Streams must be told to end before ``drain``; what has not ended by ``drain_timeout`` is cut.

    Args:
        app: the application.
        host: where to listen.
        port: 0 for any free one.
        variable: the setting to name when the port is taken.
        drain_timeout: for requests that are being answered.
    """

    name = "http_server"

    def __init__(self, app: Any, *, host: str, port: int, variable: str, drain_timeout: timedelta) -> None:
        self._host = host
        self._port = port
        self._variable = variable
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ws="none",
            timeout_graceful_shutdown=max(1, round(drain_timeout.total_seconds())),
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port in use; the configured one before ``start``."""
        return self._port

    async def start(self) -> None:
        """Listen; raises ServiceError WRONG_STATE when the port is taken."""
        listener = self._bind()
        self._port = listener.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name=self.name)
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise ServiceError(Reason.WRONG_STATE, "the HTTP server ended at its start")
            await asyncio.sleep(0.01)
        _log.info("serving", address=f"{self._host}:{self._port}", protocol="http")

    async def drain(self) -> None:
        """Take no new connection and wait for the answers that are on their way."""
        self._server.should_exit = True
        if self._serving is not None:
            await asyncio.wait({self._serving})

    async def stop(self) -> None:
        """Cut what is left."""
        self._server.should_exit = True
        self._server.force_exit = True
        serving, self._serving = self._serving, None
        if serving is None:
            return
        await asyncio.wait({serving}, timeout=_ABORT_SECONDS)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, self._port))
        except OSError as error:
            listener.close()
            raise ServiceError(
                Reason.WRONG_STATE,
                f"can't listen on {self._host}:{self._port} ({error.strerror}): stop what uses it or set "
                f"{self._variable}",
            ) from error
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        return listener
