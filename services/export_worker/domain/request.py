"""What an export is asked to hold, and the check of a task's payload."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from servicekit.errors import ServiceError, invalid_field

MAX_RANGE = timedelta(days=366)
"""Longest range of one export; a longer one is asked for in parts."""

FORMATS = ("csv",)
"""Formats that can be written."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The collection records of one account with ``observed_from <= observed_at < observed_until``."""

    export_id: str
    account_id: str
    observed_from: datetime
    observed_until: datetime
    export_format: str = "csv"


def parse_request(payload: Mapping[str, Any]) -> ExportRequest:
    """Check a payload of version 1: ``export_id``, ``account_id``, ``from``, ``until`` and, if wanted, ``format``.

    Raises:
        ServiceError: INVALID_FIELD, naming the field; trying again can't help.
    """
    request = ExportRequest(
        export_id=_name(payload, "export_id"),
        account_id=_name(payload, "account_id"),
        observed_from=_instant(payload, "from"),
        observed_until=_instant(payload, "until"),
        export_format=str(payload.get("format", "csv")),
    )
    if request.export_format not in FORMATS:
        raise invalid_field("format", f"should be one of {', '.join(FORMATS)}")
    if request.observed_from >= request.observed_until:
        raise invalid_field("until", "should be later than from")
    if request.observed_until - request.observed_from > MAX_RANGE:
        raise invalid_field("until", f"should be at most {MAX_RANGE.days} days after from")
    return request


def _name(payload: Mapping[str, Any], field: str) -> str:
    value = payload.get(field)
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value.strip(".") == "":
        raise invalid_field(field, "should be 1 to 64 letters, digits, or any of _ . -")
    return value


def _instant(payload: Mapping[str, Any], field: str) -> datetime:
    try:
        instant = datetime.fromisoformat(str(payload.get(field)))
    except ValueError:
        raise _no_instant(field) from None
    if instant.tzinfo is None:
        raise _no_instant(field)
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise _no_instant(field) from None


def _no_instant(field: str) -> ServiceError:
    return invalid_field(field, "should be an instant with a zone, such as 2026-11-01T00:00:00Z")
