"""A payload is checked before anything is read or written."""

from datetime import UTC, datetime
from typing import Any

import pytest

from export_worker.domain.request import parse_request
from servicekit.errors import Reason, ServiceError

GOOD: dict[str, Any] = {
    "export_id": "november-north",
    "account_id": "north",
    "from": "2026-11-01T00:00:00Z",
    "until": "2026-12-01T01:00:00+01:00",
}


def test_a_good_payload_is_read_in_utc() -> None:
    request = parse_request(GOOD)
    assert request.observed_from == datetime(2026, 11, 1, tzinfo=UTC)
    assert request.observed_until == datetime(2026, 12, 1, tzinfo=UTC)
    assert request.export_format == "csv"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("export_id", ""),
        ("export_id", "../../etc/passwd"),
        ("export_id", ".."),
        ("export_id", "a/b"),
        ("export_id", "x" * 65),
        ("export_id", None),
        ("account_id", 7),
        ("from", "2026-11-01"),
        ("from", "2026-11-01T00:00:00"),
        ("from", "yesterday"),
        ("from", None),
        ("from", "0001-01-01T00:00:00+14:00"),
        ("until", "2026-11-01T00:00:00Z"),
        ("until", "2028-11-01T00:00:00Z"),
        ("format", "xlsx"),
    ],
)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    with pytest.raises(ServiceError) as caught:
        parse_request({**GOOD, field: value})
    assert caught.value.reason is Reason.INVALID_FIELD
    assert field in caught.value.metadata
