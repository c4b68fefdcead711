"""What happens around every unary call that a process makes: deadline, metadata, span, repeats, errors."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from servicekit import call_metadata, deadline, grpc_status, principal, telemetry
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_call import ACTOR_KEY, AUTHORIZATION_KEY, TENANT_KEY
from servicekit.telemetry import TRACEPARENT

_ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_OUTSIDE_GRPC = "can't be called now"

Metadata = tuple[tuple[str, str | bytes], ...]


class CallMaker:
    """Makes the real callable of a method when it is first needed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @cached_property
    def call(self) -> Any:
        """The callable of the real channel."""
        return self._make()


class Outgoing:
    """What all calls of one channel have in common."""

    def __init__(
        self, *, token: str | None, tenant: str | None, actor: str | None, seconds: float, peer: str
    ) -> None:
        self._authorization = None if token is None else (AUTHORIZATION_KEY, f"Bearer {token}")
        self._tenant = tenant
        self._actor = actor
        self._seconds = seconds
        self.peer = peer

    def timeout(self, asked: float | None, *, default: bool) -> float | None:
        """Return the seconds that a call may take: what was asked or the default, and never more than is left.

        Raises:
            ServiceError: TIME_IS_UP when the present call has no time left.
        """
        seconds = self._seconds if asked is None and default else asked
        left = deadline.remaining()
        if left is None:
            return seconds
        if left <= 0:
            raise ServiceError(Reason.TIME_IS_UP, "the time for this call is up")
        return left if seconds is None else min(seconds, left)

    def metadata(self, given: Any, span: Span | None) -> Metadata:
        """Return the call's metadata: what the caller gave, and ours."""
        calling = principal.calling()
        pairs: list[tuple[str, str | bytes]] = [*(given or ()), *call_metadata.present()]
        tenant = calling.tenant if calling else self._tenant
        actor = calling.subject if calling else self._actor
        if tenant:
            pairs.append((TENANT_KEY, tenant))
        if actor:
            pairs.append((ACTOR_KEY, actor))
        if self._authorization is not None:
            pairs.append(self._authorization)
        context = None if span is None else trace.set_span_in_context(span)
        if traceparent := telemetry.inject(context):
            pairs.append((TRACEPARENT, traceparent))
        return tuple(pairs)

    def start_span(self, method: str) -> Span | None:
        """Begin the span of one call, or nothing while tracing is off."""
        if not telemetry.enabled():
            return None
        service, _, name = method.lstrip("/").partition("/")
        return telemetry.tracer().start_span(
            f"{service}/{name}",
            kind=SpanKind.CLIENT,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
        )

    def rebuild(self, error: grpc.aio.AioRpcError) -> ServiceError:
        """Return the server's ServiceError."""
        trailing = error.trailing_metadata() or ()
        return grpc_status.rebuild(error.code(), error.details() or "", tuple(trailing), peer=self.peer)

    def unary(self, method: str, maker: CallMaker, *, may_repeat: bool) -> Callable[..., Awaitable[Any]]:
        """Return the callable of a unary method.

        Awaiting it answers the response or raises ServiceError; cancelling the awaiting task cancels the call on the
        server.
        """
        attempts = _ATTEMPTS if may_repeat else 1

        async def call(
            request: Any,
            *,
            timeout: float | None = None,  # noqa: ASYNC109 - gRPC's name for a call's deadline
            metadata: Any = None,
            credentials: Any = None,
            wait_for_ready: bool | None = None,
            compression: Any = None,
        ) -> Any:
            del credentials
            span = self.start_span(method)
            try:
                sent = self.metadata(metadata, span)
                seconds = self.timeout(timeout, default=True)
                return await self._attempt(
                    maker.call,
                    request,
                    seconds or self._seconds,
                    attempts,
                    {"metadata": sent, "wait_for_ready": wait_for_ready, "compression": compression},
                )
            except BaseException as error:
                if span is not None:
                    telemetry.record_error(span, error)
                raise
            finally:
                if span is not None:
                    span.end()

        return call

    async def _attempt(
        self, call: Any, request: Any, seconds: float, attempts: int, options: dict[str, Any]
    ) -> Any:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        for attempt in range(1, attempts + 1):
            try:
                return await call(request, timeout=max(0.001, ends_at - loop.time()), **options)
            except grpc.aio.AioRpcError as error:
                known = self.rebuild(error)
                pause = _pause(attempt, known)
                final = error.code() is not grpc.StatusCode.UNAVAILABLE or attempt == attempts
                if final or loop.time() + pause >= ends_at:
                    raise known from None
            except grpc.aio.UsageError as error:
                raise ServiceError(Reason.DEPENDENCY_AWAY, f"{self.peer} {_OUTSIDE_GRPC}") from error
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def _pause(attempt: int, error: ServiceError) -> float:
    seconds = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
    jittered: float = seconds * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load, hides nothing
    return max(jittered, error.retry_after.total_seconds() if error.retry_after else 0.0)
