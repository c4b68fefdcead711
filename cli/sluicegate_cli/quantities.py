"""Amounts of data as they stand in files: decimal text and a unit, exactly as many bytes."""

from decimal import Decimal, InvalidOperation
from enum import StrEnum

_MAX_INT64 = 2**63 - 1


class Unit(StrEnum):
    """Units of a counter; the decimal ones count thousands."""

    B = "B"
    KB = "KB"
    MB = "MB"
    GB = "GB"
    KIB = "KiB"
    MIB = "MiB"
    GIB = "GiB"


_BYTES = {
    Unit.B: 1,
    Unit.KB: 10**3,
    Unit.MB: 10**6,
    Unit.GB: 10**9,
    Unit.KIB: 2**10,
    Unit.MIB: 2**20,
    Unit.GIB: 2**30,
}


def bytes_of(text: str, unit: Unit) -> int:
    """Return whole bytes, the rest cut off; the arithmetic is decimal, never binary floating point.

    Raises:
        ValueError: no number, negative, or more than int64 holds.
    """
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no number") from None
    if not amount.is_finite():
        raise ValueError(f"{text!r} is no number")
    if amount < 0:
        raise ValueError(f"{text} is negative; counters never are")
    if amount.adjusted() > 20 or (total := int(amount * _BYTES[unit])) > _MAX_INT64:  # noqa: PLR2004 - digits of int64
        raise ValueError(f"{text} {unit} is more than a counter can hold")
    return total
