"""Reading files: what counts, what is refused, by line."""

import io
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sluicegate_cli.card_files import account_of, card_of
from sluicegate_cli.files import Report, batches, csv_rows
from sluicegate_cli.instants import parse_time
from sluicegate_cli.observations import (
    Series,
    csv_observations,
    jsonl_observations,
    series_observations,
)
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import plain
from sluicegate_cli.quantities import Unit, bytes_of

FILE = Path("given.csv")
AT = "2026-11-30T09:30:00.25Z"


def observed(line: str) -> tuple[list[Any], Report]:
    report = Report()
    return [item.row for item in jsonl_observations(io.StringIO(line), report)], report


def test_an_observation_without_id_always_gets_the_same_one() -> None:
    line = f'{{"card_id": "C", "kind": "traffic", "observed_at": "{AT}", "total_bytes": 5}}'
    other = line.replace("5}", "6}")
    first, second, third = (observed(text)[0][0].observation_id for text in (line, line, other))
    assert first == second != third
    assert first[14] == "7"
    assert first[:13].replace("-", "") == f"{int(parse_time(AT).timestamp() * 1000):012x}"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ('"total_bytes": 1.5', "integer"),
        ('"total_bytes": true', "integer"),
        ('"total_bytes": "12"', "integer"),
        ('"total_bytes": -1', "from 0"),
        ('"total_bytes": 9223372036854775808', "from 0"),
        ('"total_bytes": NaN', "no JSON"),
        ('"reading": [1]', "object"),
        ('"reading": {}', "either total_bytes or delta_bytes"),
        ('"total_bytes": 1, "delta_bytes": 1', "either"),
        ('"total_bytes": 1, "observation_id": "x"', "no UUID"),
        ('"total_bytes": 1, "observation_id": "0197a000-0000-7000-8000-000000000000"', "milliseconds"),
        ('"total_bytes": 1, "kind": "warp"', "kind"),
        ('"total_bytes": 1, "card_id": ""', "card_id"),
        ('"total_bytes": 1, "card_id": 5', "card_id"),
        ('"total_bytes": 1, "observed_at": "2026-11-30T09:30:00"', "no zone"),
        ('"total_bytes": 1, "observed_at": "yesterday"', "no time"),
        ('"total_bytes": 1, "observed_at": null', "missing"),
    ],
)
def test_what_is_wrong_is_said(change: str, problem: str) -> None:
    line = f'{{"card_id": "C", "kind": "traffic", "observed_at": "{AT}", {change}}}'
    rows, report = observed("\n" + line + "\n")
    assert rows == []
    assert report.problems[0]["line"] == 2
    assert problem in report.problems[0]["problem"]


def test_deep_nesting_is_a_bad_line_and_no_crash() -> None:
    rows, report = observed("[" * 60_000)
    assert rows == []
    assert report.refused_count == 1


def test_csv_knows_both_forms_and_statuses() -> None:
    text = (
        "card_id,observed_at,kind,value,form\n"
        f"C,{AT},traffic,10,\nC,{AT},traffic,11,delta\nC,{AT},network,online,\n"
        f"C,{AT},traffic,1e3,\nC,{AT},traffic\n"
    )
    report = Report()
    rows = [plain(item.row) for item in csv_observations(io.StringIO(text), FILE, report)]
    assert [row.get("traffic") or row.get("network") for row in rows] == [
        {"total_bytes": 10},
        {"delta_bytes": 11},
        {"status": "online"},
    ]
    assert [problem["line"] for problem in report.problems] == [5, 6]


def test_a_series_is_converted_exactly() -> None:
    text = "t,v\n2026-11-30 09:30,0.3\n1764495000,1.0000001\n2026-11-30 09:32,-1\n2026-11-30 09:33,\n"
    series = Series("C", "t", "v", unit=Unit.MB, zone=ZoneInfo("Europe/Berlin"))
    report = Report()
    rows = [plain(item.row) for item in series_observations(io.StringIO(text), FILE, series, report)]
    assert [row["traffic"]["total_bytes"] for row in rows] == [300_000, 1_000_000]
    assert rows[0]["observed_at"] == "2026-11-30T08:30:00Z"
    assert [problem["line"] for problem in report.problems] == [4, 5]


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("1", Unit.KB, 1000),
        ("1", Unit.KIB, 1024),
        ("0.1", Unit.B, 0),
        ("3.019623424e+09", Unit.B, 3019623424),
    ],
)
def test_units(text: str, unit: Unit, expected: int) -> None:
    assert bytes_of(text, unit) == expected


@pytest.mark.parametrize("text", ["", "NaN", "Infinity", "-1", "1e30", "100MB", "1,5", "9223372036854775808"])
def test_amounts_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|negative|more than"):
        bytes_of(text, Unit.B)


def test_a_file_without_the_needed_columns_is_refused_whole() -> None:
    with pytest.raises(CommandError, match="lacks account_id") as caught:
        list(csv_rows(io.StringIO("card_id\n1\n"), FILE, ("card_id", "account_id"), Report()))
    assert caught.value.code is ExitCode.BAD_INPUT


def test_bytes_that_are_no_utf8_spoil_their_row_alone() -> None:
    text = b"a,b\n1,\xff\n2,ok\n".decode("utf-8", errors="surrogateescape")
    report = Report()
    rows = list(csv_rows(io.StringIO(text), FILE, ("a",), report))
    assert [row.row["a"] for row in rows] == ["2"]
    assert report.problems == [{"line": 2, "problem": "holds bytes that are no UTF-8 text"}]


def test_lines_are_counted_through_quoted_line_breaks() -> None:
    report = Report()
    rows = list(csv_rows(io.StringIO('a,b\n"x\ny",1\nz\n'), FILE, ("a",), report))
    assert [row.line for row in rows] == [2]
    assert report.problems[0]["line"] == 4


def test_cards_and_accounts_have_defaults() -> None:
    card = card_of({"card_id": "C", "account_id": "A"})
    assert (card.lifecycle, card.polling_enabled) == ("active", True)
    row = {"account_id": "A", "gateway_kind": "k", "gateway_url": "u", "reset_day": "", "time_zone": "UTC"}
    account = account_of(row)
    assert (account.reset_day, account.poll_limit, account.enabled) == (1, 20, True)
    with pytest.raises(ValueError, match="whole number"):
        account_of({**row, "reset_day": "first"})
    with pytest.raises(ValueError, match="yes or no"):
        card_of({"card_id": "C", "account_id": "A", "polling_enabled": "perhaps"})


def test_batches_hold_at_most_so_many() -> None:
    assert list(batches(iter(range(5)), 2)) == [[0, 1], [2, 3], [4]]


def test_a_report_remembers_a_thousand_problems_and_counts_all() -> None:
    report = Report()
    for line in range(1500):
        report.refuse(line, "bad")
    assert (report.refused_count, len(report.problems)) == (1500, 1000)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("a,b", "it is: a,b"),
        ("", "it is empty"),
        ("\x00\x1bELF,\udc80", "it is no text"),
        ("a," * 500, "a,a"),
    ],
)
def test_a_header_that_lacks_columns_is_shown_as_far_as_it_is_text(header: str, told: str) -> None:
    with pytest.raises(CommandError) as caught:
        list(csv_rows(io.StringIO(header), FILE, ("card_id",), Report()))
    assert told in caught.value.message
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("count", "told"),
    [(1, "1 card saved, 1 published; 1 row refused"), (2, "2 cards saved, 2 published; 2 rows refused")],
)
def test_a_report_counts_rows_in_good_english(
    count: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report()
    report.add("cards saved", count)
    report.add("published", count)
    for line in range(count):
        report.refuse(line, "bad")
    report.finish(FILE, as_json=False)
    assert told in capsys.readouterr().out
