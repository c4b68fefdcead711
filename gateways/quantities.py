"""Numbers as platforms write them, turned into whole bytes or refused.

Nothing passes through a binary float: decimal text is read with Decimal, and JSON is parsed so that its
fractions arrive as Decimal. Each adapter names its unit, because "MB" is 10^6 on one
platform and 2^20 on another.
"""

import json
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from enum import IntEnum
from typing import Any, NoReturn

from gateways.adapter import FailureKind, GatewayError

INT64_MAX = 2**63 - 1
_LARGEST_EXPONENT = 30
_DECIMAL_TEXT = re.compile(r"[0-9]{1,19}(\.[0-9]{1,18})?", re.ASCII)
_TEXT_WITH_UNIT = re.compile(r"([0-9.]{1,38}) ?([A-Za-z]{1,5})", re.ASCII)


class ByteUnit(IntEnum):
    """Bytes in one unit: the K, M and G of ten, and the Ki, Mi and Gi of two (IEC 80000-13)."""

    B = 1
    KB = 10**3
    MB = 10**6
    GB = 10**9
    KIB = 2**10
    MIB = 2**20
    GIB = 2**30


def malformed(message: str) -> GatewayError:
    """Build the failure of an answer that can't be read."""
    return GatewayError(FailureKind.MALFORMED, message)


def parse_json(body: bytes) -> Any:
    """Parse an answer with fractions as Decimal. Raises GatewayError when it is no JSON."""
    try:
        return json.loads(body, parse_float=Decimal, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise malformed(f"answer is no JSON: {str(error)[:120]}") from None


def to_bytes(value: object, unit: ByteUnit) -> int:
    """Turn a number or a plain decimal text into whole bytes, half a byte rounded up.

    Raises GatewayError for anything else: booleans, signs, exponents in text, NaN, more than 2^63 - 1 bytes.
    """
    amount = _to_decimal(value)
    if not amount.is_finite() or amount.adjusted() > _LARGEST_EXPONENT:
        raise malformed(f"not a byte count: {_shown(value)}")
    if amount < 0:
        raise malformed(f"negative byte count: {_shown(value)}")
    if unit is ByteUnit.B and amount != amount.to_integral_value():
        raise malformed(f"a fraction of a byte: {_shown(value)}")
    return checked_total(int((amount * int(unit)).to_integral_value(rounding=ROUND_HALF_UP)))


def to_bytes_with_unit(text: object, units: Mapping[str, ByteUnit]) -> int:
    """Turn a text like "100MB" into whole bytes by the platform's own table of units. Raises GatewayError."""
    found = _TEXT_WITH_UNIT.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or found[2] not in units:
        raise malformed(f"not a quantity with a known unit: {_shown(text)}")
    return to_bytes(found[1], units[found[2]])


def checked_total(total: int) -> int:
    """Return a sum of bytes that still fits a signed 64-bit column. Raises GatewayError."""
    if not 0 <= total <= INT64_MAX:
        raise malformed(f"byte count outside 0..2^63-1: {_shown(total)}")
    return total


def member(value: object, *names: str) -> Any:
    """Walk down named members of JSON objects. Raises GatewayError naming the first that is missing."""
    for depth, name in enumerate(names):
        if not isinstance(value, dict) or name not in value:
            raise malformed(f"answer has no {'.'.join(names[: depth + 1])}")
        value = value[name]
    return value


def word(value: object, *names: str) -> str:
    """Walk down to a member that must be a text. Raises GatewayError."""
    found = member(value, *names)
    if not isinstance(found, str):
        raise malformed(f"{'.'.join(names)} is no text")
    return found


def _to_decimal(value: object) -> Decimal:
    if isinstance(value, bool):
        raise malformed(f"not a byte count: {value}")
    if isinstance(value, int):
        return Decimal(value) if abs(value) <= INT64_MAX else Decimal("Infinity")
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str) and _DECIMAL_TEXT.fullmatch(value.strip()):
        return Decimal(value.strip())
    raise malformed(f"not a byte count: {_shown(value)}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**40:
        return "an integer of more than 40 digits"
    return repr(value)[:60]
