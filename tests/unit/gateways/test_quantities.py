"""Numbers as platforms write them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.adapter import FailureKind, GatewayError
from gateways.quantities import (
    INT64_MAX,
    ByteUnit,
    checked_total,
    member,
    parse_json,
    to_bytes,
    to_bytes_with_unit,
)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0, ByteUnit.B, 0),
        (INT64_MAX, ByteUnit.B, INT64_MAX),
        ("0.002803", ByteUnit.MB, 2_803),
        ("29.166235", ByteUnit.MB, 29_166_235),
        (Decimal("435.787951"), ByteUnit.MB, 435_787_951),
        ("1", ByteUnit.KB, 1_000),
        ("1", ByteUnit.KIB, 1_024),
        ("0.5", ByteUnit.MIB, 524_288),
        ("0.0000005", ByteUnit.MB, 1),
        ("0.0000004", ByteUnit.MB, 0),
        (Decimal("3.019623424E+9"), ByteUnit.B, 3_019_623_424),
        (" 12 ", ByteUnit.B, 12),
    ],
)
def test_reads_whole_bytes(value: object, unit: ByteUnit, expected: int) -> None:
    assert to_bytes(value, unit) == expected


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -9_007_199_254_740_991,
        Decimal("-1.7976931348623157e+308"),
        Decimal("1e308"),
        Decimal("1e999999"),
        Decimal("NaN"),
        Decimal("Infinity"),
        2**63,
        pytest.param(10**5000, id="5000 digits"),
        True,
        False,
        None,
        1.5,
        Decimal("1.5"),
        "1.5",
        "",
        "-1",
        "+1",
        "1e3",
        "NaN",
        "Infinity",
        "1,5",
        "1 000",
        "0x10",
        "\uff11\uff12",
        "100MB",
        "9" * 20,
        [1],
        {"a": 1},
    ],
)
def test_refuses_what_is_no_byte_count(value: object) -> None:
    with pytest.raises(GatewayError) as refusal:
        to_bytes(value, ByteUnit.B)
    assert refusal.value.failure is FailureKind.MALFORMED
    assert len(str(refusal.value)) < 200


def test_refuses_what_overflows_only_in_bytes() -> None:
    assert to_bytes("9223372036854.775807", ByteUnit.MB) == INT64_MAX
    with pytest.raises(GatewayError):
        to_bytes("9223372036854.775808", ByteUnit.MB)


@given(st.integers(min_value=0, max_value=INT64_MAX))
def test_six_decimals_of_megabytes_lose_nothing(count: int) -> None:
    assert to_bytes(f"{count // 10**6}.{count % 10**6:06d}", ByteUnit.MB) == count


@given(st.integers(min_value=0, max_value=10**15), st.integers(min_value=0, max_value=10**15))
def test_conversion_is_monotone(one: int, other: int) -> None:
    low, high = sorted((one, other))
    low_bytes = to_bytes(Decimal(low) / 1000, ByteUnit.KIB)
    assert low_bytes <= to_bytes(Decimal(high) / 1000, ByteUnit.KIB)


def test_reads_a_unit_inside_the_text_by_the_platforms_own_table() -> None:
    units = {"KB": ByteUnit.KIB, "MB": ByteUnit.MIB}
    assert to_bytes_with_unit("100MB", units) == 104_857_600
    assert to_bytes_with_unit("1.5 KB", units) == 1_536


@pytest.mark.parametrize("text", ["100", "100GB", "MB", "1.2.3MB", "-1MB", "", None, 100])
def test_refuses_a_text_without_a_known_unit(text: object) -> None:
    with pytest.raises(GatewayError):
        to_bytes_with_unit(text, {"MB": ByteUnit.MIB})


def test_json_fractions_never_become_floats() -> None:
    parsed = parse_json(b'{"a": 0.1, "b": 1e2, "c": 12}')
    assert parsed == {"a": Decimal("0.1"), "b": Decimal("1E+2"), "c": 12}
    assert isinstance(parsed["b"], Decimal)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"{", b"NaN", b'{"a": Infinity}', b"\xff\xfe\x00", b"[" * 100_000, b"9" * 10_000],
)
def test_refuses_what_is_no_json(body: bytes) -> None:
    with pytest.raises(GatewayError) as refusal:
        parse_json(body)
    assert refusal.value.failure is FailureKind.MALFORMED


def test_names_the_missing_member() -> None:
    assert member({"a": {"b": 1}}, "a", "b") == 1
    with pytest.raises(GatewayError, match=r"no a\.c"):
        member({"a": {"b": 1}}, "a", "c")
    with pytest.raises(GatewayError, match=r"no a\.b"):
        member({"a": [1]}, "a", "b")


def test_a_sum_must_fit_too() -> None:
    assert checked_total(INT64_MAX) == INT64_MAX
    with pytest.raises(GatewayError):
        checked_total(INT64_MAX + 1)
