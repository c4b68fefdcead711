import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from opentelemetry import trace

from servicekit import telemetry
from servicekit.errors import Reason, ServiceError
from servicekit.metrics import Metric, counter
from servicekit.settings import TelemetrySettings
from servicekit.span_store import SpanStore, StoredSpan

OBSERVATION = "sluicegate.observation_id"
CANARY = "canary-11ee55"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spans" / "spans.db"


@pytest.fixture
def store(path: Path) -> Iterator[Callable[[], SpanStore]]:
    telemetry.setup("poller", TelemetrySettings(span_store_path=path))
    store = SpanStore(path)

    def flushed() -> SpanStore:
        telemetry.flush()
        return store

    yield flushed
    telemetry.shutdown()
    store.close()


def a_span(number: int, **changes: object) -> StoredSpan:
    fields: dict[str, object] = {
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "parent_span_id": None,
        "name": "apply",
        "kind": "INTERNAL",
        "service": "test",
        "start_ns": time.time_ns(),
        "end_ns": time.time_ns(),
        "status": "UNSET",
        "status_text": "",
        "attributes": {OBSERVATION: f"o{number}"},
        "events": [],
        "links": [],
    }
    return StoredSpan(**(fields | changes))  # type: ignore[arg-type]


def test_off_makes_nothing() -> None:
    telemetry.shutdown()
    assert not telemetry.enabled()
    with telemetry.traced("work", card_id="c") as span:
        assert not span.is_recording()
        assert telemetry.inject() == ""


def test_one_observation_is_found_with_its_batch_but_not_its_neighbours(
    store: Callable[[], SpanStore],
) -> None:
    parents = []
    for number in range(3):
        with telemetry.traced("poll", observation_id=f"o{number}"):
            parents.append(telemetry.inject())
    with telemetry.traced("batch", linked=telemetry.links(parents), count=3), telemetry.traced("write"):
        pass
    for number, parent in enumerate(parents):
        with telemetry.traced("apply", parent=telemetry.extract(parent), observation_id=f"o{number}"):
            pass
    spans = store().whole_traces(OBSERVATION, "o1")
    assert [span.name for span in spans] == ["poll", "batch", "write", "apply"]
    poll, batch, write, apply = spans
    assert apply.parent_span_id == poll.span_id
    assert write.parent_span_id == batch.span_id
    assert (poll.trace_id, poll.span_id) in batch.links
    assert {span.service for span in spans} == {"poller"}


def test_links_are_not_lost_silently(store: Callable[[], SpanStore]) -> None:
    parents = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 201)]
    with telemetry.traced("batch", observation_id="o", linked=telemetry.links(parents)):
        pass
    (span,) = store().spans_by_attribute(OBSERVATION, "o")
    assert len(span.links) == 200


def test_only_the_allowed_ids_are_indexed(store: Callable[[], SpanStore]) -> None:
    with telemetry.traced("work", account_id="a", task_id="t", card_id="c"):
        pass
    found = {
        name: len(store().spans_by_attribute(f"sluicegate.{name}", name[0]))
        for name in ("account_id", "task_id", "card_id")
    }
    assert found == {"account_id": 0, "task_id": 1, "card_id": 1}


def test_an_attribute_that_is_not_registered_is_a_bug(store: Callable[[], SpanStore]) -> None:
    with pytest.raises(KeyError, match="CARDID"), telemetry.traced("work", cardid="c"):
        pass


def test_failures_are_recorded_by_kind(store: Callable[[], SpanStore]) -> None:
    def fail(error: BaseException, name: str) -> None:
        with pytest.raises(type(error)), telemetry.traced(name, card_id="c"):
            raise error

    fail(ServiceError(Reason.SLOT_LOST, "lost"), "expected")
    fail(RuntimeError(f"password={CANARY}"), "bug")
    fail(asyncio.CancelledError(), "cancelled")
    spans = {span.name: span for span in store().spans_by_attribute("sluicegate.card_id", "c")}
    assert (spans["expected"].status_text, len(spans["expected"].events)) == ("SLOT_LOST", 0)
    assert (spans["bug"].status_text, len(spans["bug"].events)) == ("RuntimeError", 1)
    assert spans["cancelled"].status_text == "CANCELLED"


def test_no_secret_reaches_the_store(store: Callable[[], SpanStore], path: Path) -> None:
    with pytest.raises(RuntimeError), telemetry.traced("work", source=f"redis://:{CANARY}@host"):
        raise RuntimeError(f"could not use password={CANARY} of postgresql://u:{CANARY}@h")
    store().close()
    files = [file.read_bytes() for file in path.parent.iterdir()]
    assert not any(CANARY.encode() in content for content in files)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        "00-0-0-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "g" * 32 + "-" + "1" * 16 + "-01",
    ],
)
def test_a_traceparent_that_is_none_is_ignored(text: str | None) -> None:
    assert not trace.get_current_span(telemetry.extract(text)).get_span_context().is_valid
    assert telemetry.links([text]) == []


def test_a_traceparent_comes_back_as_it_went() -> None:
    text = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    assert telemetry.inject(telemetry.extract(text)) == text


def test_the_store_keeps_the_newest_rows(path: Path) -> None:
    store = SpanStore(path, max_rows=100)
    store.write([a_span(number) for number in range(1, 251)])
    store.trim()
    kept = [number for number in range(1, 251) if store.spans_by_attribute(OBSERVATION, f"o{number}")]
    assert kept == list(range(151, 251))
    assert store.trim() == 0


def test_the_store_forgets_what_is_too_old(path: Path) -> None:
    store = SpanStore(path, max_age=timedelta(hours=1))
    old = time.time_ns() - int(2 * 3600 * 1e9)
    store.write([a_span(1, start_ns=old, end_ns=old), a_span(2)])
    store.trim()
    assert store.spans_by_attribute(OBSERVATION, "o1") == []
    assert len(store.spans_by_attribute(OBSERVATION, "o2")) == 1


def _write_many(path: Path, first: int) -> None:
    store = SpanStore(path)
    for number in range(first, first + 20):
        store.write([a_span(number)])


def test_several_processes_write_one_store(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(path, first)) for first in (1, 101, 201)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    ids = [f"{number:032x}" for first in (1, 101, 201) for number in range(first, first + 20)]
    assert len(SpanStore(path).traces(ids)) == 60


def test_a_store_that_cannot_be_written_costs_spans_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    telemetry.setup("x", TelemetrySettings(span_store_path=tmp_path / "file" / "spans.db"))
    with telemetry.traced("work"):
        pass
    telemetry.flush()
    telemetry.shutdown()


def test_metric_names_follow_one_rule() -> None:
    names = [metric.value.name for metric in Metric]
    assert len(set(names)) == len(names)
    assert all(name.startswith("sluicegate_") for name in names)
    assert counter(Metric.POLLS) is counter(Metric.POLLS)
