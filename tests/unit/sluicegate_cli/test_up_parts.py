"""Parts of `up` that need no engine."""

import os
import re
from pathlib import Path

import pytest

from devengines.child import birth_of
from gateways.simulator.faults import SCENARIOS
from servicekit.span_store import StoredSpan
from sluicegate_cli.addresses import RunningState, find, find_data_dir
from sluicegate_cli.outcome import CommandError
from sluicegate_cli.span_tree import tree, waterfall
from sluicegate_cli.up.lock import DataLock
from sluicegate_cli.up.options import Scenario
from sluicegate_cli.up.ports import GRPC_PORTS
from sluicegate_cli.up.services import STOP_GROUPS


def span(span_id: str, parent: str | None = None, *, start: int = 0, trace: str = "t") -> StoredSpan:
    return StoredSpan(
        trace_id=trace,
        span_id=span_id,
        parent_span_id=parent,
        name=span_id,
        kind="INTERNAL",
        service="s",
        start_ns=start,
        end_ns=start + 10,
        status="UNSET",
        status_text="",
        attributes={},
        events=[],
        links=[],
    )


def test_children_stand_below_their_parents_in_order_of_time() -> None:
    spans = [
        span("late", "root", start=5),
        span("early", "root", start=3),
        span("root"),
        span("orphan", "gone", start=9),
    ]
    assert [(depth, found.span_id) for depth, found in tree(spans)] == [
        (0, "root"),
        (1, "early"),
        (1, "late"),
        (0, "orphan"),
    ]
    assert len(waterfall(spans)) == len(spans)


def test_one_lock_per_data_directory_names_its_holder(tmp_path: Path) -> None:
    with DataLock(tmp_path), pytest.raises(CommandError, match=rf"pid {os.getpid()}\)"), DataLock(tmp_path):
        pass
    with DataLock(tmp_path):
        pass


def test_the_state_of_a_process_that_is_gone_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SLUICEGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLUICEGATE_DATA_DIR", str(tmp_path))
    services = {"poller": "127.0.0.1:1234"}
    RunningState(os.getpid(), birth_of(os.getpid()), tmp_path, services=services).save()
    assert find().services["poller"] == "127.0.0.1:1234"
    RunningState(os.getpid(), "another birth", tmp_path, services=services).save()
    assert find().services["poller"] == "127.0.0.1:7102"
    monkeypatch.setenv("SLUICEGATE_POLLER", "elsewhere:1")
    assert find().services["poller"] == "elsewhere:1"
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


def test_data_is_found_from_a_folder_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICEGATE_DATA_DIR", raising=False)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / ".sluicegate").mkdir()
    monkeypatch.chdir(below)
    assert find_data_dir() == tmp_path / ".sluicegate"


def test_a_secret_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLUICEGATE_AUTH_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(CommandError, match=re.escape(str(tmp_path / "none"))):
        find()


def test_everybody_is_stopped_once_and_nobody_before_its_senders() -> None:
    order = [name for group in STOP_GROUPS for name in group]
    assert len(order) == len(set(order))
    assert set(GRPC_PORTS) <= set(order)
    assert order.index("poller") < order.index("ingest_service") < order.index("collection_writer")
    assert order.index("lease_service") > order.index("task_api")


def test_every_scenario_of_the_simulator_can_be_asked_for() -> None:
    assert {scenario.value for scenario in Scenario} == set(SCENARIOS)
