"""Where a cycle starts."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from gateways.cycles import cycle_start, cycle_start_day


@pytest.mark.parametrize(
    ("at", "reset_day", "zone", "expected"),
    [
        ("2026-03-15T00:00:00Z", 15, "UTC", date(2026, 3, 15)),
        ("2026-03-14T23:59:59.999999Z", 15, "UTC", date(2026, 2, 15)),
        ("2026-03-14T16:00:00Z", 15, "Asia/Shanghai", date(2026, 3, 15)),
        ("2026-03-31T03:59:59Z", 31, "America/New_York", date(2026, 2, 28)),
        ("2026-03-31T04:00:00Z", 31, "America/New_York", date(2026, 3, 31)),
        ("2024-02-29T12:00:00Z", 30, "UTC", date(2024, 2, 29)),
        ("2026-01-01T00:00:00Z", 29, "UTC", date(2025, 12, 29)),
        ("2026-01-01T00:00:00Z", 1, "UTC", date(2026, 1, 1)),
    ],
)
def test_clamps_to_the_month_in_the_accounts_zone(at: str, reset_day: int, zone: str, expected: date) -> None:
    assert cycle_start_day(datetime.fromisoformat(at), reset_day, ZoneInfo(zone)) == expected


def test_starts_at_local_midnight_on_the_day_of_a_clock_change() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start = cycle_start(datetime(2026, 3, 29, 12, tzinfo=UTC), 29, berlin)
    assert start == datetime(2026, 3, 28, 23, tzinfo=UTC)
