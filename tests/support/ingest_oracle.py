"""A naive ingest: one observation after the other, in dictionaries, written from the rules and not from the code.

It shares nothing with ingest_service but the shape of its input, and exists to disagree with it.
"""

import calendar
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

WINDOW_HOURS = 6
Key = tuple[str, date]


@dataclass
class Counter:
    """One card's counter in one cycle, kept as the list of its epochs."""

    epochs: list[dict[str, Any]] = field(default_factory=list)  # {"since": instant, "top": bytes}
    carried: int = 0
    deltas: int = 0
    given: int = 0
    latest: datetime | None = None
    latest_raw: int = 0
    waiting: tuple[int, datetime] | None = None
    reset_near_start: bool = False
    reset_near_end: bool = False

    def total(self) -> int:
        return sum(epoch["top"] for epoch in self.epochs) + self.deltas - self.carried


@dataclass
class CardBook:
    account: str
    reset_day: int
    zone: str
    status: dict[str, tuple[str, datetime, UUID]] = field(default_factory=dict)
    counters: dict[date, Counter] = field(default_factory=dict)
    applied: int = 0
    observed_at: datetime | None = None
    current: date | None = None
    current_used: int = 0


class Oracle:
    """Applies observations one by one."""

    def __init__(self, cards: dict[str, tuple[str, int, str]]) -> None:
        self.cards = {card: CardBook(*facts) for card, facts in cards.items()}
        self.seen: dict[UUID, str] = {}
        self.increments: dict[UUID, int] = {}
        self.days: dict[Key, tuple[int, int]] = {}
        self.events: list[tuple[str, UUID]] = []
        self.notes: list[tuple[str, UUID]] = []

    def apply(self, item: Any, now: datetime) -> str:
        book = self.cards.get(item.card_id)
        if item.observation_id in self.seen:
            return "duplicate"
        if item.observed_at < now - timedelta(days=8):
            return "too_old"
        if item.observed_at > now + timedelta(days=1):
            return "quarantined"
        if book is None:
            return "not_found"
        if item.kind == "traffic":
            outcome, gained = "applied", self._traffic(book, item)
        else:
            outcome, gained = self._status(book, item), 0
        self.seen[item.observation_id] = outcome
        self.increments[item.observation_id] = gained
        if outcome == "applied":
            book.applied += 1
            book.observed_at = max(filter(None, (book.observed_at, item.observed_at)))
        return outcome

    def _status(self, book: CardBook, item: Any) -> str:
        before = book.status.get(item.kind)
        if before is not None and (item.observed_at, item.observation_id) <= before[1:]:
            return "stale"
        if before is None or before[0] != item.status:
            self.events.append((f"{item.kind}.changed", item.observation_id))
            self.notes.append((f"{item.kind}.changed", item.observation_id))
        book.status[item.kind] = (item.status, item.observed_at, item.observation_id)
        return "applied"

    def _traffic(self, book: CardBook, item: Any) -> int:
        start = cycle_start(item.observed_at, book.reset_day, book.zone)
        closed = book.current is not None and start < book.current
        counter = book.counters.setdefault(start, Counter())
        if item.delta_bytes is not None:
            shown = self._delta(counter, item)
        else:
            shown = self._reading(book, counter, start, item)
        gained = max(0, counter.total() - counter.given)
        counter.given += gained
        day = item.observed_at.astimezone(ZoneInfo(book.zone)).date()
        top, added = self.days.get((item.card_id, day), (0, 0))
        self.days[item.card_id, day] = (max(top, shown), added + gained)
        if closed and gained:
            self.events.append(("usage.corrected", item.observation_id))
            self.notes.append(("usage.corrected", item.observation_id))
        if not closed:
            book.current, book.current_used = start, counter.given
        return gained

    def _delta(self, counter: Counter, item: Any) -> int:
        counter.deltas += item.delta_bytes
        if counter.latest is not None and item.observed_at < counter.latest:
            return 0
        counter.latest = item.observed_at
        return max(0, counter.total())

    def _reading(self, book: CardBook, counter: Counter, start: date, item: Any) -> int:
        raw, at = item.total_bytes, item.observed_at
        if not counter.epochs:
            self._first(book, counter, start, raw, at)
        elif counter.latest is not None and at <= counter.latest:
            return self._late(counter, raw, at)
        elif raw >= counter.epochs[-1]["top"]:
            counter.epochs[-1]["top"] = raw
            counter.waiting = None
        else:
            self._drop(book, counter, start, item)
        counter.latest, counter.latest_raw = at, raw
        return max(0, counter.total())

    def _first(self, book: CardBook, counter: Counter, start: date, raw: int, at: datetime) -> None:
        previous_start = cycle_start(
            midnight(start, book.zone) - timedelta(seconds=1), book.reset_day, book.zone
        )
        previous = book.counters.get(previous_start)
        if previous is not None and previous.epochs:
            top = previous.epochs[-1]["top"]
            near = at < midnight(start, book.zone) + timedelta(hours=WINDOW_HOURS)
            if near and top > 0 and raw >= top:
                counter.carried = top
                counter.reset_near_start = previous.reset_near_end
            else:
                counter.reset_near_start = True
        counter.epochs.append({"since": at, "top": raw})

    def _late(self, counter: Counter, raw: int, at: datetime) -> int:
        index = len(counter.epochs) - 1
        while index > 0 and at < counter.epochs[index]["since"]:
            index -= 1
        if index < len(counter.epochs) - 2:
            return 0
        if index == 0 and len(counter.epochs) > 2 and at < counter.epochs[0]["since"]:
            return 0
        epoch = counter.epochs[index]
        epoch["top"] = max(epoch["top"], raw)
        rest = sum(other["top"] for other in counter.epochs[:index])
        return max(0, rest + counter.deltas - counter.carried + raw)

    def _drop(self, book: CardBook, counter: Counter, start: date, item: Any) -> None:
        raw, at = item.total_bytes, item.observed_at
        window = timedelta(hours=WINDOW_HOURS)
        end = midnight(next_start(start, book.reset_day), book.zone)
        near_start = at < midnight(start, book.zone) + window and not counter.reset_near_start
        near_end = at >= end - window and not counter.reset_near_end
        if near_start or near_end:
            counter.reset_near_start |= near_start
            counter.reset_near_end |= near_end
            self._new_epoch(counter, raw, at, item)
        elif counter.waiting is not None and raw > counter.waiting[0]:
            self._new_epoch(counter, raw, counter.waiting[1], item)
        else:
            if raw < counter.latest_raw:
                self.notes.append(("usage.backward", item.observation_id))
            nearly_nothing = raw * 100 < counter.epochs[-1]["top"] * 5
            if nearly_nothing and (counter.waiting is None or raw < counter.waiting[0]):
                counter.waiting = (raw, at)

    def _new_epoch(self, counter: Counter, raw: int, since: datetime, item: Any) -> None:
        self.notes.append(("usage.reset", item.observation_id))
        counter.epochs.append({"since": since, "top": raw})
        counter.waiting = None


def cycle_start(at: datetime, reset_day: int, zone: str) -> date:
    """Walk back day by day until a day on which a cycle starts."""
    day = at.astimezone(ZoneInfo(zone)).date()
    while day.day != min(reset_day, calendar.monthrange(day.year, day.month)[1]):
        day -= timedelta(days=1)
    return day


def next_start(start: date, reset_day: int) -> date:
    day = start + timedelta(days=1)
    while day.day != min(reset_day, calendar.monthrange(day.year, day.month)[1]):
        day += timedelta(days=1)
    return day


def midnight(day: date, zone: str) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
