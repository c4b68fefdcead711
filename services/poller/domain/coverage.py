"""Coverage: cards that were asked for with success and have nothing applied, and which of them to ask again at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from poller.domain.model import ListedCard

_INTERVALS_OF_PATIENCE = 2


@dataclass(frozen=True, slots=True)
class Gaps:
    """Cards with nothing applied for two intervals, and those of them whose last message had its time."""

    found: list[str]
    overdue: list[str]


def find_gaps(
    cards: Sequence[ListedCard], published_ms: Sequence[int | None], *, interval: timedelta, now: datetime
) -> Gaps:
    """Compare what was handed on of each card, Unix milliseconds, with what was applied.

    What was handed on less than half an interval ago may still be on its way, so it is not overdue. Hastening a card
    counts as handing on, so it happens at most once in half an interval, however long nothing is applied.
    """
    gaps = Gaps([], [])
    for card, milliseconds in zip(cards, published_ms, strict=True):
        if card.applied_at is None or milliseconds is None:
            continue
        published_at = datetime.fromtimestamp(milliseconds / 1000, UTC)
        if published_at - card.applied_at <= interval * _INTERVALS_OF_PATIENCE:
            continue
        gaps.found.append(card.card_id)
        if now - published_at >= interval / 2:
            gaps.overdue.append(card.card_id)
    return gaps
