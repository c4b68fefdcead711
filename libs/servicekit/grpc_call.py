"""What happens around every call on the server, in one chain.

From the outside in: tracing and metrics, errors, sign-in, deadline, bounds, then the servicer. The chain is wrapped
around each handler once, when it is registered, so that a call pays for no interceptor machinery.
"""

import asyncio
import hmac
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import grpc
from opentelemetry.trace import Span, SpanKind

from servicekit import bounds, deadline, grpc_status, principal, telemetry
from servicekit.deadline_wheel import DeadlineWheel
from servicekit.errors import Reason, ServiceError
from servicekit.failures import service_error
from servicekit.logs import get_logger
from servicekit.metrics import Metric, counter, gauge, histogram
from servicekit.principal import DEFAULT_TENANT, Principal
from servicekit.settings import AuthSettings

_log = get_logger(__name__)

TENANT_KEY = "x-sluicegate-tenant"
ACTOR_KEY = "x-sluicegate-actor"
AUTHORIZATION_KEY = "authorization"

MARGIN_SECONDS = 0.020
"""Taken off a caller's deadline, so that the answer is on its way before the caller gives up."""
LEAST_SECONDS = 0.100
"""A call with less time than this is refused: it could only waste work."""

_BEARER = "bearer "
_ALL_ROLES = frozenset({"client", "worker", "operator"})
_LONGEST_NAME = 128
_FOREVER_SECONDS = 10 * 365 * 86400.0

Handler = Callable[[Any, Any], Any]


class InFlight:
    """Counts the calls being answered and says when there are none."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()
        gauge(Metric.RPC_IN_FLIGHT).set_function(lambda: self._count)

    @property
    def count(self) -> int:
        """How many calls are being answered."""
        return self._count

    def enter(self) -> None:
        """Count a call that begins."""
        self._count += 1
        if self._count == 1:
            self._idle.clear()

    def leave(self) -> None:
        """Count a call that has ended."""
        self._count -= 1
        if self._count == 0:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no call is being answered."""
        await self._idle.wait()


class SignIn:
    """Decides who calls, from the call's metadata."""

    def __init__(self, settings: AuthSettings) -> None:
        token = settings.token.get_secret_value() if settings.mode == "token" and settings.token else None
        self._token = None if token is None else token.encode()
        self._known: dict[tuple[str, str], Principal] = {}

    def principal(self, metadata: Mapping[str, Any]) -> Principal:
        """Return the caller; raises ServiceError NOT_SIGNED_IN or INVALID_FIELD."""
        if self._token is not None:
            self._check_token(metadata.get(AUTHORIZATION_KEY))
        tenant = _name(metadata, TENANT_KEY) or DEFAULT_TENANT
        actor = _name(metadata, ACTOR_KEY) or "anonymous"
        known = self._known.get((tenant, actor))
        if known is None:
            known = Principal(actor, tenant, _ALL_ROLES)
            if len(self._known) < 1000:  # noqa: PLR2004 - keeps what a caller can fill bounded
                self._known[tenant, actor] = known
        return known

    def _check_token(self, value: Any) -> None:
        expected = self._token or b""
        if not isinstance(value, str) or value[: len(_BEARER)].lower() != _BEARER:
            raise ServiceError(Reason.NOT_SIGNED_IN, "the call carries no bearer token")
        if not hmac.compare_digest(value[len(_BEARER) :].strip().encode(), expected):
            raise ServiceError(Reason.NOT_SIGNED_IN, "the bearer token is not valid")


class MethodChain:
    """The chain around one method.

    Args:
        method: the full name, ``/package.Service/Method``.
        streaming: whether the answer or the request is a stream; a stream has no deadline unless the client set one.
        sign_in: decides who calls.
        in_flight: counts calls.
        wheel: ends calls whose time is up.
        default_deadline: for unary calls whose client set none.
    """

    def __init__(
        self,
        method: str,
        *,
        streaming: bool,
        sign_in: SignIn,
        in_flight: InFlight,
        wheel: DeadlineWheel,
        default_deadline: timedelta,
    ) -> None:
        self._method = method
        self._service, _, self._name = method.lstrip("/").partition("/")
        self._span_name = method.lstrip("/")
        self._sign_in = sign_in
        self._in_flight = in_flight
        self._wheel = wheel
        self._default_seconds = None if streaming else default_deadline.total_seconds()
        self._seconds = histogram(Metric.RPC_SECONDS).labels(method=self._span_name)
        self._handled: dict[str, Any] = {}

    async def run(self, context: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        """Answer one call with ``work``, or end it with the status that its failure stands for."""
        began = time.perf_counter()
        code = "OK"
        metadata = dict(context.invocation_metadata() or ())
        span = self._start_span(metadata) if telemetry.enabled() else None
        self._in_flight.enter()
        try:
            principal.use(self._sign_in.principal(metadata))
            return await self._limited(context, work)
        except asyncio.CancelledError as error:
            code = "CANCELLED"
            # Left to escape, it would leave a client that still waits hanging: grpc.aio sends no status for it.
            cancelled = ServiceError(Reason.CANCELLED, "the call was cancelled")
            _note(span, error)
            await self._abort(context, cancelled)
        except grpc.aio.AbortError:
            code = _code_name(context)
            raise
        except Exception as error:  # noqa: BLE001 - the outermost edge: everything becomes a status
            known = self._known_error(error)
            code = grpc_status.code_of(known.reason).name
            _note(span, error)
            await self._abort(context, known)
        finally:
            self._in_flight.leave()
            self._seconds.observe(time.perf_counter() - began)
            self._counter(code).inc()
            if span is not None:
                span.set_attribute("rpc.grpc.status_code", getattr(grpc.StatusCode, code).value[0])
                span.end()

    async def _limited(self, context: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        remaining = context.time_remaining()
        if remaining is None or remaining > _FOREVER_SECONDS:
            seconds = self._default_seconds
        else:
            seconds = remaining - MARGIN_SECONDS
            if remaining < LEAST_SECONDS:
                raise ServiceError(
                    Reason.TIME_IS_UP, f"the call came with less than {LEAST_SECONDS * 1000:g} ms left"
                )
        if seconds is None:
            return await work()
        deadline.use(seconds)
        return await self._wheel.run(seconds, work)

    def _start_span(self, metadata: Mapping[str, Any]) -> Span:
        span = telemetry.tracer().start_span(
            self._span_name,
            context=telemetry.extract(metadata.get(telemetry.TRACEPARENT)),
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": self._service, "rpc.method": self._name},
        )
        telemetry.attach(span)
        return span

    def _known_error(self, error: Exception) -> ServiceError:
        known = service_error(error)
        if known is None:
            _log.error("a call failed", method=self._span_name, exc_info=error)
            return ServiceError(Reason.INTERNAL, "an internal error; the service's log has it")
        if known is not error:
            _log.warning(
                "a call failed", method=self._span_name, reason=known.reason.value, problem=repr(error)
            )
        return known

    async def _abort(self, context: Any, error: ServiceError) -> None:
        await context.abort(
            grpc_status.code_of(error.reason),
            error.message,
            ((grpc_status.DETAILS_KEY, grpc_status.details_of(error)),),
        )

    def _counter(self, code: str) -> Any:
        child = self._handled.get(code)
        if child is None:
            child = counter(Metric.RPC_HANDLED).labels(method=self._span_name, code=code)
            self._handled[code] = child
        return child


def wrap(handler: Any, chain: MethodChain) -> Any:
    """Return the handler of a method with its chain around it."""
    if handler.request_streaming:
        checked = handler.stream_stream if handler.response_streaming else handler.stream_unary
        behaviour = _streams_in(checked)
    else:
        behaviour = _message_in(handler.unary_stream if handler.response_streaming else handler.unary_unary)
    if handler.response_streaming:
        return _streaming_handler(handler, _stream_out(behaviour, chain))
    return _unary_handler(handler, _message_out(behaviour, chain))


def _message_in(servicer: Handler) -> Handler:
    def behaviour(request: Any, context: Any) -> Any:
        bounds.check(request)
        return servicer(request, context)

    return _marked(behaviour, servicer)


def _streams_in(servicer: Handler) -> Handler:
    def behaviour(requests: Any, context: Any) -> Any:
        return servicer(_checked(requests), context)

    return _marked(behaviour, servicer)


def _marked(behaviour: Handler, servicer: Handler) -> Handler:
    behaviour.yields = inspect.isasyncgenfunction(servicer)  # type: ignore[attr-defined]
    return behaviour


async def _checked(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        bounds.check(request)
        yield request


def _message_out(behaviour: Handler, chain: MethodChain) -> Handler:
    async def answer(request: Any, context: Any) -> Any:
        async def work() -> Any:
            return await behaviour(request, context)

        return await chain.run(context, work)

    return answer


def _stream_out(behaviour: Handler, chain: MethodChain) -> Handler:
    yields = bool(behaviour.yields)  # type: ignore[attr-defined]

    async def answer(request: Any, context: Any) -> None:
        async def work() -> None:
            if not yields:
                await behaviour(request, context)
                return
            async with aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    await context.write(response)

        await chain.run(context, work)

    return answer


def _unary_handler(handler: Any, answer: Handler) -> Any:
    make = (
        grpc.stream_unary_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(answer, handler.request_deserializer, handler.response_serializer)


def _streaming_handler(handler: Any, answer: Handler) -> Any:
    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_stream_rpc_method_handler
    )
    return make(answer, handler.request_deserializer, handler.response_serializer)


def _name(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    if isinstance(value, str) and len(value) > _LONGEST_NAME:
        raise ServiceError(Reason.INVALID_FIELD, f"{key}: has more than {_LONGEST_NAME} characters")
    return value if isinstance(value, str) else None


def _note(span: Span | None, error: BaseException) -> None:
    if span is not None:
        telemetry.record_error(span, error)


def _code_name(context: Any) -> str:
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next((known.name for known in grpc.StatusCode if known.value[0] == code), "UNKNOWN")
