"""The gRPC channel that every caller uses.

``Channel.raw`` is a `grpc.aio.Channel` to hand to a generated stub. Every call made through it has a deadline, carries
trace context, sign-in and tenant, and fails with the ServiceError that the server raised.
"""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from servicekit.errors import Reason, ServiceError
from servicekit.grpc_outgoing import CallMaker, Outgoing
from servicekit.grpc_stream import make_stream
from servicekit.settings import AuthSettings

_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 8 * 1024 * 1024),
    ("grpc.max_send_message_length", 8 * 1024 * 1024),
    ("grpc.enable_retries", 0),
)
_HEALTH_SECONDS = 1.5


class Channel:
    """A connection to one service. A Component; connects when it is first used and again after every loss.

    Args:
        target: ``host:port``.
        auth: how this process signs in.
        name: who is called, for messages; by default the target.
        idempotent: methods, as ``Method`` or ``/package.Service/Method``, that may be sent again after UNAVAILABLE.
        timeout: for unary calls that are made without one; never longer than the present call has left.
        tenant: for calls made outside any call; inside one its caller's tenant goes on.
        actor: likewise.
    """

    def __init__(
        self,
        target: str,
        *,
        auth: AuthSettings | None = None,
        name: str | None = None,
        idempotent: Collection[str] = (),
        timeout: timedelta = timedelta(seconds=10),
        tenant: str | None = None,
        actor: str | None = None,
    ) -> None:
        self._peer = name or target
        token = auth.token.get_secret_value() if auth and auth.mode == "token" and auth.token else None
        outgoing = Outgoing(
            token=token, tenant=tenant, actor=actor, seconds=timeout.total_seconds(), peer=self._peer
        )
        self.raw: grpc.aio.Channel = _RawChannel(target, outgoing, frozenset(idempotent))
        """To hand to generated stubs; safe to use before ``start`` and outside the event loop."""

    @property
    def name(self) -> str:
        """Who is called."""
        return f"channel to {self._peer}"

    async def start(self) -> None:
        """Do nothing: services start in any order, so a peer that is not there yet is no failure."""

    async def drain(self) -> None:
        """Do nothing: who calls drains before this."""

    async def stop(self) -> None:
        """Close the connection; calls still waiting are cancelled."""
        await self.raw.close(None)

    async def health_check(self) -> bool:
        """Ask the peer's health service; raises ServiceError when it can't be reached."""
        stub: Any = health_pb2_grpc.HealthStub(self.raw)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_SECONDS)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def wait_ready(self, within: timedelta) -> None:
        """Wait until the peer accepts connections; raises ServiceError DEPENDENCY_AWAY when the time is up."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self.raw.channel_ready()
        except TimeoutError:
            raise ServiceError(Reason.DEPENDENCY_AWAY, f"{self._peer} can't be reached") from None


class _RawChannel(grpc.aio.Channel):
    """Makes the callables that stubs hold; the real channel is made with the first call, inside the event loop."""

    def __init__(self, target: str, outgoing: Outgoing, idempotent: frozenset[str]) -> None:
        self._target = target
        self._outgoing = outgoing
        self._idempotent = idempotent
        self._inner: grpc.aio.Channel | None = None

    @property
    def inner(self) -> grpc.aio.Channel:
        if self._inner is None:
            self._inner = grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        return self._inner

    def unary_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        maker = CallMaker(lambda: self.inner.unary_unary(method, *arguments, **options))
        may_repeat = method in self._idempotent or method.rpartition("/")[2] in self._idempotent
        return self._outgoing.unary(method, maker, may_repeat=may_repeat)

    def unary_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        maker = CallMaker(lambda: self.inner.unary_stream(method, *arguments, **options))
        return make_stream(self._outgoing, method, maker)

    def stream_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        maker = CallMaker(lambda: self.inner.stream_unary(method, *arguments, **options))
        return make_stream(self._outgoing, method, maker)

    def stream_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        maker = CallMaker(lambda: self.inner.stream_stream(method, *arguments, **options))
        return make_stream(self._outgoing, method, maker)

    async def close(self, grace: float | None = None) -> None:
        if self._inner is not None:
            await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002
        return self.inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self.inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.inner.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
