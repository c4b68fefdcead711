"""The simulator's fleet, cards and faults."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.simulator.faults import SCENARIOS, Dice, Faults, Lie
from gateways.simulator.fleet import (
    DemoAccount,
    DemoCard,
    demo_fleet,
    luhn_digit,
    write_accounts,
    write_cards,
)
from gateways.simulator.shapes.shape import megabytes
from gateways.simulator.stats import LaneStats
from gateways.simulator.world import SimulatedCard

AT = datetime(2026, 3, 20, 10, tzinfo=UTC)
ACCOUNT = DemoAccount("mesa", "Mesa", "generic_http", "", 31, "America/New_York", 5, 2, 60)
SECONDS = st.integers(min_value=0, max_value=40 * 86_400)


def simulated(seed: int = 1, card_id: str = "8901260001000000087") -> SimulatedCard:
    return SimulatedCard(seed, DemoCard(card_id, "mesa", "1", "active"), ACCOUNT)


def is_luhn(number: str) -> bool:
    digits = [int(digit) for digit in reversed(number)]
    return sum(d if i % 2 == 0 else sum(divmod(2 * d, 10)) for i, d in enumerate(digits)) % 10 == 0


def test_luhn_digit_of_a_published_example() -> None:
    assert luhn_digit("7992739871") == "3"


def test_the_fleet_has_three_different_accounts_and_valid_cards() -> None:
    accounts, cards = demo_fleet(3, 1000)
    assert len(accounts) == 3
    for name in ("poll_limit", "stop_resume_limit", "reset_day", "time_zone", "gateway_kind"):
        assert len({getattr(account, name) for account in accounts}) == 3
    assert len({card.card_id for card in cards}) == 1000
    assert {card.account_id for card in cards} == {account.account_id for account in accounts}
    assert all(len(card.card_id) in (19, 20) and is_luhn(card.card_id) for card in cards)


def test_the_fleet_is_the_same_for_the_same_seed_and_grows_at_its_end() -> None:
    _, small = demo_fleet(3, 10)
    _, large = demo_fleet(3, 100)
    assert large[:10] == small
    assert demo_fleet(4, 10)[1] != small


def test_the_fleet_is_written_with_headers(tmp_path: Path) -> None:
    accounts, cards = demo_fleet(1, 2, "http://127.0.0.1:1")
    write_cards(tmp_path / "cards.csv", cards)
    write_accounts(tmp_path / "accounts.csv", accounts)
    card_lines = (tmp_path / "cards.csv").read_text().splitlines()
    account_lines = (tmp_path / "accounts.csv").read_text().splitlines()
    assert card_lines[0] == "card_id,account_id,msisdn,lifecycle"
    assert len(card_lines) == 3
    assert account_lines[0] == (
        "account_id,name,gateway_kind,gateway_url,reset_day,time_zone,poll_limit,stop_resume_limit,"
        "poll_interval_seconds"
    )
    assert "http://127.0.0.1:1/accounts/harbor" in account_lines[1]


@given(SECONDS, SECONDS, SECONDS)
def test_adjoining_stretches_add_up_exactly(one: int, two: int, three: int) -> None:
    first, second, third = (AT + timedelta(seconds=offset) for offset in sorted((one, two, three)))
    card = simulated()
    parts = card.bytes_between(first, second) + card.bytes_between(second, third)
    assert parts == card.bytes_between(first, third)


def test_the_counter_restarts_at_the_cycles_local_midnight() -> None:
    card = simulated()
    reset = datetime(2026, 3, 31, 4, tzinfo=UTC)
    assert card.cycle_bytes(reset) == 0
    assert (
        card.cycle_bytes(reset - timedelta(microseconds=1)) > card.cycle_bytes(reset + timedelta(hours=1)) > 0
    )


def test_days_add_up_to_the_whole() -> None:
    card = simulated()
    end = AT + timedelta(days=3, hours=5)
    days = card.utc_days(AT, end)
    assert [day.day for day, _ in days] == [20, 21, 22, 23]
    assert sum(used for _, used in days) == card.bytes_between(AT, end)


def test_a_stopped_card_stands_still_and_goes_on_where_it_stood() -> None:
    card = simulated()
    before = card.cycle_bytes(AT)
    card.stop(AT)
    card.stop(AT + timedelta(minutes=30))
    later = AT + timedelta(hours=1)
    assert card.cycle_bytes(later) == before
    assert card.network(later).value == "suspended"
    card.resume(later)
    assert card.cycle_bytes(later) == before
    assert card.cycle_bytes(later + timedelta(hours=1)) > before


def test_deltas_add_up_to_the_cycle() -> None:
    card = simulated()
    steps = [card.take_delta(AT + timedelta(minutes=minute)) for minute in (0, 1, 7, 7, 60)]
    assert steps[3] == 0
    assert sum(steps) == card.cycle_bytes(AT + timedelta(minutes=60))


def test_a_restarted_simulator_goes_on_where_it_was() -> None:
    assert simulated().cycle_bytes(AT) == simulated().cycle_bytes(AT)
    assert simulated(seed=2).cycle_bytes(AT) != simulated(seed=1).cycle_bytes(AT)


def test_states_flip_but_not_all_the_time() -> None:
    fleet = [simulated(card_id=str(8901260001000000000 + index)) for index in range(200)]
    online = [card.network(AT).value == "online" for card in fleet]
    later = [card.network(AT + timedelta(hours=1)).value == "online" for card in fleet]
    assert 140 < sum(online) < 195
    assert 10 < sum(now != then for now, then in zip(online, later, strict=True)) < 100
    assert {card.realname(AT).value for card in fleet} == {"verified", "unverified", "pending"}


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (Lie.NONE, 1000),
        (Lie.BACKWARD, 900),
        (Lie.ZERO, 0),
        (Lie.HUGE, 2**63 + 1000),
        (Lie.TEXT, "1000 bytes"),
    ],
)
def test_lies(lie: Lie, told: object) -> None:
    assert Dice(1, "a").lied(Faults(lie=lie), 1000) == told


def test_faults_are_checked_by_name_and_range() -> None:
    assert Faults().changed({"error_rate": 0.5, "lie": "zero", "outage": True}).as_json()["lie"] == "zero"
    for wrong in ({"nope": 1}, {"error_rate": 2}, {"error_rate": True}, {"outage": "yes"}, {"lie": "x"}):
        with pytest.raises(ValueError, match=r"."):
            Faults().changed(wrong)


def test_latency_and_errors_come_in_the_asked_proportions() -> None:
    dice = Dice(1, "a")
    drawn = sorted(dice.latency_seconds(Faults(latency_ms=50)) for _ in range(1001))
    assert 0.04 < drawn[500] < 0.06
    assert drawn[990] > 0.1
    assert 50 < sum(dice.happens(0.1) for _ in range(1000)) < 150
    assert set(SCENARIOS) >= {"calm", "demo"}


def test_a_lane_counts_what_is_over_its_limit() -> None:
    lane = LaneStats(limit=1)
    with lane.hold() as first, lane.hold() as second:
        assert (first, second) == (False, True)
    assert (lane.in_flight, lane.max_in_flight, lane.over_limit) == (0, 2, 1)


def test_megabytes_keep_every_byte() -> None:
    assert megabytes(2_803) == "0.002803"
    assert megabytes(-5) == "-0.000005"
    assert megabytes("5 bytes") == "5 bytes"
