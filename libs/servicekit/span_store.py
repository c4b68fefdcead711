"""A bounded local store of spans in SQLite, for machines without a tracing backend.

Several processes write one file and any process reads it. The oldest spans go first when there are too many or they
are too old; the file does not shrink, its pages are used again.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

INDEXED_ATTRIBUTES = frozenset({"sluicegate.observation_id", "sluicegate.card_id", "sluicegate.task_id"})
"""Only these can be searched for: the index stays small."""

_SQL = {
    path.name.removesuffix(".sql"): path.read_text(encoding="utf-8")
    for path in files("servicekit").joinpath("sql").iterdir()
    if path.name.endswith(".sql")
}
_BUSY_SECONDS = 5.0
_TRIM_EVERY_SECONDS = 5.0
_TRIM_AT_ONCE = 20_000
_MOST_TRACES = 200
_FIRST_JSON_COLUMN = 10


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """One finished span.

    Attributes:
        links: trace and span id, in hexadecimal, of every span that this one points to.
        start_ns: nanoseconds since 1970, UTC; ``end_ns`` likewise.
        status: ``UNSET``, ``OK`` or ``ERROR``.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    service: str
    start_ns: int
    end_ns: int
    status: str
    status_text: str
    attributes: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    links: Sequence[tuple[str, str]]


class SpanStore:
    """Writes and reads one store; safe in several threads and processes. Every method may block on the disk.

    Args:
        path: the file; made when it is missing, with its folder.
        max_rows: how many spans are kept.
        max_age: how long a span is kept.
    """

    def __init__(
        self, path: Path | str, *, max_rows: int = 500_000, max_age: timedelta = timedelta(days=7)
    ) -> None:
        self.path = Path(path)
        self._max_rows = max_rows
        self._max_age_ns = int(max_age.total_seconds() * 1e9)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._trimmed_at = 0.0

    def write(self, spans: Iterable[StoredSpan]) -> None:
        """Add finished spans, and now and then remove the oldest; raises sqlite3.Error."""
        with self._lock, self._transaction() as connection:
            _insert(connection, list(spans))
            if time.monotonic() - self._trimmed_at >= _TRIM_EVERY_SECONDS:
                self._trimmed_at = time.monotonic()
                self._trim(connection)

    def trim(self) -> int:
        """Remove what is too old or too much, a bounded number of rows; return how many spans went."""
        with self._lock, self._transaction() as connection:
            return self._trim(connection)

    def spans_by_attribute(self, name: str, value: str, *, limit: int = 1000) -> list[StoredSpan]:
        """Return the newest spans that carry an indexed attribute of that value, oldest first."""
        with self._lock:
            rows = self._open().execute(_SQL["spans_by_attribute"], (name, value, limit)).fetchall()
        return [_span(row) for row in reversed(rows)]

    def traces(self, trace_ids: Iterable[str]) -> list[StoredSpan]:
        """Return all spans of these traces, in start order."""
        wanted = json.dumps(sorted(set(trace_ids)))
        with self._lock:
            rows = self._open().execute(_SQL["spans_of_traces"], (wanted,)).fetchall()
        return [_span(row) for row in rows]

    def whole_traces(self, name: str, value: str) -> list[StoredSpan]:
        """Return every span that belongs to what has this attribute, in start order.

        These are all spans of the traces that carry it, of the traces they link to, and of the traces that link to
        them (a batch links the context of each message). Links are followed one step, so that one observation does
        not pull in all others of its batch.
        """
        own = {span.trace_id for span in self.spans_by_attribute(name, value)}
        wanted = json.dumps(sorted(own))
        with self._lock:
            connection = self._open()
            linked = connection.execute(_SQL["linked_traces"], (wanted, _MOST_TRACES)).fetchall()
            linking = connection.execute(_SQL["linking_traces"], (wanted, _MOST_TRACES)).fetchall()
        return self.traces(own | {row[0] for row in (*linked, *linking)})

    def close(self) -> None:
        """Close the file; it opens again when it is next used."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.executescript(_SQL["schema"])
            self._connection = connection
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _trim(self, connection: sqlite3.Connection) -> int:
        oldest_ns = time.time_ns() - self._max_age_ns
        keep_from = connection.execute(
            _SQL["oldest_to_keep"],
            {"max_rows": self._max_rows, "oldest_ns": oldest_ns, "most": _TRIM_AT_ONCE},
        ).fetchone()[0]
        if keep_from is None:
            return 0
        for statement in (_SQL["delete_attributes"], _SQL["delete_links"]):
            connection.execute(statement, (keep_from,))
        return connection.execute(_SQL["delete_spans"], (keep_from,)).rowcount


def _insert(connection: sqlite3.Connection, spans: Sequence[StoredSpan]) -> None:
    # Row ids are given here, inside the writing transaction, so that each table is filled by one statement.
    (last,) = connection.execute(_SQL["last_row"]).fetchone()
    rows = list(enumerate(spans, last + 1))
    connection.executemany(_SQL["insert_span"], [_row(number, span) for number, span in rows])
    attributes = [(number, name, value) for number, span in rows for name, value in _indexed(span)]
    if attributes:
        connection.executemany(_SQL["insert_attribute"], attributes)
    links = [(number, trace_id) for number, span in rows for trace_id, _ in span.links]
    if links:
        connection.executemany(_SQL["insert_link"], links)


def _indexed(span: StoredSpan) -> Iterator[tuple[str, str]]:
    for name in INDEXED_ATTRIBUTES & span.attributes.keys():
        values = span.attributes[name]
        for value in values if isinstance(values, list | tuple) else (values,):
            yield name, str(value)


def _row(number: int, span: StoredSpan) -> tuple[Any, ...]:
    return (
        number,
        span.trace_id,
        span.span_id,
        span.parent_span_id,
        span.name,
        span.kind,
        span.service,
        span.start_ns,
        span.end_ns,
        span.status,
        span.status_text,
        json.dumps(dict(span.attributes), default=str),
        json.dumps(list(span.events), default=str) if span.events else "[]",
        json.dumps(list(span.links)) if span.links else "[]",
    )


def _span(row: Sequence[Any]) -> StoredSpan:
    decoded = [json.loads(text) for text in row[_FIRST_JSON_COLUMN:]]
    values = dict(zip(StoredSpan.__slots__, (*row[:_FIRST_JSON_COLUMN], *decoded), strict=True))
    values["links"] = [(trace_id, span_id) for trace_id, span_id in values["links"]]
    return StoredSpan(**values)
