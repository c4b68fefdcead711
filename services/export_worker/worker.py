"""The worker's edge: a claimed task in, a published export and its pointer out."""

from export_worker.domain.export import Exporter, ExportReport
from export_worker.domain.request import parse_request
from servicekit import telemetry
from servicekit.errors import Reason, ServiceError
from servicekit.ids import new_token
from servicekit.logs import get_logger
from sluicegate_client.worker import (
    ExportPointer,
    PermanentError,
    TaskContext,
    TaskError,
    TaskResult,
    TransientError,
    Worker,
)

KIND = "export"
"""The kind of task that this worker runs."""

_PERMANENT = frozenset({Reason.INVALID_FIELD, Reason.NOT_FOUND, Reason.KEY_REUSED, Reason.NOT_ALLOWED})
_ROWS_STEP = 100_000

_log = get_logger(__name__)


def add_handler(worker: Worker, exporter: Exporter) -> None:
    """Let the worker run exports of payload version 1."""

    @worker.handler(KIND, max_payload_version=1)
    async def run_export(task: TaskContext) -> TaskResult:
        with telemetry.traced("export", parent=telemetry.extract(task.traceparent), task_id=task.task_id):
            try:
                report = await _run(task, exporter)
            except ServiceError as error:
                raise _classified(error) from error
        return _result(report)


async def _run(task: TaskContext, exporter: Exporter) -> ExportReport:
    request = parse_request(task.payload)

    async def progress(rows: int) -> None:
        # The total is unknown, so the bar only says that rows are flowing: it nears 99 as they do.
        await task.progress(min(99, 100 * rows // (rows + _ROWS_STEP)), f"{rows} rows")

    attempt = f"{task.epoch}-{new_token()[:12]}"
    report = await exporter.run(request, attempt=attempt, progress=progress)
    _log.info(
        "export published",
        export_id=request.export_id,
        task_id=task.task_id,
        rows=report.manifest.row_count,
        reused=report.reused,
    )
    return report


def _result(report: ExportReport) -> TaskResult:
    manifest = report.manifest
    return TaskResult(
        value={
            **manifest.as_dict(),
            "reused": report.reused,
            "compute_seconds": round(report.compute_seconds, 3),
            "database_seconds": round(report.database_seconds, 3),
            "storage_seconds": round(report.storage_seconds, 3),
        },
        export=ExportPointer(
            export_id=manifest.export_id,
            object_key=manifest.object_key,
            row_count=manifest.row_count,
            size_bytes=manifest.size_bytes,
            sha256=manifest.sha256,
        ),
    )


def _classified(error: ServiceError) -> TaskError:
    if error.reason in _PERMANENT:
        return PermanentError(error.message)
    return TransientError(error.message)
