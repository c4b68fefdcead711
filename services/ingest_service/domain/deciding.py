"""What a batch of observations does to its cards: decided in memory, from what was loaded under the cards' locks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from ingest_service.domain.cycles import Cycle, cycle_of, local_day
from ingest_service.domain.metering import CycleState, Metered, UnmeterableError, meter_delta, meter_total
from ingest_service.domain.observations import (
    AuditEntry,
    DailyUsage,
    Event,
    Kind,
    Observation,
    Outcome,
    Result,
    in_order,
)
from ingest_service.domain.state import CardState, Changes, Loaded


@dataclass(frozen=True, slots=True)
class Window:
    """Which instants are accepted: as far back as the inbox remembers, and a little ahead for clocks that differ."""

    remembered: timedelta = timedelta(days=8)
    ahead: timedelta = timedelta(days=1)


def decide(loaded: Loaded, observations: Sequence[Observation], *, now: datetime, window: Window) -> Changes:
    """Decide what becomes of each observation and what has to be stored.

    The observations have different ids and are taken in order of (card_id, observed_at, observation_id). The loaded
    cards are changed in place.
    """
    changes = Changes()
    for observation in in_order(observations):
        result = _decide_one(loaded, changes, observation, now, window)
        changes.results.append(result)
        if result.outcome in {Outcome.APPLIED, Outcome.STALE}:
            changes.fresh.append(result)
    return changes


def _decide_one(
    loaded: Loaded, changes: Changes, observation: Observation, now: datetime, window: Window
) -> Result:
    card = loaded.cards.get(observation.card_id)
    account_id = observation.account_id if card is None else card.account_id
    if observation.observation_id in loaded.known_ids:
        return Result(observation=observation, outcome=Outcome.DUPLICATE, account_id=account_id)
    problem = _outside(observation.observed_at, now, window)
    if problem is not None:
        return Result(observation=observation, outcome=problem[0], account_id=account_id, message=problem[1])
    if card is None:
        message = f"card {observation.card_id} is unknown; import it and send the observation again"
        return Result(
            observation=observation, outcome=Outcome.NOT_FOUND, account_id=account_id, message=message
        )
    if observation.kind is Kind.TRAFFIC:
        return _apply_traffic(loaded, changes, card, observation)
    return _apply_status(changes, card, observation)


def _outside(at: datetime, now: datetime, window: Window) -> tuple[Outcome, str] | None:
    if at < now - window.remembered:
        return Outcome.TOO_OLD, f"observed more than {window.remembered.days} days ago"
    if at > now + window.ahead:
        return Outcome.QUARANTINED, "observed_at is ahead of this service's clock"
    return None


def _apply_status(changes: Changes, card: CardState, observation: Observation) -> Result:
    stored = card.status(observation.kind)
    if not stored.is_before(observation):
        return Result(
            observation=observation,
            outcome=Outcome.STALE,
            account_id=card.account_id,
            message=f"a later {observation.kind} status is applied already",
        )
    if stored.status != observation.status:
        data = {"from": stored.status, "to": observation.status}
        _tell(changes, card, observation, f"{observation.kind}.changed", data)
        changes.facts.add(card.card_id)
    stored.status = observation.status
    stored.observed_at, stored.observation_id = observation.position
    return _applied(changes, card, observation)


def _apply_traffic(loaded: Loaded, changes: Changes, card: CardState, observation: Observation) -> Result:
    cycle = cycle_of(observation.observed_at, reset_day=card.reset_day, time_zone=card.time_zone)
    cycles = loaded.cycles.setdefault(card.card_id, {})
    try:
        metered = _meter(card, observation, cycle, cycles)
    except UnmeterableError:
        return Result(
            observation=observation,
            outcome=Outcome.QUARANTINED,
            account_id=card.account_id,
            message="the usage of the cycle would not fit into 64 bits",
        )
    cycles[cycle.start] = metered.state
    changes.cycles[card.card_id, cycle.start] = metered.state
    _add_to_day(changes, card, observation, metered)
    _note_traffic(changes, card, observation, metered)
    if card.cycle_start is None or cycle.start >= card.cycle_start:
        card.cycle_start = cycle.start
        card.cycle_used_bytes = metered.state.settled
    return _applied(changes, card, observation, metered.increment)


def _meter(
    card: CardState, observation: Observation, cycle: Cycle, cycles: dict[date, CycleState]
) -> Metered:
    at = observation.observed_at
    state = cycles.get(cycle.start) or CycleState(card_id=card.card_id, cycle_start=cycle.start)
    if observation.delta_bytes is not None:
        return meter_delta(state, delta=observation.delta_bytes, at=at)
    before = cycle_of(
        cycle.starts_at - timedelta(seconds=1), reset_day=card.reset_day, time_zone=card.time_zone
    )
    previous = cycles.get(before.start)
    return meter_total(state, raw=observation.total_bytes or 0, at=at, cycle=cycle, previous=previous)


def _add_to_day(changes: Changes, card: CardState, observation: Observation, metered: Metered) -> None:
    day = local_day(observation.observed_at, card.time_zone)
    daily = changes.daily.setdefault((card.card_id, day), DailyUsage(card.card_id, day))
    daily.used_bytes = max(daily.used_bytes, metered.day_used)
    daily.increment_bytes += metered.increment


def _note_traffic(changes: Changes, card: CardState, observation: Observation, metered: Metered) -> None:
    state = metered.state
    if metered.note:
        detail = {
            "cycle_start": state.cycle_start.isoformat(),
            "reading": observation.total_bytes,
            "highest": state.previous_raw_max if metered.note == "usage.reset" else state.raw_max,
            "epoch": state.epoch,
        }
        changes.audit.append(AuditEntry(metered.note, observation, detail))
    closed = card.cycle_start is not None and state.cycle_start < card.cycle_start
    if closed and metered.increment:
        data = {
            "cycle_start": state.cycle_start.isoformat(),
            "increment_bytes": metered.increment,
            "used_bytes": state.settled,
        }
        _tell(changes, card, observation, "usage.corrected", data)


def _tell(
    changes: Changes, card: CardState, observation: Observation, event_type: str, data: Mapping[str, object]
) -> None:
    """Record a change as an event and, for people, as an audit entry."""
    changes.events.append(Event(event_type, observation, card.account_id, data))
    changes.audit.append(AuditEntry(event_type, observation, data))


def _applied(changes: Changes, card: CardState, observation: Observation, increment: int = 0) -> Result:
    card.applied_count += 1
    if card.observed_at is None or observation.observed_at > card.observed_at:
        card.observed_at = observation.observed_at
    changes.cards[card.card_id] = card
    return Result(
        observation=observation,
        outcome=Outcome.APPLIED,
        account_id=card.account_id,
        increment_bytes=increment,
    )
