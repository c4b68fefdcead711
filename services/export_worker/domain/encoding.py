"""Turning rows into the bytes of an export."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One collection record as the report view shows it; ``reading`` is JSON text or None, times are aware."""

    observed_at: datetime
    observation_id: str
    card_id: str
    kind: str
    outcome: str
    reading: str | None
    error: str | None
    latency_ms: int
    stored_at: datetime


COLUMNS = (
    "observed_at",
    "observation_id",
    "card_id",
    "kind",
    "outcome",
    "reading",
    "error",
    "latency_ms",
    "stored_at",
)
"""Header of the CSV; new columns are added at the end only."""


def csv_header() -> bytes:
    """Return the first line of every CSV export."""
    return _lines([COLUMNS])


def csv_rows(rows: Sequence[RecordRow]) -> bytes:
    """Return the lines of a batch as RFC 4180 text in UTF-8; instants in RFC 3339 with microseconds and Z."""
    return _lines(
        [
            (
                _instant(row.observed_at),
                row.observation_id,
                row.card_id,
                row.kind,
                row.outcome,
                row.reading or "",
                _inert(row.error or ""),
                str(row.latency_ms),
                _instant(row.stored_at),
            )
            for row in rows
        ]
    )


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode("utf-8", errors="replace")


def _instant(value: datetime) -> str:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _inert(text: str) -> str:
    # A gateway's words must not become a formula when a person opens the file in a spreadsheet (CWE-1236).
    return "'" + text if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
