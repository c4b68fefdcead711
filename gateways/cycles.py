"""Where a usage cycle starts: a reset day in an account's zone."""

import calendar
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo


def cycle_start_day(at: datetime, reset_day: int, zone: ZoneInfo) -> date:
    """Return the local day on which the cycle that holds an instant began.

    A reset day past a month's end means that month's last day.
    """
    local = at.astimezone(zone).date()
    start = _reset_in_month(local.year, local.month, reset_day)
    if local >= start:
        return start
    previous = local.replace(day=1) - timedelta(days=1)
    return _reset_in_month(previous.year, previous.month, reset_day)


def cycle_start(at: datetime, reset_day: int, zone: ZoneInfo) -> datetime:
    """Return the instant, in UTC, at which the cycle that holds another instant began (local midnight)."""
    day = cycle_start_day(at, reset_day, zone)
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _reset_in_month(year: int, month: int, reset_day: int) -> date:
    return date(year, month, min(reset_day, calendar.monthrange(year, month)[1]))
