"""Usage cycles: from one reset day to the next, in the account's zone."""

import calendar
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Cycle:
    """One usage cycle: its first local day and the instants between which it lies (end exclusive)."""

    start: date
    starts_at: datetime
    ends_at: datetime


def local_day(at: datetime, time_zone: str) -> date:
    """Return the day of an instant in an IANA zone."""
    return at.astimezone(ZoneInfo(time_zone)).date()


def cycle_of(at: datetime, *, reset_day: int, time_zone: str) -> Cycle:
    """Return the cycle that an instant belongs to.

    Args:
        at: aware.
        reset_day: 1-31; past a month's end it means that month's last day.
        time_zone: IANA name; days are counted there, and a day that a clock change shortens is still one day.
    """
    return _cycle_of_day(local_day(at, time_zone), reset_day, time_zone)


def reset_day_in_month(year: int, month: int, reset_day: int) -> date:
    """Return the day of a month on which a cycle starts."""
    return date(year, month, min(reset_day, calendar.monthrange(year, month)[1]))


@lru_cache(maxsize=4096)
def _cycle_of_day(day: date, reset_day: int, time_zone: str) -> Cycle:
    start = reset_day_in_month(day.year, day.month, reset_day)
    if day < start:
        before = day.replace(day=1) - timedelta(days=1)
        start = reset_day_in_month(before.year, before.month, reset_day)
    following = start.replace(day=28) + timedelta(days=4)
    end = reset_day_in_month(following.year, following.month, reset_day)
    return Cycle(start, _midnight(start, time_zone), _midnight(end, time_zone))


def _midnight(day: date, time_zone: str) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(time_zone)).astimezone(UTC)
