"""One export id gives one published result, whatever dies in between; on a real folder."""

import asyncio
import csv
import hashlib
import io
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from export_worker.domain.encoding import COLUMNS, RecordRow
from export_worker.domain.export import Exporter, ExportReport, Limits, Manifest
from export_worker.domain.request import ExportRequest
from export_worker.store.objects import ObjectExportStore, open_store
from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError

START = datetime(2026, 11, 1, tzinfo=UTC)
REQUEST = ExportRequest("e1", "north", START, START + timedelta(days=1))


def row(number: int, *, error: str | None = None) -> RecordRow:
    at = START + timedelta(seconds=number)
    return RecordRow(at, f"id-{number}", "8988", "traffic", "success", '{"total_bytes":1}', error, 5, at)


class Rows:
    """A source of made rows that can break at a given one."""

    def __init__(self, rows: Sequence[RecordRow], *, break_at: int | None = None) -> None:
        self.rows = rows
        self.break_at = break_at
        self.largest_batch = 0

    async def has_account(self, account_id: str) -> bool:
        return account_id == "north"

    async def batches(self, request: ExportRequest, batch_rows: int) -> AsyncIterator[Sequence[RecordRow]]:
        for start in range(0, len(self.rows), batch_rows):
            if self.break_at is not None and start >= self.break_at:
                raise ServiceError(Reason.DEPENDENCY_AWAY, "the database is away")
            batch = self.rows[start : start + batch_rows]
            self.largest_batch = max(self.largest_batch, len(batch))
            yield batch


async def nothing(_rows: int) -> None:
    await asyncio.sleep(0)


def exporter(folder: Path, source: Rows, *, max_rows: int = 1000) -> Exporter:
    store = ObjectExportStore(open_store(str(folder)))
    return Exporter(source=source, store=store, limits=Limits(max_rows, 10), clock=ManualClock())


async def run(folder: Path, source: Rows, attempt: str = "1-a") -> ExportReport:
    return await exporter(folder, source).run(REQUEST, attempt=attempt, progress=nothing)


def published(folder: Path, manifest: Manifest) -> bytes:
    return (folder / manifest.object_key).read_bytes()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


async def test_rows_come_out_as_they_went_in(tmp_path: Path) -> None:
    rows = [row(number) for number in range(25)]
    report = await run(tmp_path, Rows(rows))
    data = published(tmp_path, report.manifest)
    lines = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert tuple(lines[0]) == COLUMNS
    assert [line[1] for line in lines[1:]] == [r.observation_id for r in rows]
    assert lines[1][0] == "2026-11-01T00:00:00.000000Z"
    assert report.manifest.row_count == 25
    assert report.manifest.size_bytes == len(data)
    assert report.manifest.sha256 == hashlib.sha256(data).hexdigest()
    assert not report.reused


async def test_memory_holds_one_batch(tmp_path: Path) -> None:
    source = Rows([row(number) for number in range(95)])
    await run(tmp_path, source)
    assert source.largest_batch == 10


async def test_an_empty_range_is_a_result_with_a_header(tmp_path: Path) -> None:
    report = await run(tmp_path, Rows([]))
    assert report.manifest.row_count == 0
    assert published(tmp_path, report.manifest).count(b"\n") == 1


async def test_a_gateway_message_is_no_formula(tmp_path: Path) -> None:
    report = await run(tmp_path, Rows([row(1, error='=HYPERLINK("x")')]))
    assert b"'=HYPERLINK" in published(tmp_path, report.manifest)


async def test_an_attempt_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="away"):
        await run(tmp_path, Rows([row(number) for number in range(50)], break_at=20))
    assert files(tmp_path) == set()


async def test_a_cancelled_attempt_leaves_nothing(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def hold(_rows: int) -> None:
        reached.set()
        await asyncio.Event().wait()

    source = Rows([row(number) for number in range(50)])
    task = asyncio.create_task(exporter(tmp_path, source).run(REQUEST, attempt="1-a", progress=hold))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert files(tmp_path) == set()


async def test_a_second_attempt_finds_what_the_first_published(tmp_path: Path) -> None:
    first = await run(tmp_path, Rows([row(1)]))
    second = await run(tmp_path, Rows([row(1), row(2)]), attempt="2-b")
    assert second.reused
    assert second.manifest == first.manifest
    assert len(files(tmp_path)) == 2


async def test_two_attempts_at_once_publish_one_result(tmp_path: Path) -> None:
    source = Rows([row(number) for number in range(40)])
    reports = await asyncio.gather(*(run(tmp_path, source, attempt=f"{number}-x") for number in range(1, 6)))
    assert len({report.manifest.object_key for report in reports}) == 1
    assert sum(not report.reused for report in reports) == 1
    assert files(tmp_path) == {reports[0].manifest.object_key, "exports/e1/manifest.json"}


async def test_killed_after_staging_the_next_attempt_publishes_its_own(tmp_path: Path) -> None:
    orphan = tmp_path / "exports" / "e1" / "1-a.csv"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"half")
    report = await run(tmp_path, Rows([row(1)]), attempt="2-b")
    assert report.manifest.object_key == "exports/e1/2-b.csv"
    assert not orphan.exists()


async def test_one_id_for_two_requests_is_refused(tmp_path: Path) -> None:
    await run(tmp_path, Rows([row(1)]))
    other = ExportRequest("e1", "north", START, START + timedelta(days=2))
    with pytest.raises(ServiceError) as caught:
        await exporter(tmp_path, Rows([])).run(other, attempt="1-z", progress=nothing)
    assert caught.value.reason is Reason.KEY_REUSED


async def test_an_unknown_account_and_too_many_rows_are_refused(tmp_path: Path) -> None:
    unknown = ExportRequest("e2", "nowhere", START, START + timedelta(days=1))
    with pytest.raises(ServiceError) as caught:
        await exporter(tmp_path, Rows([])).run(unknown, attempt="1", progress=nothing)
    assert caught.value.reason is Reason.NOT_FOUND
    source = Rows([row(number) for number in range(50)])
    with pytest.raises(ServiceError) as caught:
        await exporter(tmp_path, source, max_rows=20).run(REQUEST, attempt="1", progress=nothing)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert files(tmp_path) == set()


async def test_a_store_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(ServiceError) as caught:
        open_store(str(blocker / "below"))
    assert caught.value.reason is Reason.DEPENDENCY_AWAY
