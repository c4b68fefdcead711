"""Instants as they stand in files and on command lines."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

_LEAST_DIGITS = 9  # shorter numbers are compact dates, not seconds since 1970


def parse_time(text: str, zone: ZoneInfo | None = None) -> datetime:
    """Read an instant: ISO 8601 with a zone, or Unix seconds (also with a fraction) written as a number.

    Args:
        text: as found.
        zone: taken for times without a zone; without it such times are refused, never guessed.

    Raises:
        ValueError: says what is wrong and how it should look.
    """
    number = _number(text)
    if number is not None:
        return number
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time; write it like 2026-01-31T09:30:00Z") from None
    if instant.tzinfo is None:
        if zone is None:
            raise ValueError(f"{text!r} has no zone; write it like 2026-01-31T09:30:00Z or ...+08:00")
        instant = instant.replace(tzinfo=zone)
    try:
        return instant.astimezone(UTC)
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is outside the calendar") from None


def _number(text: str) -> datetime | None:
    whole, _, fraction = text.partition(".")
    if (
        not whole.isascii()
        or not whole.isdigit()
        or (fraction and not fraction.isdigit())
        or len(whole) < _LEAST_DIGITS
    ):
        return None
    try:
        at = datetime.fromtimestamp(int(whole), UTC)
    except (OverflowError, ValueError, OSError):
        raise ValueError(f"{text} is no time in Unix seconds; milliseconds are not read") from None
    return at.replace(microsecond=int((fraction + "000000")[:6]))
