"""The one use-case: one export id, one published result, whatever dies in between.

Rows are staged in an object of this attempt's own. Publishing creates the export's manifest, which names a staged
object, only if there is none yet. So at every moment there is no result or exactly one, and an attempt that finds a
manifest takes it instead of writing again, also when its own publish timed out but had landed.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from export_worker.domain.encoding import RecordRow, csv_header, csv_rows
from export_worker.domain.request import ExportRequest
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was published for an export; ``size_bytes`` and ``sha256`` are of the object that ``object_key`` names."""

    export_id: str
    account_id: str
    observed_from: str
    observed_until: str
    export_format: str
    object_key: str
    row_count: int
    size_bytes: int
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one export may use: rows in all, rows in memory at once."""

    max_rows: int
    batch_rows: int


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The published result and where the time went, in seconds; ``reused`` when an earlier attempt had published."""

    manifest: Manifest
    reused: bool
    compute_seconds: float = 0.0
    database_seconds: float = 0.0
    storage_seconds: float = 0.0


class StageWriter(Protocol):
    """An object that is being written."""

    async def write(self, data: bytes) -> None:
        """Append bytes; raises ServiceError DEPENDENCY_AWAY when the store is away."""
        ...


class ExportStore(Protocol):
    """Where exports are kept."""

    async def read_manifest(self, export_id: str) -> Manifest | None:
        """Return what was published, or None; raises ServiceError DEPENDENCY_AWAY."""
        ...

    def stage(self, object_key: str) -> AbstractAsyncContextManager[StageWriter]:
        """Open a new object; it exists once the block ends without an error."""
        ...

    async def publish(self, manifest: Manifest) -> Manifest:
        """Create the manifest if there is none; return the one that is there afterwards."""
        ...

    async def discard_others(self, export_id: str, keep: str) -> None:
        """Delete staged objects of the export that are not the published one."""
        ...


class RecordSource(Protocol):
    """Where the rows come from."""

    async def has_account(self, account_id: str) -> bool:
        """Tell whether the account exists."""
        ...

    def batches(self, request: ExportRequest, batch_rows: int) -> AsyncIterator[Sequence[RecordRow]]:
        """Yield the rows in order of (observed_at, observation_id) from one snapshot."""
        ...


Progress = Callable[[int], Awaitable[None]]
"""Told the rows written so far after each batch; raising stops the export."""


class Exporter:
    """Runs exports against one source and one store."""

    def __init__(self, *, source: RecordSource, store: ExportStore, limits: Limits, clock: Clock) -> None:
        self._source = source
        self._store = store
        self._limits = limits
        self._clock = clock

    async def run(self, request: ExportRequest, *, attempt: str, progress: Progress) -> ExportReport:
        """Publish the export, or find that it is published.

        Args:
            request: what to export.
            attempt: names this attempt alone; part of the staged object's key.
            progress: called after each batch.

        Raises:
            ServiceError: NOT_FOUND (no such account), KEY_REUSED (the id was published for another request),
                INVALID_FIELD (more rows than allowed), DEPENDENCY_AWAY (database or store).
        """
        published = await self._store.read_manifest(request.export_id)
        if published is not None:
            return ExportReport(_same_request(published, request), reused=True)
        if not await self._source.has_account(request.account_id):
            raise ServiceError(Reason.NOT_FOUND, f"there is no account {request.account_id}")
        staged = await _Staging(self, request, attempt).write(progress)
        winner = _same_request(await self._store.publish(staged.manifest), request)
        await self._store.discard_others(request.export_id, keep=winner.object_key)
        reused = winner.object_key != staged.manifest.object_key
        return ExportReport(
            winner, reused, staged.compute_seconds, staged.database_seconds, staged.storage_seconds
        )

    @property
    def parts(self) -> tuple[RecordSource, ExportStore, Limits, Clock]:
        """Return what an attempt works with."""
        return self._source, self._store, self._limits, self._clock


class _Staging:
    """Writes the rows of one attempt and measures where the time goes."""

    def __init__(self, exporter: Exporter, request: ExportRequest, attempt: str) -> None:
        self._source, self._store, self._limits, self._clock = exporter.parts
        self._request = request
        self._key = f"exports/{request.export_id}/{attempt}.{request.export_format}"
        self._digest = hashlib.sha256()
        self._size_bytes = 0
        self._seconds = {"compute": 0.0, "database": 0.0, "storage": 0.0}
        self._mark = self._clock.monotonic()

    async def write(self, progress: Progress) -> ExportReport:
        row_count = 0
        async with self._store.stage(self._key) as writer:
            await self._append(writer, csv_header())
            async for rows in self._source.batches(self._request, self._limits.batch_rows):
                self._lap("database")
                row_count += len(rows)
                self._check(row_count)
                await self._append(writer, csv_rows(rows))
                await progress(row_count)
                self._lap("storage")
            self._lap("database")
        self._lap("storage")
        return ExportReport(
            self._manifest(row_count),
            False,
            self._seconds["compute"],
            self._seconds["database"],
            self._seconds["storage"],
        )

    async def _append(self, writer: StageWriter, data: bytes) -> None:
        self._digest.update(data)
        self._size_bytes += len(data)
        self._lap("compute")
        await writer.write(data)
        self._lap("storage")

    def _check(self, row_count: int) -> None:
        if row_count > self._limits.max_rows:
            raise ServiceError(
                Reason.INVALID_FIELD,
                f"the range holds more than {self._limits.max_rows} rows: ask for a shorter one",
            )

    def _manifest(self, row_count: int) -> Manifest:
        request = self._request
        return Manifest(
            export_id=request.export_id,
            account_id=request.account_id,
            observed_from=request.observed_from.isoformat(),
            observed_until=request.observed_until.isoformat(),
            export_format=request.export_format,
            object_key=self._key,
            row_count=row_count,
            size_bytes=self._size_bytes,
            sha256=self._digest.hexdigest(),
        )

    def _lap(self, phase: str) -> None:
        now = self._clock.monotonic()
        self._seconds[phase] += now - self._mark
        self._mark = now


def _same_request(manifest: Manifest, request: ExportRequest) -> Manifest:
    wanted = (
        request.account_id,
        request.observed_from.isoformat(),
        request.observed_until.isoformat(),
        request.export_format,
    )
    found = (manifest.account_id, manifest.observed_from, manifest.observed_until, manifest.export_format)
    if wanted != found:
        raise ServiceError(
            Reason.KEY_REUSED,
            f"export {request.export_id} was published for another request: use a fresh export_id",
        )
    return manifest
