"""What each adapter reads out of its platform's answers; the shapes are imitations of real ones."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateways.adapter import FailureKind, GatewayError, Kind
from gateways.aliyun_iot import parse_latest_flow, parse_real_status, parse_realname, signature
from gateways.cisco_control_center import parse_ctd_usage, parse_device_status, parse_session
from gateways.emnify import find_sim_id, parse_connectivity, parse_month_stats, parse_sim_status
from gateways.generic_http import parse_generic
from gateways.onence import parse_onence_status, parse_onence_usage
from gateways.pace import Pace
from gateways.quantities import parse_json
from gateways.soracom import parse_air_stats, parse_sim
from servicekit.clock import ManualClock

CARD = "8988228001000000051"
EXTREMES = [
    "-1",
    "-9007199254740991",
    "-1.7976931348623157e+308",
    "1e308",
    "9223372036854775808",
    "true",
    '"12 B"',
]


def body(value: Any) -> Any:
    return parse_json(json.dumps(value).encode())


def refused(parse: Callable[[], object]) -> str:
    with pytest.raises(GatewayError) as refusal:
        parse()
    assert refusal.value.failure is FailureKind.MALFORMED
    return refusal.value.message


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("traffic", {"total_bytes": 12}, {"total_bytes": 12}),
        ("traffic", {"card_id": CARD, "delta_bytes": 0}, {"delta_bytes": 0}),
        ("traffic", {"total_bytes": None}, None),
        ("traffic", None, None),
        ("network", {"status": "online"}, {"status": "online"}),
        ("network", {"status": None}, None),
        ("realname", {"status": "pending"}, {"status": "pending"}),
    ],
)
def test_generic(kind: Kind, answer: Any, expected: Any) -> None:
    assert parse_generic(kind, CARD, body(answer)) == expected


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("traffic", {}),
        ("traffic", []),
        ("traffic", "12"),
        ("traffic", {"total_bytes": 1, "delta_bytes": 1}),
        ("traffic", {"total_bytes": 1, "card_id": "89000"}),
        ("traffic", {"total_bytes": 1.5}),
        ("network", {}),
        ("network", {"status": "ONLINE"}),
        ("network", {"status": ["online"]}),
        ("network", {"status": "verified"}),
        ("realname", {"status": "online"}),
    ],
)
def test_generic_refuses(kind: Kind, answer: Any) -> None:
    refused(lambda: parse_generic(kind, CARD, body(answer)))


def day_record(day: str, volume: Any, unit: str = "MB") -> dict[str, Any]:
    data = {"volume": volume, "traffic_type": {"unit": unit}}
    return {
        "date": f"{day}T00:00:00.000Z",
        "data": data,
        "sms": {"volume": "3", "traffic_type": {"unit": "SMS"}},
    }


def test_onence_adds_up_the_days_of_the_cycle() -> None:
    stats = [day_record("2026-03-15", "0.002803"), day_record("2026-03-16", "1.000000")]
    assert parse_onence_usage(body({"stats": stats}), since=date(2026, 3, 15)) == {"total_bytes": 1_002_803}
    assert parse_onence_usage(body({"stats": stats}), since=date(2026, 3, 16)) == {"total_bytes": 1_000_000}


def test_onence_counts_a_repeated_day_once_and_at_its_greatest() -> None:
    stats = [
        day_record("2026-03-15", "0.5"),
        day_record("2026-03-15", "0.7"),
        day_record("2026-03-15", "0.5"),
    ]
    assert parse_onence_usage(body({"stats": stats}), since=date(2026, 3, 15)) == {"total_bytes": 700_000}


def test_onence_without_data_records_has_nothing_yet() -> None:
    only_sms = {"date": "2026-03-15T00:00:00.000Z", "sms": {"volume": "3"}}
    assert parse_onence_usage(body({"stats": []}), since=date(2026, 3, 15)) is None
    assert parse_onence_usage(body({"stats": [only_sms]}), since=date(2026, 3, 15)) is None


def test_onence_refuses_other_units_and_broken_records() -> None:
    since = date(2026, 3, 15)
    assert "unit" in refused(
        lambda: parse_onence_usage(body({"stats": [day_record("2026-03-15", "1", "GB")]}), since=since)
    )
    refused(lambda: parse_onence_usage(body({"stats": [day_record("15.03.2026", "1")]}), since=since))
    refused(lambda: parse_onence_usage(body({"stats": {}}), since=since))
    refused(lambda: parse_onence_usage(body({"stats": ["x"]}), since=since))
    refused(lambda: parse_onence_usage(body([]), since=since))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("ONLINE", "online"),
        ("ATTACHED", "online"),
        ("OFFLINE", "offline"),
        ({"description": "ONLINE"}, "online"),
        ("NEW_WORD", "unknown"),
    ],
)
def test_onence_status_of_both_versions(status: Any, expected: str) -> None:
    assert parse_onence_status(body({"status": status})) == {"status": expected}


def test_cisco_reads_bytes_of_the_card_that_was_asked_for() -> None:
    assert parse_ctd_usage(CARD, body({"iccid": CARD, "ctdDataUsage": 4_181_991})) == {
        "total_bytes": 4_181_991
    }
    assert parse_ctd_usage(CARD, body({"iccid": CARD, "ctdDataUsage": None})) is None
    assert "another card" in refused(lambda: parse_ctd_usage(CARD, body({"iccid": "1", "ctdDataUsage": 1})))
    refused(lambda: parse_ctd_usage(CARD, body({"iccid": CARD})))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("ACTIVATED", None),
        ("DEACTIVATED", {"status": "suspended"}),
        ("RETIRED", {"status": "suspended"}),
        ("INVENTORY", {"status": "offline"}),
        ("TRIAL", {"status": "unknown"}),
    ],
)
def test_cisco_sim_status(status: str, expected: Any) -> None:
    assert parse_device_status(CARD, body({"iccid": CARD, "status": status})) == expected


def test_cisco_session_decides_for_an_activated_card() -> None:
    started = "2026-03-01 10:00:00.000+0000"
    assert parse_session(body({"dateSessionStarted": started, "dateSessionEnded": None})) == {
        "status": "online"
    }
    assert parse_session(body({"dateSessionStarted": started, "dateSessionEnded": started})) == {
        "status": "offline"
    }
    assert parse_session(body({"dateSessionStarted": None, "dateSessionEnded": None})) == {
        "status": "offline"
    }


def month(volume: Any, unit: str = "MB") -> dict[str, Any]:
    return {"current_month": {"data": {"volume": volume, "traffic_type": {"unit": unit}}}}


def test_emnify_reads_the_running_month() -> None:
    assert parse_month_stats(body(month("0.848157"))) == {"total_bytes": 848_157}
    assert parse_month_stats(body([month("0.848157")])) == {"total_bytes": 848_157}
    assert parse_month_stats(body({"current_month": {}})) is None


def test_emnify_refuses_other_units_and_more_than_one_sim() -> None:
    assert "unit" in refused(lambda: parse_month_stats(body(month("1", "GB"))))
    refused(lambda: parse_month_stats(body([])))
    refused(lambda: parse_month_stats(body([month("1"), month("2")])))
    refused(lambda: parse_month_stats(body({})))
    refused(lambda: parse_month_stats(body({"current_month": None})))


def test_emnify_finds_a_sim_written_as_a_number_or_a_text() -> None:
    sims = [{"id": 1, "iccid": 8988303010000000000}, {"id": 2, "iccid": CARD}]
    assert find_sim_id(CARD, body(sims)) == 2
    assert find_sim_id("8988303010000000000", body(sims)) == 1
    with pytest.raises(GatewayError) as missing:
        find_sim_id("890", body(sims))
    assert missing.value.failure is FailureKind.NOT_FOUND
    refused(lambda: find_sim_id(CARD, body([{"id": "x", "iccid": CARD}])))


def test_emnify_network() -> None:
    endpoint = {"endpoint": {"id": 5}}
    assert parse_sim_status(body({"status": {"description": "Suspended"}, **endpoint})) == {
        "status": "suspended"
    }
    assert parse_sim_status(body({"status": {"description": "Activated"}, **endpoint})) is None
    assert parse_sim_status(body({"status": {"description": "Activated"}})) == {"status": "offline"}
    assert parse_connectivity(body({"status": {"description": "ATTACHED"}})) == {"status": "online"}
    refused(lambda: parse_connectivity(body({"status": {}})))


def classes(**counts: tuple[Any, Any]) -> dict[str, Any]:
    named = {
        name: {"uploadByteSizeTotal": up, "downloadByteSizeTotal": down}
        for name, (up, down) in counts.items()
    }
    return {"date": "20260301", "unixtime": 1_772_323_200, "dataTrafficStatsMap": named}


def test_soracom_adds_up_speed_classes_and_days() -> None:
    days = [classes(fast=(1, 2), slow=(30, 40)), classes(fast=(500, 600)), classes()]
    assert parse_air_stats(body(days)) == {"total_bytes": 1_173}
    assert parse_air_stats(body([])) is None


def test_soracom_refuses_a_sum_that_does_not_fit() -> None:
    refused(lambda: parse_air_stats(body([classes(fast=(2**62, 2**62), slow=(1, 0))])))
    refused(lambda: parse_air_stats(body({})))
    refused(lambda: parse_air_stats(body([{"dataTrafficStatsMap": None}])))


def test_soracom_network() -> None:
    assert parse_sim(body({"status": "active", "sessionStatus": {"online": True}})) == {"status": "online"}
    assert parse_sim(body({"status": "active", "sessionStatus": None})) == {"status": "offline"}
    assert parse_sim(body({"status": "inactive", "sessionStatus": {"online": True}})) == {
        "status": "suspended"
    }


@pytest.mark.parametrize("extreme", EXTREMES)
def test_no_adapter_adds_an_impossible_number(extreme: str) -> None:
    volume = {"volume": "@", "traffic_type": {"unit": "MB"}}
    answers: list[tuple[Any, Callable[[Any], object]]] = [
        ({"total_bytes": "@"}, lambda read: parse_generic("traffic", CARD, read)),
        ({"delta_bytes": "@"}, lambda read: parse_generic("traffic", CARD, read)),
        (
            {"stats": [{"date": "2026-03-15T00:00:00Z", "data": volume}]},
            lambda read: parse_onence_usage(read, since=date(2026, 3, 15)),
        ),
        ({"iccid": CARD, "ctdDataUsage": "@"}, lambda read: parse_ctd_usage(CARD, read)),
        ({"current_month": {"data": volume}}, parse_month_stats),
        ([classes(fast=("@", 0))], parse_air_stats),
        ([classes(fast=(1, 1), slow=(0, "@"))], parse_air_stats),
    ]
    for answer, parse in answers:
        written = json.dumps(answer).replace('"@"', extreme).encode()
        refused(lambda written=written, parse=parse: parse(parse_json(written)))  # type: ignore[misc]


def flow(data: Any) -> dict[str, Any]:
    return {"Code": "200", "Success": True, "Data": data}


def test_aliyun_reads_the_unit_in_the_text() -> None:
    assert parse_latest_flow(body(flow("100MB"))) == {"total_bytes": 104_857_600}
    assert parse_latest_flow(body(flow("1.50KB"))) == {"total_bytes": 1_536}
    assert parse_latest_flow(body(flow(None))) is None
    for wrong in ("100", "100TB", "-1MB", "NaNMB", 100, "1e3MB", "99999999999GB"):
        refused(lambda wrong=wrong: parse_latest_flow(body(flow(wrong))))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ({"Status": "SUCCESS", "Gprs": True, "Online": True}, {"status": "online"}),
        ({"Status": "SUCCESS", "Gprs": True, "Online": False}, {"status": "offline"}),
        ({"Status": "SUCCESS", "Gprs": False, "Online": False}, {"status": "suspended"}),
        ({"Status": "PROCESSING"}, None),
    ],
)
def test_aliyun_network(card: Any, expected: Any) -> None:
    assert parse_real_status(body(flow([card]))) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("CERTIFIED", "verified"),
        ("NOT_CERTIFIED", "unverified"),
        ("APPROVING", "pending"),
        ("NEW", "unknown"),
    ],
)
def test_aliyun_realname(status: str, expected: str) -> None:
    assert parse_realname(body(flow({"RealNameStatus": status}))) == {"status": expected}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("Throttling.User", FailureKind.THROTTLED),
        ("CardNotFound", FailureKind.NOT_FOUND),
        ("InvalidAccessKeyId", FailureKind.REFUSED),
    ],
)
def test_aliyun_fails_under_http_200(code: str, expected: FailureKind) -> None:
    with pytest.raises(GatewayError) as refusal:
        parse_latest_flow(body({"Code": code, "Success": False}))
    assert refusal.value.failure is expected


def test_aliyun_signature_of_the_platforms_published_example() -> None:
    params = {
        "AccessKeyId": "testid",
        "Action": "DescribeRegions",
        "Format": "XML",
        "SignatureMethod": "HMAC-SHA1",
        "SignatureNonce": "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf",
        "SignatureVersion": "1.0",
        "Timestamp": "2016-02-23T12:46:24Z",
        "Version": "2014-05-26",
    }
    assert signature("GET", params, "testsecret") == "OLeaidS1JvxuMvnyHOwuJ+uX5qY="


async def test_a_pace_spaces_calls_and_turns_away_whom_it_would_keep_too_long() -> None:
    clock = ManualClock()
    pace = Pace(4, clock)
    calls = [asyncio.create_task(pace.wait()) for _ in range(12)]
    await clock.settle()
    turned_away = [call for call in calls if call.done() and call.exception() is not None]
    assert calls[9:] == turned_away
    assert sum(call.done() for call in calls[:9]) == 1
    await clock.run_for(1.0)
    assert sum(call.done() for call in calls[:9]) == 5
    await clock.run_for(1.0)
    await asyncio.gather(*calls[:9])


NODES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
VALID: list[tuple[Callable[[Any], object], Any]] = [
    (lambda read: parse_generic("traffic", CARD, read), {"card_id": CARD, "total_bytes": 1}),
    (lambda read: parse_generic("network", CARD, read), {"status": "online"}),
    (
        lambda read: parse_onence_usage(read, since=date(2026, 3, 1)),
        {"stats": [day_record("2026-03-15", "1")]},
    ),
    (parse_onence_status, {"status": {"description": "ONLINE"}}),
    (lambda read: parse_ctd_usage(CARD, read), {"iccid": CARD, "ctdDataUsage": 1}),
    (lambda read: parse_device_status(CARD, read), {"iccid": CARD, "status": "ACTIVATED"}),
    (parse_session, {"dateSessionStarted": "x", "dateSessionEnded": None}),
    (lambda read: find_sim_id(CARD, read), [{"id": 1, "iccid": CARD}]),
    (parse_month_stats, [month("1")]),
    (parse_sim_status, {"status": {"description": "Activated"}, "endpoint": {"id": 1}}),
    (parse_connectivity, {"status": {"description": "ONLINE"}}),
    (parse_air_stats, [classes(fast=(1, 2))]),
    (parse_sim, {"status": "active", "sessionStatus": {"online": True}}),
    (parse_latest_flow, flow("1.00MB")),
    (parse_real_status, flow([{"Status": "SUCCESS", "Gprs": True, "Online": True}])),
    (parse_realname, flow({"RealNameStatus": "CERTIFIED"})),
]


def replaced(value: Any, path: list[int], node: Any) -> Any:
    """Put a node where a path of turns ends; a path longer than the value is deep ends at its leaf."""
    if not path or not isinstance(value, dict | list) or not value:
        return node
    turn = path[0] % len(value)
    if isinstance(value, list):
        return [replaced(item, path[1:], node) if index == turn else item for index, item in enumerate(value)]
    return {
        name: replaced(item, path[1:], node) if index == turn else item
        for index, (name, item) in enumerate(value.items())
    }


@pytest.mark.parametrize("case", range(len(VALID)))
@settings(max_examples=40)
@given(path=st.lists(st.integers(0, 3), max_size=5), node=NODES)
def test_any_broken_answer_is_refused_and_nothing_else_is_raised(
    case: int, path: list[int], node: Any
) -> None:
    parse, valid = VALID[case]
    parse(body(valid))
    with suppress(GatewayError):
        parse(parse_json(json.dumps(replaced(valid, path, node)).encode()))
