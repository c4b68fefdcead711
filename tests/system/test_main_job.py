"""The main job end to end, as a user runs it: polled, applied, collected; exactly once through stops and kills."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from devengines.nsqd import build_nsqd
from tests.support.reconciliation import answered, assert_everything_once, collected, recorded
from tests.support.system import FLEET, QUICK, System, alive, running
from tests.support.waiting import eventually

pytestmark = [pytest.mark.timeout(420)]

SERVICES = ("lease_service", "poller", "ingest_service", "collection_writer", "task_api", "export_worker")


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    if build_nsqd() is None:
        pytest.skip("missing engine: nsqd is neither on PATH nor can it be built with go")
    with (
        TemporaryDirectory(prefix="sluicegate-up-") as folder,
        running(Path(folder) / "data", *FLEET, "--broker", "nsqd", variables=QUICK) as found,
    ):
        yield found


async def test_every_successful_poll_is_applied_and_collected_once(system: System) -> None:
    await collected(system, 300)
    await system.switch_polling(on=False)
    assert await recorded(system, "ingest_inbox") == answered(system)
    assert await recorded(system, "collection_record WHERE outcome = 'success'") == answered(system)
    await assert_everything_once(system)
    await system.switch_polling(on=True)
    await collected(system, 60)


async def test_one_trace_leads_from_the_poll_to_the_stored_row(system: System) -> None:
    row = (
        await system.rows(
            "SELECT observation_id, card_id FROM collection_record WHERE kind = 'traffic' LIMIT 1"
        )
    )[0]
    observation_id = str(row["observation_id"])

    async def whole() -> list[dict[str, Any]] | None:
        ended = await asyncio.to_thread(system.command, "trace", "--observation", observation_id, "--json")
        spans: list[dict[str, Any]] = ended.json if ended.code == 0 else []
        return (
            spans
            if {"poll", "apply", "collect", "consume", "collection flush"} <= {s["name"] for s in spans}
            else None
        )

    spans = await eventually(whole, within=40)
    own = [span for span in spans if span["attributes"].get("sluicegate.observation_id") == observation_id]
    assert [(span["service"], span["name"]) for span in own] == [
        ("poller", "poll"),
        ("ingest_service", "apply"),
        ("collection_writer", "collect"),
    ]
    poll, apply, collect = own
    assert len({span["trace_id"] for span in own}) == 1
    assert apply["parent_span_id"] == poll["span_id"]
    assert collect["parent_span_id"] == apply["span_id"]
    for batch, message in (("consume", poll), ("collection flush", apply)):
        span = next(span for span in spans if span["name"] == batch)
        assert {"trace_id": message["trace_id"], "span_id": message["span_id"]} in span["links"]
    system.command("trace", "--card", row["card_id"]).assert_clear(0, "poller: poll")
    system.command("explain", observation_id).assert_clear(0, "record is stored", row["card_id"])


async def test_a_card_can_be_polled_by_hand(system: System) -> None:
    card = (await system.rows("SELECT card_id FROM card LIMIT 1"))[0]["card_id"]
    steps = system.command("cards", "poll", card, "--json").json
    assert {step["outcome"] for step in steps} == {"applied"}
    shown = system.command("cards", "show", card, "--json").json
    assert shown["applied_count"] > 0


def test_text_of_a_task_can_be_followed(system: System) -> None:
    ended = system.command(
        "tasks", "create", "--payload", '{"prompt": "sand and water", "words": 5}', "--watch"
    )
    ended.assert_clear(0, "sand and water sand and", "succeeded")
    tasks = system.command("tasks", "list", "--state", "succeeded", "--json").json
    system.command("tasks", "cancel", tasks[0]["task_id"]).assert_clear(0, "succeeded")


def test_a_task_can_be_cancelled(system: System) -> None:
    payload = json.dumps({"prompt": "long", "words": 5000})
    task = system.command("tasks", "create", "--payload", payload, "--json").json
    system.command("tasks", "cancel", task["task_id"]).assert_clear(0)
    ended = system.command("tasks", "watch", task["task_id"])
    ended.assert_clear(1, "cancelled")


async def test_an_export_holds_every_record_once(system: System, tmp_path: Path) -> None:
    copy = tmp_path / "mesa.csv"
    ended = system.command("export", "--account", "mesa", "--json", "--output", str(copy), within=90)
    assert ended.code == 0, ended.err
    task = json.loads(ended.out.splitlines()[-1])
    result = json.loads(task["result_json"])
    lines = (system.data_dir / "files" / result["object_key"]).read_text().splitlines()
    assert copy.read_text().splitlines() == lines
    assert len(lines) == result["row_count"] + 1 > 1
    assert len(set(lines)) == len(lines)


def test_a_second_up_on_the_same_data_says_so(system: System) -> None:
    ended = system.command("up", "--data-dir", str(system.data_dir))
    ended.assert_clear(1, rf"another `sluicegate up` \(pid {system.state['pid']}\)")
    system.command("clean-data", "--yes", "--data-dir", str(system.data_dir)).assert_clear(1, "another")


def test_an_asked_port_that_is_taken_is_named(system: System, tmp_path: Path) -> None:
    port = system.state["web"].rpartition(":")[2]
    system.command("up", "--data-dir", str(tmp_path), "--port", port).assert_clear(
        1, f"port {port} .*is taken"
    )


def test_bad_rows_of_cards_are_named_and_good_ones_kept(system: System, tmp_path: Path) -> None:
    file = tmp_path / "cards.csv"
    file.write_text(
        "card_id,account_id,msisdn\nGOOD1,mesa,1\nnot good!,mesa,2\nGOOD2,nobody,3\nGOOD3,mesa\n,mesa,4\n"
    )
    ended = system.command("cards", "import", str(file))
    ended.assert_clear(
        4, "1 cards? created", "4 rows refused", ":3: card_id", ":4: .*nobody", ":5: has 2 fields", ":6: "
    )
    system.command("cards", "show", "GOOD1").assert_clear(0, "mesa")
    system.command("cards", "show", "nobody").assert_clear(1, "there is no card nobody")
    file.write_text("iccid\n1\n")
    system.command("cards", "import", str(file)).assert_clear(2, "lacks card_id, account_id")


def test_observations_from_a_file_count_once(system: System, tmp_path: Path) -> None:
    cards = tmp_path / "cards.csv"
    cards.write_text("card_id,account_id,polling_enabled\nFILE1,fjord,no\n")
    system.command("cards", "import", str(cards)).assert_clear(0)
    series = tmp_path / "counter.csv"
    series.write_text(
        "when,amount\n2020-01-01T00:00:00Z,1\n2020-01-01T00:01:00Z,2.5\n2020-01-01 00:02,3\n2020-01-01T00:02:00Z,4\n"
    )
    options = (
        "--card",
        "FILE1",
        "--time-column",
        "when",
        "--value-column",
        "amount",
        "--unit",
        "KB",
        "--end-now",
        "--sync",
    )
    ended = system.command("observe", str(series), *options)
    ended.assert_clear(4, "3 applied", ":4: .*has no zone")
    assert system.command("cards", "show", "FILE1", "--json").json["cycle_used_bytes"] == 4000


def test_bad_observations_are_named_by_line(system: System, tmp_path: Path) -> None:
    file = tmp_path / "observations.jsonl"
    at = '"observed_at": "2026-01-01T00:00:00Z"'
    file.write_text(
        "\n".join(
            [
                f'{{"card_id": "UNKNOWN", "kind": "network", {at}, "status": "online"}}',
                "{not json",
                '{"card_id": "FILE1", "kind": "network", "observed_at": "2026-01-01T00:00:00", "status": "online"}',
                f'{{"card_id": "FILE1", "kind": "traffic", {at}, "total_bytes": true}}',
                f'{{"card_id": "FILE1", "kind": "warp", {at}, "total_bytes": 1}}',
            ]
        )
    )
    ended = system.command("observe", str(file), "--sync")
    ended.assert_clear(
        4, ":2: is no JSON", ":3: .*has no zone", ":4: .*integer", ":5: kind", "5 rows refused"
    )
    system.command("observe", str(tmp_path / "none.jsonl")).assert_clear(2, "No such file")
    system.command("explain", "no-id").assert_clear(2, "version 7")


def test_operators_see_and_change_limits(system: System) -> None:
    system.command(
        "slots", "policy", "gateway:mesa", "poll", "--capacity", "4", "--reason", "test"
    ).assert_clear(0)
    system.command(
        "slots", "policy", "mine", "all", "--capacity", "4", "--max-lifetime-ms", "60000"
    ).assert_clear(0)
    system.command("slots", "policy", "mine", "all", "--capacity", "5", "--max-waiting", "7").assert_clear(0)
    own = system.command("slots", "policy", "mine", "--json").json[0]
    assert (own["capacity"], own["max_lifetime_ms"], own["max_waiting"]) == (5, 60000, 7)
    system.command("slots", "explain", "gateway:mesa").assert_clear(0, "poll")
    system.command("slots", "list").assert_clear(0, "gateway:harbor", "workers")
    system.command("slots", "list", "gateway:harbor").assert_clear(0)
    system.command("channels", "pause", "text-demo").assert_clear(0)
    system.command("channels", "resume", "text-demo").assert_clear(0)
    system.command("mode", "show").assert_clear(0, "async")
    system.command("backlog").assert_clear(0, "card.ingest", "harbor")
    system.command("quarantine", "list").assert_clear(0)
    system.command("migrate", "--check").assert_clear(0, "nothing to do")


async def test_a_stop_in_the_middle_loses_nothing_and_no_error_is_logged(system: System) -> None:
    assert list(system.log_lines("error", "critical")) == []
    pids = list(system.state["pids"].values())
    assert system.stop() == 0
    assert alive(pids) == []
    system.start()
    assert "the kept data continues" in system.output
    await collected(system, 100)
    await system.switch_polling(on=False)
    await assert_everything_once(system)
    assert list(system.log_lines("error", "critical")) == []
    await system.switch_polling(on=True)


async def test_a_killed_service_comes_back_and_everything_is_applied_once(system: System) -> None:
    for name in SERVICES:
        await collected(system, 60)
        before = system.kill_child(name)
        await eventually(lambda name=name, before=before: system.state["pids"][name] != before, within=60)  # type: ignore[misc]
    await collected(system, 100)
    await system.switch_polling(on=False)
    await assert_everything_once(system)


async def test_nothing_survives_a_killed_up_and_the_next_one_continues(system: System) -> None:
    await system.switch_polling(on=True)
    await collected(system, 60)
    pids = system.kill()
    await eventually(lambda: not alive(pids), within=30)
    system.start()
    await collected(system, 60)
    await system.switch_polling(on=False)
    await assert_everything_once(system)
