"""Guards, the window, the ladder, accounts, settings, and what an explanation says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ingest_service.domain.deciding import Window, decide
from ingest_service.domain.explaining import Whereabouts
from ingest_service.domain.fleet import check_accounts, refuse_cards
from ingest_service.domain.ladder import wait_before
from ingest_service.domain.observations import Event, Observation, Outcome
from ingest_service.domain.state import CardState, Changes, Loaded
from ingest_service.settings import Settings
from servicekit.errors import ServiceError
from servicekit.ids import uuid7
from tests.support.ingest import NOW, account, card, observation

MINUTE = timedelta(minutes=1)


def loaded(**changes: Any) -> Loaded:
    fields: dict[str, Any] = {
        "card_id": "c1",
        "account_id": "acme",
        "lifecycle": "active",
        "polling_enabled": True,
        "reset_day": 1,
        "time_zone": "UTC",
    }
    state = CardState(**{**fields, **changes})
    return Loaded(cards={"c1": state}, cycles={}, known_ids=frozenset())


def decided(*observations: Observation, state: Loaded | None = None) -> Changes:
    return decide(state or loaded(), observations, now=NOW, window=Window())


def outcomes(changes: Changes) -> list[Outcome]:
    return [result.outcome for result in changes.results]


def test_later_statuses_apply_in_order_and_each_change_is_an_event() -> None:
    changes = decided(
        observation(NOW + 2 * MINUTE, status="online"),
        observation(NOW, status="offline"),
        observation(NOW + MINUTE, status="offline"),
    )
    assert outcomes(changes) == [Outcome.APPLIED] * 3
    assert [dict(event.data) for event in changes.events] == [
        {"from": "", "to": "offline"},
        {"from": "offline", "to": "online"},
    ]


def test_an_earlier_status_is_stale_and_changes_nothing() -> None:
    state = loaded()
    decided(observation(NOW, status="online"), state=state)
    changes = decided(observation(NOW - MINUTE, status="offline"), state=state)
    assert outcomes(changes) == [Outcome.STALE]
    assert (changes.events, changes.cards) == ([], {})
    assert state.cards["c1"].network.status == "online"


def test_equal_instants_are_ordered_by_id() -> None:
    first, second = sorted((uuid7(NOW), uuid7(NOW)))
    state = loaded()
    decided(observation(NOW, status="online", observation_id=second), state=state)
    changes = decided(observation(NOW, status="offline", observation_id=first), state=state)
    assert outcomes(changes) == [Outcome.STALE]


def test_traffic_is_never_stale() -> None:
    state = loaded()
    decided(observation(NOW, delta_bytes=5), state=state)
    changes = decided(observation(NOW - MINUTE, delta_bytes=7), state=state)
    assert [result.increment_bytes for result in changes.results] == [7]


def test_known_ids_are_duplicates_even_when_they_are_too_old() -> None:
    item = observation(NOW - timedelta(days=7), total_bytes=1)
    state = loaded()
    state.known_ids = frozenset({item.observation_id})
    assert outcomes(decided(item, state=state)) == [Outcome.DUPLICATE]


def test_a_late_reading_of_a_closed_cycle_emits_a_correction() -> None:
    april = datetime(2026, 4, 2, tzinfo=UTC)
    state = loaded()
    for at, total in ((april - timedelta(days=2), 100), (april, 10)):
        decide(state, [observation(at, total_bytes=total)], now=april, window=Window())
    late = observation(april - timedelta(days=2) + MINUTE, total_bytes=130)
    changes = decide(state, [late], now=april, window=Window())
    assert [(event.type, event.data["increment_bytes"]) for event in changes.events] == [
        ("usage.corrected", 30)
    ]
    assert state.cards["c1"].cycle_used_bytes == 10


def test_one_reading_past_int64_costs_only_itself() -> None:
    top = observation(NOW, total_bytes=2**63 - 1)
    over = observation(NOW + MINUTE, delta_bytes=1)
    fine = observation(NOW + 2 * MINUTE, status="online")
    assert outcomes(decided(top, over, fine)) == [Outcome.APPLIED, Outcome.QUARANTINED, Outcome.APPLIED]


def test_an_event_has_the_same_id_whoever_makes_it() -> None:
    item = observation(NOW, status="online")
    one, two = (Event("network.changed", item, "acme", data) for data in ({}, {"x": 1}))
    assert one.event_id == two.event_id
    assert one.event_id != Event("realname.changed", item, "acme", {}).event_id


def test_the_ladder_rises_to_five_minutes_and_spreads_by_a_fifth() -> None:
    assert [wait_before(n, chance=0.5).total_seconds() for n in (1, 2, 3, 4, 5, 6, 7, 1000)] == [
        5,
        15,
        30,
        60,
        120,
        300,
        300,
        300,
    ]
    assert wait_before(1, chance=0).total_seconds() == pytest.approx(4)
    assert wait_before(1, chance=1).total_seconds() == pytest.approx(6)


def test_every_bad_account_is_named() -> None:
    bad = [account("a", time_zone="Nowhere"), account("b", gateway_url="http://u:p@h"), account("a")]
    with pytest.raises(ServiceError) as caught:
        check_accounts(bad)
    assert set(caught.value.metadata) == {
        "accounts[0].time_zone",
        "accounts[1].gateway_url",
        "accounts[2].account_id",
    }


def test_cards_are_refused_one_by_one() -> None:
    cards = [card("a"), card("a"), card("b", "nobody"), card("c", lifecycle="lost"), card("d")]
    assert [item.index for item in refuse_cards(cards, frozenset({"acme"}))] == [1, 2, 3]


def test_the_connection_budget() -> None:
    assert not Settings.from_environment({}).ingest.over_budget
    assert Settings.from_environment({"INGEST_SERVICE_INGEST__CONCURRENCY": "40"}).ingest.over_budget


def test_lanes_need_connections() -> None:
    with pytest.raises(ValueError, match="lanes"):
        Settings.from_environment({"INGEST_SERVICE_INGEST__LANES": "8"})


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (
            {"outcome": "applied", "increment_bytes": 5, "collected_at": NOW},
            "5 bytes added; its record is stored",
        ),
        ({"outcome": "applied"}, "not stored yet"),
        ({"outcome": "stale", "collection_known": False}, "could not be asked"),
        ({"quarantine_reason": "NaN"}, "In quarantine: NaN"),
        ({"retry_at": NOW}, "Waits to be tried again at 2026-03-20"),
        ({"collected_at": NOW}, "Not applied"),
        ({}, "Unknown"),
    ],
)
def test_a_verdict_is_one_sentence(known: dict[str, Any], words: str) -> None:
    found = Whereabouts(**known)
    assert words in found.verdict
    assert found.is_known == bool(known)
