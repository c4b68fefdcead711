"""Observations as they stand in files: JSON lines, CSV, or two columns of a counter series."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from servicekit import bounds
from servicekit.errors import ServiceError
from sluicegate.ingest.v1 import ingest_pb2
from sluicegate_cli.files import Numbered, Report, csv_rows, is_clean
from sluicegate_cli.instants import parse_time
from sluicegate_cli.output import instant
from sluicegate_cli.quantities import Unit, bytes_of
from sluicegate_client.messages import ObservationMessage

CSV_COLUMNS = ("card_id", "observed_at", "kind", "value")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORT_FORMS = ("total_bytes", "delta_bytes", "status")
_MAX_LINE = 65_536

Observed = Numbered[ingest_pb2.Observation]


@dataclass(frozen=True, slots=True)
class Series:
    """How to read a plain counter series: which card it is of, which columns hold what.

    Attributes:
        zone: of times that have none; None refuses them.
        shift: added to every time.
    """

    card_id: str
    time_column: str
    value_column: str
    unit: Unit = Unit.B
    is_delta: bool = False
    zone: ZoneInfo | None = None
    shift: timedelta = timedelta(0)


def jsonl_observations(file: IO[str], report: Report) -> Iterator[Observed]:
    """Read one observation per line; what can't be used goes to the report, by line."""
    for line, text in enumerate(file, start=1):
        if text.strip():
            found = _usable(line, lambda text=text: _from_json(text), report)  # type: ignore[misc]
            if found is not None:
                yield found


def csv_observations(file: IO[str], path: Path, report: Report) -> Iterator[Observed]:
    """Read card_id, observed_at, kind, value and if wanted form, account_id, observation_id, raw."""
    for row in csv_rows(file, path, CSV_COLUMNS, report):
        found = _usable(row.line, lambda row=row: _from_row(row.row), report)  # type: ignore[misc]
        if found is not None:
            yield found


def series_observations(file: IO[str], path: Path, series: Series, report: Report) -> Iterator[Observed]:
    """Read a counter series of one card."""
    for row in csv_rows(file, path, (series.time_column, series.value_column), report):
        found = _usable(row.line, lambda row=row: _from_series(row.row, series), report)  # type: ignore[misc]
        if found is not None:
            yield found


def latest_time(file: IO[str], path: Path, series: Series) -> datetime | None:
    """Return the latest time of a series; rows without a usable one are left out."""
    latest: datetime | None = None
    for row in csv_rows(file, path, (series.time_column, series.value_column), Report()):
        try:
            at = parse_time(row.row[series.time_column], series.zone)
        except ValueError:
            continue
        latest = at if latest is None else max(latest, at)
    return latest


def derived_id(message: Mapping[str, Any], observed_at: datetime) -> UUID:
    """Return the UUIDv7 of an observation that came without one: the same content gives the same id."""
    text = json.dumps(message, sort_keys=True, separators=(",", ":"))
    noise = int.from_bytes(hashlib.sha256(text.encode()).digest()[:10])
    milliseconds = (observed_at - _EPOCH) // timedelta(milliseconds=1)
    high = milliseconds << 16 | 7 << 12 | noise >> 68
    return UUID(int=high << 64 | 0b10 << 62 | noise & ((1 << 62) - 1))


def _usable(line: int, read: Callable[[], ingest_pb2.Observation], report: Report) -> Observed | None:
    try:
        return Numbered(line, read())
    except ServiceError as error:
        report.refuse(
            line, "; ".join(f"{name} {what}" for name, what in error.metadata.items()) or error.message
        )
    except ValueError as error:
        report.refuse(line, str(error))
    return None


def _from_json(text: str) -> ingest_pb2.Observation:
    if len(text) > _MAX_LINE:
        raise ValueError(f"is longer than {_MAX_LINE} characters")
    if not is_clean(text):
        raise ValueError("holds bytes that are no UTF-8 text")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - a row's fault, like the others
    return _observation(
        card_id=value.get("card_id", ""),
        account_id=value.get("account_id") or "",
        kind=value.get("kind", ""),
        observed_at=_text_time(value.get("observed_at")),
        reading=_reading(value),
        observation_id=value.get("observation_id"),
        raw=value.get("raw") or "",
        latency_ms=value.get("latency_ms", 0),
    )


def _from_row(row: Mapping[str, str]) -> ingest_pb2.Observation:
    kind = row["kind"]
    if kind == "traffic":
        form = row.get("form") or "total"
        if form not in {"total", "delta"}:
            raise ValueError(f"form should be total or delta, not {form!r}")
        reading: dict[str, Any] = {f"{form}_bytes": _whole(row["value"])}
    else:
        reading = {"status": row["value"]}
    return _observation(
        card_id=row["card_id"],
        account_id=row.get("account_id", ""),
        kind=kind,
        observed_at=parse_time(row["observed_at"]),
        reading=reading,
        observation_id=row.get("observation_id") or None,
        raw=row.get("raw", ""),
    )


def _from_series(row: Mapping[str, str], series: Series) -> ingest_pb2.Observation:
    form = "delta_bytes" if series.is_delta else "total_bytes"
    return _observation(
        card_id=series.card_id,
        kind="traffic",
        observed_at=parse_time(row[series.time_column], series.zone) + series.shift,
        reading={form: bytes_of(row[series.value_column], series.unit)},
        raw=f"{row[series.value_column]} {series.unit}",
    )


def _observation(
    *,
    card_id: Any,
    kind: Any,
    observed_at: datetime,
    reading: Mapping[str, Any],
    account_id: Any = "",
    observation_id: Any = None,
    raw: Any = "",
    latency_ms: Any = 0,
) -> ingest_pb2.Observation:
    """Check everything as the broker's readers would, and make the request's form of it."""
    content = {
        "card_id": card_id,
        "kind": kind,
        "observed_at": observed_at.isoformat(),
        "reading": dict(reading),
    }
    message = ObservationMessage(
        observation_id=derived_id(content, observed_at) if observation_id is None else _uuid(observation_id),
        card_id=card_id,
        account_id=account_id,
        kind=kind,
        observed_at=observed_at,
        reading=reading,
        raw=raw,
        source="file",
        latency_ms=latency_ms,
    )
    found = ingest_pb2.Observation(
        observation_id=str(message.observation_id),
        card_id=message.card_id,
        account_id=message.account_id,
        observed_at=instant(message.observed_at),
        raw=message.raw,
        source=message.source,
        latency_ms=message.latency_ms,
        **_wire_reading(message),
    )
    bounds.check(found)
    return found


def _wire_reading(message: ObservationMessage) -> dict[str, Any]:
    if message.kind == "traffic":
        return {"traffic": ingest_pb2.TrafficReading(**message.reading)}  # type: ignore[arg-type]
    return {message.kind: ingest_pb2.StatusReading(status=str(message.reading["status"]))}


def _reading(value: Mapping[str, Any]) -> Mapping[str, Any]:
    if "reading" not in value:
        return {name: value[name] for name in _SHORT_FORMS if name in value}
    reading = value["reading"]
    if not isinstance(reading, dict):
        raise ValueError("reading should be an object")  # noqa: TRY004 - a row's fault, like the others
    return reading


def _text_time(value: Any) -> datetime:
    if not isinstance(value, str):
        raise ValueError("observed_at is missing; write it like 2026-01-31T09:30:00Z")  # noqa: TRY004
    return parse_time(value)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"value should be whole bytes, not {text!r}")
    return int(text)


def _uuid(value: Any) -> UUID:
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"observation_id {value!r} is no UUID") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
