"""Which cards count as lost, and which of them are asked again."""

from datetime import UTC, datetime, timedelta

import pytest

from poller.domain.coverage import find_gaps
from poller.domain.model import ListedCard

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("applied_hours_ago", "published_minutes_ago", "found", "overdue"),
    [
        (3, 40, True, True),
        (3, 30, True, True),
        (3, 29, True, False),  # may still be on its way, or was just hastened
        (2.5, 40, False, False),  # not yet two intervals apart
        (0, 40, False, False),
        (None, 40, False, False),  # nothing to compare with: it waits for its turn
        (3, None, False, False),  # nothing was ever handed on
    ],
)
def test_a_card_is_lost_after_two_intervals_and_overdue_after_half_of_one(
    applied_hours_ago: float | None, published_minutes_ago: int | None, *, found: bool, overdue: bool
) -> None:
    applied = None if applied_hours_ago is None else NOW - HOUR * applied_hours_ago
    published = None
    if published_minutes_ago is not None:
        published = int((NOW - timedelta(minutes=published_minutes_ago)).timestamp() * 1000)
    gaps = find_gaps([ListedCard("c", applied)], [published], interval=HOUR, now=NOW)
    assert (gaps.found == ["c"], gaps.overdue == ["c"]) == (found, overdue)
