"""Metering: what a reading of a carrier's counter adds to a card's usage of a cycle.

used = base_offset + raw_max, and the increment is what used has gained over what was settled: never negative. A lower
reading lowers nothing. Only a *reset* of the carrier's counter opens a new epoch (base_offset += raw_max): a drop near
the cycle's start or end, where carriers reset, once each; or a fall to almost nothing that a later, growing reading
confirms. Any other drop is a backward correction, and raw_max holds until it is passed again.
"""

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from ingest_service.domain.cycles import Cycle
from ingest_service.domain.observations import MAX_INT64

RESET_WINDOW = timedelta(hours=6)
"""How far from a cycle's start a carrier may reset its counter: clocks and zones of carriers differ from ours."""

_ALMOST_NOTHING = 20
"""A reading below a twentieth (5 %) of the highest one is almost nothing."""


class UnmeterableError(Exception):
    """The usage of the cycle would not fit into 64 bits: the reading can't be true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """The counter of one card in one cycle.

    ``last_raw`` is the latest cycle-to-date reading; ``last_observed_at`` is the latest reading's instant, of either
    form. ``previous_*`` describe the epoch before the open one;
    ``epoch_started_at`` is absent while only delta records came. ``candidate_*`` is a fall to almost nothing that waits
    for its confirmation. ``start_reset_seen`` and ``end_reset_seen`` say that the carrier's reset near that end of the
    cycle has happened, so that another drop there is a correction.
    """

    card_id: str
    cycle_start: date
    base_offset: int = 0
    raw_max: int = 0
    settled: int = 0
    epoch: int = 0
    epoch_started_at: datetime | None = None
    previous_raw_max: int = 0
    previous_started_at: datetime | None = None
    last_raw: int = 0
    last_observed_at: datetime | None = None
    candidate_raw: int | None = None
    candidate_at: datetime | None = None
    start_reset_seen: bool = False
    end_reset_seen: bool = False

    @property
    def used(self) -> int:
        """Bytes used in the cycle."""
        return self.base_offset + self.raw_max


@dataclass(frozen=True, slots=True)
class Metered:
    """The counter after a reading.

    ``day_used`` is the cycle-to-date usage that the reading shows for its day; ``note`` names what is to be audited:
    ``usage.reset``, ``usage.backward`` or nothing.
    """

    state: CycleState
    increment: int
    day_used: int
    note: str = ""


def meter_total(
    state: CycleState, *, raw: int, at: datetime, cycle: Cycle, previous: CycleState | None
) -> Metered:
    """Meter a cycle-to-date reading.

    Args:
        state: the counter of the reading's cycle; a fresh one for its first reading.
        raw: bytes, 0 to int64.
        at: when the gateway answered.
        cycle: the reading's cycle.
        previous: the counter of the cycle just before, if there is one.

    Raises:
        UnmeterableError: the usage would not fit into int64.
    """
    if state.last_observed_at is None or state.epoch_started_at is None:
        return _settle(_open_cycle(state, raw, at, cycle, previous))
    if at <= state.last_observed_at:
        return _meter_late(state, raw, at)
    if raw >= state.raw_max:
        grown = replace(
            state, raw_max=raw, last_raw=raw, last_observed_at=at, candidate_raw=None, candidate_at=None
        )
        return _settle(grown)
    return _meter_drop(state, raw, at, cycle)


def meter_delta(state: CycleState, *, delta: int, at: datetime) -> Metered:
    """Meter a record of the bytes since the record before; a late one says nothing about its day's highest usage.

    Raises:
        UnmeterableError: the usage would not fit into int64.
    """
    grown = replace(state, base_offset=state.base_offset + delta)
    if state.last_observed_at is not None and at < state.last_observed_at:
        return _settle(grown, day_used=0)
    return _settle(replace(grown, last_observed_at=at))


def _open_cycle(
    state: CycleState, raw: int, at: datetime, cycle: Cycle, previous: CycleState | None
) -> CycleState:
    """Take the first reading; near the start it may still belong to the counter of the cycle before."""
    before = previous if previous is not None and previous.epoch_started_at is not None else None
    near_start = at < cycle.starts_at + RESET_WINDOW
    goes_on = before is not None and near_start and raw >= before.raw_max > 0
    carried = before.raw_max if before is not None and goes_on else 0
    return replace(
        state,
        base_offset=state.base_offset - carried,
        raw_max=raw,
        epoch_started_at=at,
        last_raw=raw,
        last_observed_at=at,
        start_reset_seen=before is not None and (not goes_on or before.end_reset_seen),
    )


def _meter_late(state: CycleState, raw: int, at: datetime) -> Metered:
    """Take a reading that is older than the latest: it can only show that its epoch was higher than known."""
    started_at, previous_at = state.epoch_started_at, state.previous_started_at
    if started_at is not None and (at >= started_at or state.epoch == 0):
        raised = replace(state, raw_max=max(state.raw_max, raw))
        return _settle(raised, day_used=max(0, raised.base_offset + raw))
    if previous_at is not None and (at >= previous_at or state.epoch == 1):
        gain = max(0, raw - state.previous_raw_max)
        raised = replace(
            state, base_offset=state.base_offset + gain, previous_raw_max=state.previous_raw_max + gain
        )
        return _settle(raised, day_used=max(0, raised.base_offset - raised.previous_raw_max + raw))
    return _settle(state, day_used=0)


def _meter_drop(state: CycleState, raw: int, at: datetime, cycle: Cycle) -> Metered:
    at_start = not state.start_reset_seen and at < cycle.starts_at + RESET_WINDOW
    at_end = not state.end_reset_seen and at >= cycle.ends_at - RESET_WINDOW
    if at_start or at_end:
        opened = _open_epoch(state, raw, at, started_at=at)
        opened = replace(
            opened,
            start_reset_seen=state.start_reset_seen or at_start,
            end_reset_seen=state.end_reset_seen or at_end,
        )
        return _settle(opened, note="usage.reset")
    if state.candidate_at is not None and state.candidate_raw is not None and raw > state.candidate_raw:
        return _settle(_open_epoch(state, raw, at, started_at=state.candidate_at), note="usage.reset")
    note = "usage.backward" if raw < state.last_raw else ""
    seen = replace(state, last_raw=raw, last_observed_at=at)
    if raw * _ALMOST_NOTHING < state.raw_max and (state.candidate_raw is None or raw < state.candidate_raw):
        seen = replace(seen, candidate_raw=raw, candidate_at=at)
    return _settle(seen, note=note)


def _open_epoch(state: CycleState, raw: int, at: datetime, *, started_at: datetime) -> CycleState:
    return replace(
        state,
        base_offset=state.base_offset + state.raw_max,
        raw_max=raw,
        epoch=state.epoch + 1,
        epoch_started_at=started_at,
        previous_raw_max=state.raw_max,
        previous_started_at=state.epoch_started_at,
        last_raw=raw,
        last_observed_at=at,
        candidate_raw=None,
        candidate_at=None,
    )


def _settle(state: CycleState, *, day_used: int | None = None, note: str = "") -> Metered:
    used = state.used
    if used > MAX_INT64:
        raise UnmeterableError
    increment = max(0, used - state.settled)
    settled = replace(state, settled=state.settled + increment) if increment else state
    return Metered(settled, increment, max(0, used) if day_used is None else day_used, note)
