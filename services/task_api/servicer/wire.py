"""Forms that the services of the gRPC edge share."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp

from servicekit import principal
from servicekit.errors import invalid_field


def timestamp(instant: datetime | None) -> Timestamp | None:
    """Return an instant as it goes over the wire."""
    if instant is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(instant)
    return stamp


def instant(message: Any, field: str) -> datetime | None:
    """Read an optional instant; raises ServiceError INVALID_FIELD."""
    if not message.HasField(field):
        return None
    try:
        value: datetime = getattr(message, field).ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise invalid_field(field, "is no instant of the years 1 to 9999") from None
    return value


def page_task(token: str) -> UUID | None:
    """Read the token of a page of tasks; raises ServiceError INVALID_FIELD."""
    try:
        return UUID(token) if token else None
    except ValueError:
        raise invalid_field("page_token", "is none that a page has returned") from None


def page_number(token: str) -> int | None:
    """Read the token of a page of numbered rows; raises ServiceError INVALID_FIELD."""
    if token and not (token.isascii() and token.isdigit() and len(token) <= 18):  # noqa: PLR2004 - fits bigint
        raise invalid_field("page_token", "is none that a page has returned")
    return int(token) if token else None


def tenant() -> str:
    """Return whose call this is."""
    return principal.current().tenant
