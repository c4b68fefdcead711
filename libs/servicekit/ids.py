"""Identifiers: time-ordered UUIDs (RFC 9562, version 7) and random tokens."""

import os
import secrets
from datetime import UTC, datetime, timedelta
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_VERSION = 7
_MAX_MILLISECONDS = (1 << 48) - 1


def uuid7(at: datetime) -> UUID:
    """Make a version 7 UUID whose milliseconds are those of ``at``; the other 74 bits are random.

    Raises:
        ValueError: ``at`` is naive, or before 1970.
    """
    if at.tzinfo is None:
        raise ValueError("a UUIDv7 needs an aware instant")
    milliseconds = (at - _EPOCH) // _MILLISECOND
    if not 0 <= milliseconds <= _MAX_MILLISECONDS:
        raise ValueError("a UUIDv7 needs an instant from 1970 on")
    noise = int.from_bytes(os.urandom(10))
    high = milliseconds << 16 | _VERSION << 12 | noise >> 68
    low = 0b10 << 62 | noise & ((1 << 62) - 1)
    return UUID(int=high << 64 | low)


def uuid7_time(value: UUID) -> datetime:
    """Return the instant inside a version 7 UUID: aware, UTC, to the millisecond.

    Raises:
        ValueError: it is a UUID of another version, or its instant is past the year 9999.
    """
    if value.version != _VERSION:
        raise ValueError("not a version 7 UUID")
    try:
        return _EPOCH + (value.int >> 80) * _MILLISECOND
    except OverflowError:
        raise ValueError("the UUID's instant is out of range") from None


def new_token() -> str:
    """Return a fresh unguessable token: 32 hexadecimal digits, 128 bits."""
    return secrets.token_hex(16)
