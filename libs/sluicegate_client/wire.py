"""Checks and text forms shared by the messages on the broker: what may be on the wire, and nothing else."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from servicekit.errors import Reason, ServiceError, invalid_field

MAX_BODY_BYTES = 65_536
MAX_RAW_BYTES = 4_096
MAX_INT64 = 2**63 - 1

Reading = Mapping[str, int | str]
"""A normalised reading: ``total_bytes`` or ``delta_bytes`` for traffic, ``status`` for the other kinds."""

_SUPPORTED_MAJOR = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
_TRAFFIC_FORMS = ("total_bytes", "delta_bytes")
_STATUSES: Mapping[str, frozenset[str]] = {
    "network": frozenset({"online", "offline", "suspended", "unknown"}),
    "realname": frozenset({"verified", "unverified", "pending", "unknown"}),
}


class NewerSchemaError(ServiceError):
    """The message speaks a later major version: keep it until a reader for it runs, never guess."""

    def __init__(self, schema_version: str) -> None:
        super().__init__(
            Reason.INVALID_FIELD,
            f"schema_version {schema_version} waits for a reader newer than {_SUPPORTED_MAJOR}.x",
            metadata={"schema_version": "newer major version"},
        )
        self.schema_version = schema_version

    def __reduce__(self) -> tuple[object, ...]:
        return (NewerSchemaError, (self.schema_version,))


def parse_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object and its schema version.

    Raises:
        ServiceError: INVALID_FIELD when it is too large, no UTF-8, no object, or no JSON (NaN is none).
        NewerSchemaError: its major version is later than this reader's.
    """
    if len(body) > MAX_BODY_BYTES:
        raise invalid_field("body", f"is {len(body)} bytes long, at most {MAX_BODY_BYTES} are allowed")
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise invalid_field("body", "is not UTF-8") from None
    except RecursionError:
        raise invalid_field("body", "is nested too deeply") from None
    except ValueError:
        raise invalid_field("body", "is not JSON") from None
    if not isinstance(value, dict):
        raise invalid_field("body", "is not a JSON object")
    _check_version(value.get("schema_version"))
    return value


def dump_object(value: Mapping[str, Any]) -> bytes:
    """Write a JSON object as compact UTF-8.

    Raises:
        ServiceError: INVALID_FIELD when it would be too large for a reader, or holds what JSON can't.
    """
    try:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except (TypeError, ValueError):
        raise invalid_field("body", "holds what JSON can't") from None
    if len(body) > MAX_BODY_BYTES:
        raise invalid_field("body", f"is {len(body)} bytes long, at most {MAX_BODY_BYTES} are allowed")
    return body


def parse_instant(name: str, value: Any) -> datetime:
    """Read an RFC 3339 instant that has microseconds and ends in Z."""
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        raise invalid_field(name, "should be like 2026-01-31T09:30:00.000000Z")
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise invalid_field(name, "is no instant of the calendar") from None


def format_instant(value: datetime) -> str:
    """Write an aware instant as RFC 3339 in UTC with microseconds and Z."""
    text = value.astimezone(UTC).isoformat(timespec="microseconds")
    return text.removesuffix("+00:00") + "Z"


def parse_uuid(name: str, value: Any) -> UUID:
    """Read a UUID in its canonical lower-case form."""
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise invalid_field(name, "should be a UUID in lower case")
    return UUID(value)


def check_observation_id(observation_id: UUID, observed_at: datetime) -> None:
    """Check that an id is a version 7 UUID whose milliseconds are those of the instant."""
    if not isinstance(observation_id, UUID) or not _UUID7.fullmatch(str(observation_id)):
        raise invalid_field("observation_id", "should be a version 7 UUID")
    check_instant("observed_at", observed_at)
    if observation_id.int >> 80 != (observed_at - _EPOCH) // _MILLISECOND:
        raise invalid_field("observation_id", "its milliseconds should be those of observed_at")


def check_instant(name: str, value: Any) -> None:
    """Check that a value is an aware instant."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise invalid_field(name, "should be an instant with a zone")


def check_integer(name: str, value: Any) -> None:
    """Check that a value is an integer from 0 to the end of int64; True, 1.0 and "1" are none."""
    if type(value) is not int:
        raise invalid_field(name, "should be an integer")
    if not 0 <= value <= MAX_INT64:
        raise invalid_field(name, f"should be from 0 to {MAX_INT64}")


def check_text(name: str, value: Any, *, max_bytes: int, required: bool = False) -> None:
    """Check that a value is text of at most so many bytes of UTF-8."""
    if not isinstance(value, str):
        raise invalid_field(name, "should be text")
    if required and not value:
        raise invalid_field(name, "should not be empty")
    if len(value) > max_bytes or (len(value) * 4 > max_bytes and len(value.encode("utf-8")) > max_bytes):
        raise invalid_field(name, f"should be at most {max_bytes} bytes long")


def check_identifier(name: str, value: Any, *, max_bytes: int, required: bool = False) -> None:
    """Check an id like text, and refuse what would have to be stripped: the rest could be another one's id."""
    if isinstance(value, str) and strip_text(value)[1]:
        raise invalid_field(name, "should hold no NUL and no lone surrogate")
    check_text(name, value, max_bytes=max_bytes, required=required)


def check_choice(name: str, value: Any, choices: frozenset[str]) -> None:
    """Check that a value is one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise invalid_field(name, f"should be one of {', '.join(sorted(choices))}")


def check_reading(kind: str, reading: Any) -> Reading:
    """Check a reading of a kind and return only the member that is known."""
    if not isinstance(reading, Mapping):
        raise invalid_field("reading", "should be an object")
    if kind != "traffic":
        check_choice("reading.status", reading.get("status"), _STATUSES[kind])
        return {"status": reading["status"]}
    forms = [form for form in _TRAFFIC_FORMS if form in reading]
    if len(forms) != 1:
        raise invalid_field("reading", "should hold either total_bytes or delta_bytes")
    check_integer(f"reading.{forms[0]}", reading[forms[0]])
    return {forms[0]: reading[forms[0]]}


def known_traceparent(value: Any) -> str:
    """Return a W3C trace context, or nothing when it is malformed: tracing never costs a message."""
    return value if isinstance(value, str) and _TRACEPARENT.fullmatch(value) else ""


def strip_text(value: str) -> tuple[str, int]:
    """Remove what PostgreSQL can't store, NUL and lone surrogates, and count what was removed."""
    if value.isascii() and "\x00" not in value:
        return value, 0
    return _UNSTORABLE.subn("", value)


def cut_text(value: str, max_bytes: int) -> str:
    """Cut text to at most so many bytes of UTF-8, on a character border."""
    if len(value) * 4 <= max_bytes:
        return value
    encoded = value.encode("utf-8", errors="ignore")
    return encoded[:max_bytes].decode("utf-8", errors="ignore")


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _check_version(value: Any) -> None:
    match = _VERSION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise invalid_field("schema_version", 'should be like "1.0"')
    if int(match[1]) > _SUPPORTED_MAJOR:
        raise NewerSchemaError(match[0])
    if int(match[1]) < _SUPPORTED_MAJOR:
        raise invalid_field("schema_version", "is no longer read")
