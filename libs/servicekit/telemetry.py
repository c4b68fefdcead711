"""Tracing: one provider per process, W3C trace context by hand, and the typed registry of attribute names.

With neither a span store nor an OTLP endpoint, tracing is off: `tracer` makes no spans and `inject` returns "".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from servicekit import logs
from servicekit.errors import ServiceError
from servicekit.metrics import Metric, counter, gauge, histogram
from servicekit.settings import TelemetrySettings
from servicekit.span_exporter import StoreExporter
from servicekit.span_store import SpanStore

__all__ = [
    "Attribute",
    "Link",
    "Metric",
    "Span",
    "SpanKind",
    "attach",
    "counter",
    "enabled",
    "extract",
    "flush",
    "gauge",
    "histogram",
    "inject",
    "links",
    "record_error",
    "set_attributes",
    "setup",
    "shutdown",
    "traced",
    "tracer",
]

MOST_LINKS = 256
TRACEPARENT = "traceparent"
BAGGAGE_NAMES = ("observation_id", "card_id")
_INSTRUMENTATION = "sluicegate"
_QUEUE_SPANS = 16_384
_EXPORT_SPANS = 1024
_EXPORT_MILLISECONDS = 500
_NO_OP = trace.NoOpTracer()
_TRACEPARENT_LENGTH = 55


class Attribute(StrEnum):
    """Every attribute name of our own that a span may carry."""

    OBSERVATION_ID = "sluicegate.observation_id"
    CARD_ID = "sluicegate.card_id"
    ACCOUNT_ID = "sluicegate.account_id"
    TASK_ID = "sluicegate.task_id"
    ATTEMPT = "sluicegate.attempt"
    CHANNEL = "sluicegate.channel"
    CLAIM_TOKEN_HASH = "sluicegate.claim_token_hash"  # noqa: S105 - a name, not a token
    EVENT_ID = "sluicegate.event_id"
    EXPORT_ID = "sluicegate.export_id"
    KIND = "sluicegate.kind"
    OUTCOME = "sluicegate.outcome"
    POOL = "sluicegate.pool"
    SCOPE = "sluicegate.scope"
    HOLDER = "sluicegate.holder"
    FENCE = "sluicegate.fence"
    LANE = "sluicegate.lane"
    MODE = "sluicegate.mode"
    TOPIC = "sluicegate.topic"
    TENANT = "sluicegate.tenant"
    COUNT = "sluicegate.count"
    DELIVERY_ATTEMPTS = "sluicegate.delivery_attempts"
    ROWS = "sluicegate.rows"
    BYTES = "sluicegate.bytes"
    REASON = "sluicegate.reason"
    SOURCE = "sluicegate.source"
    CANCELLED = "sluicegate.cancelled"


class _State:
    provider: TracerProvider | None = None
    tracer: trace.Tracer = _NO_OP


def setup(service_name: str, settings: TelemetrySettings, *, exporter: SpanExporter | None = None) -> None:
    """Turn tracing on as the settings say; replaces what was set up before.

    Args:
        service_name: the resource's ``service.name``.
        settings: where spans go.
        exporter: one more receiver, for tests.
    """
    shutdown()
    exporters = [*_exporters(settings), *([exporter] if exporter is not None else [])]
    if not exporters or not settings.enabled:
        return
    provider = TracerProvider(
        resource=Resource.create({"service.name": service_name}),
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        span_limits=SpanLimits(max_links=MOST_LINKS),
        shutdown_on_exit=False,
    )
    for receiver in exporters:
        provider.add_span_processor(
            BatchSpanProcessor(
                receiver,
                max_queue_size=_QUEUE_SPANS,
                max_export_batch_size=_EXPORT_SPANS,
                schedule_delay_millis=_EXPORT_MILLISECONDS,
            )
        )
    _State.provider, _State.tracer = provider, provider.get_tracer(_INSTRUMENTATION)


def shutdown() -> None:
    """Export what is held and turn tracing off; may block for some seconds."""
    provider, _State.provider, _State.tracer = _State.provider, None, _NO_OP
    if provider is not None:
        provider.shutdown()


def flush() -> None:
    """Export what is held; blocks until it is done."""
    if _State.provider is not None:
        _State.provider.force_flush()


def enabled() -> bool:
    """Tell whether spans are made."""
    return _State.provider is not None


def tracer() -> trace.Tracer:
    """Return the process's tracer; one that makes nothing while tracing is off."""
    return _State.tracer


def inject(context: Context | None = None) -> str:
    """Return the present span as a W3C ``traceparent``, or "" when there is none."""
    span = trace.get_current_span(context).get_span_context()
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def extract(traceparent: str | None) -> Context:
    """Return a context whose present span is the remote one; an empty context when the text is none."""
    remote = _parse(traceparent)
    return Context() if remote is None else trace.set_span_in_context(NonRecordingSpan(remote), Context())


def links(traceparents: Iterable[str | None]) -> list[Link]:
    """Return one link per different span among these, at most 256."""
    contexts = {context.span_id: context for text in traceparents if (context := _parse(text)) is not None}
    return [Link(context) for context in list(contexts.values())[:MOST_LINKS]]


def attach(span: Span) -> None:
    """Make a span the present one for the rest of the present task, and what it starts."""
    otel_context.attach(trace.set_span_in_context(span))


@contextmanager
def traced(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
    linked: Sequence[Link] = (),
    **attributes: Any,
) -> Iterator[Span]:
    """Run a block inside a span.

    Args:
        name: a few words, the same for every run; ids go into attributes.
        kind: the span's kind.
        parent: a context from `extract`; by default the present span.
        linked: from `links`.
        attributes: names of :class:`Attribute` in lower case: ``card_id="c1"``; None is left out.
    """
    if _State.provider is None:
        yield trace.INVALID_SPAN
        return
    span = _State.tracer.start_span(
        name, context=parent, kind=kind, links=linked, attributes=_named(attributes)
    )
    mark = otel_context.attach(trace.set_span_in_context(span, parent))
    try:
        yield span
    except BaseException as error:
        record_error(span, error)
        raise
    finally:
        otel_context.detach(mark)
        span.end()


def set_attributes(span: Span, **attributes: Any) -> None:
    """Add attributes to a span, by the names of :class:`Attribute` in lower case."""
    for name, value in _named(attributes).items():
        span.set_attribute(name, value)


def record_error(span: Span, error: BaseException) -> None:
    """Mark a span as failed; a bug's exception goes into it whole, an expected failure's reason only."""
    if not span.is_recording():
        return
    if isinstance(error, ServiceError):
        span.set_attribute(Attribute.REASON.value, error.reason.value)
        span.set_status(Status(StatusCode.ERROR, error.reason.value))
    elif isinstance(error, Exception):
        span.record_exception(error, attributes={"exception.message": logs.redact_text(str(error))})
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))
    else:
        span.set_attribute(Attribute.CANCELLED.value, value=True)
        span.set_status(Status(StatusCode.ERROR, "CANCELLED"))


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in attributes.items():
        if value is not None:
            plain = value if isinstance(value, str | bool | int | float | tuple | list) else str(value)
            named[Attribute[name.upper()].value] = plain
    return named


def _parse(traceparent: str | None) -> SpanContext | None:
    # W3C Trace Context: version "-" 32 hex "-" 16 hex "-" 2 hex.
    if not traceparent or len(traceparent) < _TRACEPARENT_LENGTH or traceparent[:2] == "ff":
        return None
    try:
        _version, trace_id, span_id, flags = traceparent.split("-")[:4]
        context = SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags[:2], 16))
        )
    except ValueError:
        return None
    return context if context.is_valid else None


def _exporters(settings: TelemetrySettings) -> Iterator[SpanExporter]:
    if not settings.enabled:
        return
    if settings.span_store_path is not None:
        store = SpanStore(
            settings.span_store_path,
            max_rows=settings.span_store_max_rows,
            max_age=settings.span_store_max_age,
        )
        yield StoreExporter(store)
    if settings.otlp_endpoint:
        # Its HTTP client costs a third of a second at start: only who exports pays.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        yield OTLPSpanExporter(endpoint=settings.otlp_endpoint.rstrip("/") + "/v1/traces")
