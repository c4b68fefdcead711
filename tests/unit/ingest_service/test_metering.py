"""Metering: what each reading of a counter adds, and what it must never add."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_service.domain.cycles import cycle_of, local_day
from ingest_service.domain.metering import (
    CycleState,
    Metered,
    UnmeterableError,
    meter_delta,
    meter_total,
)

NOON = datetime(2026, 3, 15, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Meter:
    """One card: meters readings in UTC cycles from the 1st."""

    def __init__(self, reset_day: int = 1, zone: str = "UTC") -> None:
        self.reset_day, self.zone = reset_day, zone
        self.cycles: dict[date, CycleState] = {}
        self.total = 0
        self.last: Metered | None = None

    def read(self, at: datetime, raw: int) -> int:
        cycle = cycle_of(at, reset_day=self.reset_day, time_zone=self.zone)
        before = cycle_of(
            cycle.starts_at - timedelta(seconds=1), reset_day=self.reset_day, time_zone=self.zone
        )
        state = self.cycles.get(cycle.start) or CycleState(card_id="c", cycle_start=cycle.start)
        return self._keep(
            meter_total(state, raw=raw, at=at, cycle=cycle, previous=self.cycles.get(before.start))
        )

    def add(self, at: datetime, delta: int) -> int:
        cycle = cycle_of(at, reset_day=self.reset_day, time_zone=self.zone)
        state = self.cycles.get(cycle.start) or CycleState(card_id="c", cycle_start=cycle.start)
        return self._keep(meter_delta(state, delta=delta, at=at))

    def series(self, *readings: int, start: datetime = NOON) -> list[int]:
        return [self.read(start + index * MINUTE, raw) for index, raw in enumerate(readings)]

    def _keep(self, metered: Metered) -> int:
        assert metered.increment >= 0
        self.cycles[metered.state.cycle_start] = metered.state
        self.total += metered.increment
        self.last = metered
        return metered.increment

    @property
    def note(self) -> str:
        assert self.last is not None
        return self.last.note


def test_a_rising_counter_adds_its_growth() -> None:
    assert Meter().series(100, 150, 150, 400) == [100, 50, 0, 250]


def test_a_small_drop_adds_nothing_until_the_old_top_is_passed() -> None:
    meter = Meter()
    assert meter.series(1000, 990, 995, 999, 1000, 1010) == [1000, 0, 0, 0, 0, 10]


def test_backward_correction_below_the_top_for_two_readings_is_no_reset() -> None:
    """A public counter that was corrected, not reset: 64452, then 47376, and growth from there."""
    meter = Meter()
    assert meter.series(64_452, 47_376, 48_000, 60_000, 64_452, 65_000) == [64_452, 0, 0, 0, 0, 548]
    assert meter.total == 65_000


def test_a_fall_is_noted_once_and_not_at_every_poll_below_the_top() -> None:
    meter = Meter()
    notes = []
    for index, raw in enumerate((1000, 900, 900, 910, 905)):
        meter.read(NOON + index * MINUTE, raw)
        notes.append(meter.note)
    assert notes == ["", "usage.backward", "", "", "usage.backward"]


def test_counter_falls_to_zero_and_back() -> None:
    meter = Meter()
    assert meter.series(1000, 0, 1000, 1005) == [1000, 0, 0, 5]


def test_a_fall_to_almost_nothing_is_a_reset_once_a_later_reading_grows_from_there() -> None:
    meter = Meter()
    assert meter.series(1000, 10, 30, 100) == [1000, 0, 30, 70]
    assert meter.total == 1100


def test_an_unconfirmed_fall_stays_unconfirmed_while_it_stands_still() -> None:
    meter = Meter()
    assert meter.series(1000, 0, 0, 0, 7) == [1000, 0, 0, 0, 7]
    assert meter.note == "usage.reset"


def test_readings_of_one_instant_confirm_nothing() -> None:
    meter = Meter()
    meter.series(1000, 10)
    assert meter.read(NOON + MINUTE, 30) == 0
    assert meter.cycles[date(2026, 3, 1)].epoch == 0


def test_five_percent_is_not_almost_nothing() -> None:
    meter = Meter()
    assert meter.series(1000, 50, 60, 70) == [1000, 0, 0, 0]


def test_two_resets_in_one_cycle() -> None:
    meter = Meter()
    assert meter.series(1000, 1, 600, 2, 5, 700) == [1000, 0, 600, 0, 5, 695]
    assert meter.total == 1000 + 600 + 700


def test_a_32_bit_wrap_is_a_reset() -> None:
    meter = Meter()
    assert meter.series(2**32 - 10, 20, 50) == [2**32 - 10, 0, 50]


def test_replaying_a_series_adds_nothing() -> None:
    meter = Meter()
    readings = (5, 70, 60, 200, 3, 90)
    meter.series(*readings)
    total = meter.total
    assert meter.series(*readings) == [0] * len(readings)
    assert meter.total == total


def test_a_late_reading_adds_only_what_its_epoch_lacked() -> None:
    meter = Meter()
    meter.series(100, 300)
    assert meter.read(NOON + MINUTE / 2, 200) == 0
    assert meter.read(NOON + MINUTE / 2, 350) == 50


def test_a_late_reading_from_before_a_reset_belongs_to_the_epoch_before() -> None:
    meter = Meter()
    meter.series(1000, 1, 20)
    assert meter.read(NOON + MINUTE / 2, 1050) == 50
    assert meter.cycles[date(2026, 3, 1)].raw_max == 20
    assert meter.total == 1070


def test_a_drop_in_the_window_after_the_start_is_a_reset_once() -> None:
    meter = Meter()
    start = datetime(2026, 4, 1, 0, 5, tzinfo=UTC)
    assert meter.series(500, 200, 300, 250, start=start) == [500, 200, 100, 0]


def test_a_counter_that_goes_on_past_the_start_is_carried_over() -> None:
    meter = Meter()
    meter.read(datetime(2026, 3, 31, 23, 58, tzinfo=UTC), 5000)
    assert meter.read(datetime(2026, 4, 1, 0, 3, tzinfo=UTC), 5010) == 10
    assert meter.read(datetime(2026, 4, 1, 2, 0, tzinfo=UTC), 15) == 15
    assert meter.read(datetime(2026, 4, 1, 2, 5, tzinfo=UTC), 12) == 0
    assert meter.cycles[date(2026, 4, 1)].used == 25


def test_a_counter_that_was_reset_at_the_start_is_counted_whole_and_a_later_drop_is_a_correction() -> None:
    meter = Meter()
    meter.read(datetime(2026, 3, 31, 23, 58, tzinfo=UTC), 5000)
    assert meter.read(datetime(2026, 4, 1, 0, 3, tzinfo=UTC), 100) == 100
    assert meter.read(datetime(2026, 4, 1, 0, 8, tzinfo=UTC), 90) == 0


def test_a_carrier_that_resets_before_our_midnight() -> None:
    meter = Meter()
    meter.read(datetime(2026, 3, 31, 20, 0, tzinfo=UTC), 5000)
    assert meter.read(datetime(2026, 3, 31, 22, 0, tzinfo=UTC), 20) == 20
    assert meter.read(datetime(2026, 4, 1, 0, 3, tzinfo=UTC), 30) == 10
    assert meter.read(datetime(2026, 4, 1, 1, 0, tzinfo=UTC), 25) == 0
    assert meter.total == 5030


def test_outside_the_window_a_first_reading_is_taken_as_cycle_to_date() -> None:
    meter = Meter()
    meter.read(datetime(2026, 3, 20, tzinfo=UTC), 5000)
    assert meter.read(datetime(2026, 4, 10, tzinfo=UTC), 6000) == 6000


def test_a_late_reading_of_a_closed_cycle_raises_that_cycle() -> None:
    meter = Meter()
    meter.read(datetime(2026, 3, 31, 20, tzinfo=UTC), 1000)
    meter.read(datetime(2026, 4, 2, tzinfo=UTC), 50)
    assert meter.read(datetime(2026, 3, 31, 21, tzinfo=UTC), 1200) == 200
    assert meter.cycles[date(2026, 3, 1)].used == 1200
    assert meter.cycles[date(2026, 4, 1)].used == 50


def test_delta_records_add_up_and_late_ones_too() -> None:
    meter = Meter()
    assert meter.add(NOON, 100) == 100
    assert meter.add(NOON + MINUTE, 50) == 50
    assert meter.add(NOON - MINUTE, 7) == 7
    assert meter.last is not None
    assert meter.last.day_used == 0
    assert meter.total == 157


def test_deltas_and_readings_of_one_card_mix() -> None:
    meter = Meter()
    meter.add(NOON, 100)
    assert meter.read(NOON + MINUTE, 40) == 40
    assert meter.add(NOON + 2 * MINUTE, 1) == 1
    assert meter.total == 141


def test_usage_past_int64_is_refused_and_changes_nothing() -> None:
    meter = Meter()
    meter.read(NOON, 2**63 - 1)
    state = dict(meter.cycles)
    with pytest.raises(UnmeterableError):
        meter.add(NOON + MINUTE, 1)
    assert meter.cycles == state


@pytest.mark.parametrize(
    ("reset_day", "at", "start"),
    [
        (31, datetime(2026, 2, 28, 12, tzinfo=UTC), date(2026, 2, 28)),
        (31, datetime(2026, 2, 27, 23, 59, tzinfo=UTC), date(2026, 1, 31)),
        (31, datetime(2026, 3, 30, 12, tzinfo=UTC), date(2026, 2, 28)),
        (30, datetime(2026, 3, 1, tzinfo=UTC), date(2026, 2, 28)),
        (29, datetime(2026, 2, 28, 12, tzinfo=UTC), date(2026, 2, 28)),
        (29, datetime(2028, 2, 28, 12, tzinfo=UTC), date(2028, 1, 29)),
        (29, datetime(2028, 2, 29, tzinfo=UTC), date(2028, 2, 29)),
        (31, datetime(2026, 4, 30, tzinfo=UTC), date(2026, 4, 30)),
        (1, datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1)),
        (15, datetime(2026, 1, 14, 23, 59, 59, 999999, tzinfo=UTC), date(2025, 12, 15)),
    ],
)
def test_reset_day_29_30_31_is_clamped_to_the_month(reset_day: int, at: datetime, start: date) -> None:
    assert cycle_of(at, reset_day=reset_day, time_zone="UTC").start == start


@pytest.mark.parametrize("reset_day", range(1, 32))
def test_cycles_follow_each_other_without_gap_or_overlap(reset_day: int) -> None:
    at = datetime(2027, 1, 1, tzinfo=UTC)
    cycles = []
    for _ in range(30):
        cycles.append(cycle_of(at, reset_day=reset_day, time_zone="America/Santiago"))
        at = cycles[-1].ends_at
    assert all(first.ends_at == second.starts_at for first, second in pairwise(cycles))
    assert all(first.start < second.start for first, second in pairwise(cycles))


@pytest.mark.parametrize(
    ("zone", "at", "day"),
    [
        ("Asia/Shanghai", datetime(2026, 3, 31, 15, 59, 59, 999000, tzinfo=UTC), date(2026, 3, 31)),
        ("Asia/Shanghai", datetime(2026, 3, 31, 16, 0, tzinfo=UTC), date(2026, 4, 1)),
        ("Asia/Kolkata", datetime(2026, 3, 31, 18, 30, tzinfo=UTC), date(2026, 4, 1)),
        ("America/New_York", datetime(2026, 3, 8, 6, 59, 59, tzinfo=UTC), date(2026, 3, 8)),
        ("America/New_York", datetime(2026, 11, 1, 5, 30, tzinfo=UTC), date(2026, 11, 1)),
        ("America/Santiago", datetime(2026, 9, 6, 4, 0, tzinfo=UTC), date(2026, 9, 6)),
        ("Pacific/Kiritimati", datetime(2026, 3, 31, 10, 0, tzinfo=UTC), date(2026, 4, 1)),
    ],
)
def test_carrier_zone_dst_gap_and_overlap_and_the_last_millisecond(
    zone: str, at: datetime, day: date
) -> None:
    assert local_day(at, zone) == day


def test_a_cycle_that_starts_in_a_dst_gap_starts_when_the_day_does() -> None:
    """In Santiago the clocks skip 2026-09-06 00:00 to 01:00."""
    cycle = cycle_of(datetime(2026, 9, 7, tzinfo=UTC), reset_day=6, time_zone="America/Santiago")
    assert cycle.start == date(2026, 9, 6)
    assert cycle.starts_at == datetime(2026, 9, 6, 4, tzinfo=UTC)


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=30))
def test_usage_never_falls_and_never_exceeds_the_sum_of_tops(readings: list[int]) -> None:
    meter = Meter()
    meter.series(*readings)
    state = meter.cycles[date(2026, 3, 1)]
    assert state.used == state.settled == meter.total
    assert max(readings) <= meter.total <= sum(readings)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5_000)), min_size=1, max_size=20))
def test_any_order_of_readings_keeps_the_counter_consistent(items: list[tuple[int, int]]) -> None:
    meter = Meter()
    for minutes, raw in items:
        meter.read(NOON + minutes * MINUTE, raw)
    state = meter.cycles[date(2026, 3, 1)]
    assert state.used == state.settled == meter.total
