"""Brings finished spans into the local span store; runs in the exporter's thread."""

import sqlite3
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from servicekit import logs
from servicekit.span_store import SpanStore, StoredSpan

_log = logs.get_logger(__name__)


class StoreExporter(SpanExporter):
    """Writes spans into a :class:`SpanStore`; a disk that fails costs spans, never the service."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write a batch; on failure it is dropped and said once."""
        try:
            self._store.write([stored(span) for span in spans])
        except (sqlite3.Error, OSError) as error:
            if not self._failing:
                _log.warning("spans can't be stored", path=str(self._store.path), problem=str(error))
            self._failing = True
            return SpanExportResult.FAILURE
        self._failing = False
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the store."""
        self._store.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: every export is written when it returns."""
        del timeout_millis
        return True


def stored(span: ReadableSpan) -> StoredSpan:
    """Return the form of a finished span that the store keeps; nothing secret passes."""
    context = span.get_span_context()
    return StoredSpan(
        trace_id=format(context.trace_id, "032x") if context else "",
        span_id=format(context.span_id, "016x") if context else "",
        parent_span_id=format(span.parent.span_id, "016x") if span.parent else None,
        name=span.name,
        kind=span.kind.name,
        service=str(span.resource.attributes.get("service.name", "")),
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        status=span.status.status_code.name,
        status_text=logs.redact_text(span.status.description or ""),
        attributes=logs.redact(dict(span.attributes or {})),
        events=[
            {
                "name": event.name,
                "at_ns": event.timestamp,
                "attributes": logs.redact(dict(event.attributes or {})),
            }
            for event in span.events
        ],
        links=[
            (format(link.context.trace_id, "032x"), format(link.context.span_id, "016x"))
            for link in span.links
        ],
    )
