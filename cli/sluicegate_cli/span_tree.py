"""Order spans as a tree and draw them as a waterfall."""

from collections.abc import Iterator, Sequence
from typing import Any

from servicekit.span_store import StoredSpan

_WIDTH = 32
_NAME_WIDTH = 52
_NS_PER_MS = 1_000_000


def as_rows(spans: Sequence[StoredSpan]) -> list[dict[str, Any]]:
    """Return spans as plain values, in tree order, with their depth."""
    return [
        {
            "depth": depth,
            "trace_id": span.trace_id,
            "span_id": span.span_id,
            "parent_span_id": span.parent_span_id,
            "service": span.service,
            "name": span.name,
            "kind": span.kind,
            "start_ns": span.start_ns,
            "end_ns": span.end_ns,
            "status": span.status,
            "attributes": dict(span.attributes),
            "links": [{"trace_id": trace_id, "span_id": span_id} for trace_id, span_id in span.links],
        }
        for depth, span in tree(spans)
    ]


def waterfall(spans: Sequence[StoredSpan]) -> list[str]:
    """Return one line per span: when, how long, where, what."""
    first = min(span.start_ns for span in spans)
    whole = max(max(span.end_ns for span in spans) - first, 1)
    return [_line(depth, span, first, whole) for depth, span in tree(spans)]


def tree(spans: Sequence[StoredSpan]) -> Iterator[tuple[int, StoredSpan]]:
    """Yield depth and span: each trace's roots by start, children below their parents; links start a new root."""
    known = {(span.trace_id, span.span_id) for span in spans}
    children: dict[tuple[str, str], list[StoredSpan]] = {}
    roots: list[StoredSpan] = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        parent = (span.trace_id, span.parent_span_id or "")
        if parent in known:
            children.setdefault(parent, []).append(span)
        else:
            roots.append(span)
    waiting = [(0, root) for root in reversed(roots)]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        below = children.get((span.trace_id, span.span_id), [])
        waiting.extend((depth + 1, child) for child in reversed(below))


def _line(depth: int, span: StoredSpan, first: int, whole: int) -> str:
    begin = (span.start_ns - first) * _WIDTH // whole
    length = max(1, (span.end_ns - span.start_ns) * _WIDTH // whole)
    bar = " " * min(begin, _WIDTH - 1) + "#" * min(length, _WIDTH - min(begin, _WIDTH - 1))
    name = f"{'  ' * depth}{span.service}: {span.name}"[:_NAME_WIDTH]
    milliseconds = (span.end_ns - span.start_ns) / _NS_PER_MS
    links = f"  <- {len(span.links)} linked" if span.links else ""
    failed = "  ERROR" if span.status == "ERROR" else ""
    return f"{name:<{_NAME_WIDTH}} |{bar:<{_WIDTH}}| {milliseconds:9.2f} ms{links}{failed}"
