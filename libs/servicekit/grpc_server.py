"""The gRPC server that every service runs: health, reflection, limits, and the chain of `servicekit.grpc_call`."""

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from servicekit.deadline_wheel import DeadlineWheel
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_call import InFlight, MethodChain, SignIn, wrap
from servicekit.health import Health, HealthSnapshot
from servicekit.logs import get_logger
from servicekit.settings import ServiceSettings

_log = get_logger(__name__)

AddServicer = Callable[[Any, Any], None]
"""A generated ``add_XServicer_to_server``."""

_LAST_WORDS_SECONDS = 0.5
"""For answers on their way and for health watchers, after the last call has ended."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


class GrpcServer:
    """Serves the given servicers. A Component.

    Args:
        settings: the whole settings of the service: address, deadlines, sign-in, and the prefix for messages.
        servicers: pairs of a generated ``add_XServicer_to_server`` and the servicer.
        health: shown by the standard health service, as a whole under "" and each service's name, and each
            dependency under its own name.
    """

    name = "grpc_server"

    def __init__(
        self, settings: ServiceSettings, servicers: Sequence[tuple[AddServicer, Any]], health: Health
    ) -> None:
        self._settings = settings
        self._servicers = servicers
        self._health = health
        self._server: grpc.aio.Server | None = None
        self._port = settings.grpc.port
        self._in_flight = InFlight()
        self._wheel = DeadlineWheel()
        self._sign_in = SignIn(settings.auth)

    @property
    def port(self) -> int:
        """The port in use; the configured one before ``start``."""
        return self._port

    @property
    def address(self) -> str:
        """Where the server listens: ``host:port``."""
        return f"{self._settings.grpc.host}:{self._port}"

    async def start(self) -> None:
        """Listen.

        Raises:
            ServiceError: WRONG_STATE when the port is taken or the host is not one of this machine.
        """
        self._refuse_taken_port()
        server = self._make_server()
        services = self._register(server)
        await self._add_health(server, services)
        reflection.enable_server_reflection((*services, reflection.SERVICE_NAME), server)
        try:
            self._port = server.add_insecure_port(f"{self._bind_host()}:{self._settings.grpc.port}")
        except RuntimeError as error:
            raise self._taken() from error
        await server.start()
        self._server = server
        _log.info("serving", address=self.address, services=services)

    async def drain(self) -> None:
        """Take no new call and wait for the present ones, at most ``grpc.drain_seconds``."""
        if self._server is None:
            return
        stopping = asyncio.ensure_future(self._server.stop(self._settings.grpc.drain_seconds))
        idle = asyncio.ensure_future(self._in_flight.idle())
        try:
            await asyncio.wait({stopping, idle}, return_when=asyncio.FIRST_COMPLETED)
            await self._server.stop(_LAST_WORDS_SECONDS)
            await stopping
        finally:
            stopping.cancel()
            idle.cancel()

    async def stop(self) -> None:
        """Cut what is left."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0)

    def _make_server(self) -> grpc.aio.Server:
        limits = self._settings.grpc
        return grpc.aio.server(
            options=(
                *_OPTIONS,
                ("grpc.max_receive_message_length", limits.max_message_bytes),
                ("grpc.max_send_message_length", limits.max_message_bytes),
            ),
            maximum_concurrent_rpcs=limits.max_concurrent_calls,
        )

    def _register(self, server: grpc.aio.Server) -> list[str]:
        registrar = _Registrar(self._chain)
        for add, servicer in self._servicers:
            add(servicer, registrar)
        for service, handlers in registrar.services.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
            server.add_registered_method_handlers(service, handlers)
        return list(registrar.services)

    def _chain(self, method: str, *, streaming: bool) -> MethodChain:
        return MethodChain(
            method,
            streaming=streaming,
            sign_in=self._sign_in,
            in_flight=self._in_flight,
            wheel=self._wheel,
            default_deadline=self._settings.grpc.default_deadline,
        )

    async def _add_health(self, server: grpc.aio.Server, services: Sequence[str]) -> None:
        servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)

        async def show(snapshot: HealthSnapshot) -> None:
            for name in ("", *services):
                await servicer.set(name, _status(serving=snapshot.serving))
            for name, state in snapshot.checks.items():
                await servicer.set(name, _status(serving=snapshot.ready and state.ok))

        await show(self._health.snapshot())
        self._health.add_listener(show)

    def _refuse_taken_port(self) -> None:
        # gRPC's own failure prints pages of its internals first.
        if self._settings.grpc.port == 0:
            return
        host = self._settings.grpc.host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, self._settings.grpc.port))
            except socket.gaierror:
                return
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise self._taken() from error
                raise ServiceError(
                    Reason.WRONG_STATE, f"can't listen on {self.address}: {error.strerror}"
                ) from error

    def _taken(self) -> ServiceError:
        limits = self._settings.grpc
        return ServiceError(
            Reason.WRONG_STATE,
            f"port {limits.port} on {limits.host} is taken: stop what uses it or set "
            f"{self._settings.env_prefix()}GRPC__PORT",
        )

    def _bind_host(self) -> str:
        host = self._settings.grpc.host
        return f"[{host}]" if ":" in host and not host.startswith("[") else host


class _Registrar:
    """Stands in for a server while generated code registers handlers, and wraps each in its chain."""

    def __init__(self, chain: Callable[..., MethodChain]) -> None:
        self._chain = chain
        self.services: dict[str, dict[str, Any]] = {}

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Ignore them: the same handlers come again by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Wrap a service's handlers."""
        self.services[service] = {
            name: wrap(
                handler,
                self._chain(
                    f"/{service}/{name}", streaming=handler.request_streaming or handler.response_streaming
                ),
            )
            for name, handler in handlers.items()
        }


def _status(*, serving: bool) -> Any:
    response = health_pb2.HealthCheckResponse
    return response.SERVING if serving else response.NOT_SERVING
