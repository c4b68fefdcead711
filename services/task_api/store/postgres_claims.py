"""Claims in PostgreSQL: every write carries its claim and changes nothing once that is lost."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from servicekit.coalescing import Coalescer
from servicekit.logs import redact_text
from servicekit.metrics import Metric, counter, histogram
from servicekit.postgres import Postgres, load_sql
from task_api.domain.model import (
    Claimed,
    ClaimKey,
    ClaimRequest,
    Completion,
    DueTask,
    EndedClaim,
    Failure,
    ProgressReport,
    Renewed,
    Slot,
    TextPiece,
)
from task_api.domain.ports import Place

_MOST_ITEMS = 64
_MOST_PIECES = 400
_LANES = 2
_MILLISECOND = timedelta(milliseconds=1)
_MAX_ERROR_CHARACTERS = 16_384

Item = TypeVar("Item", Completion, Failure)


class PostgresClaims:
    """The tables ``task_ready``, ``task_lease`` and what their rows turn into. Concurrent writes share statements."""

    def __init__(self, database: Postgres) -> None:
        self._database = database
        self._completing: Coalescer[Completion, EndedClaim | None] = Coalescer(
            self._complete, max_items=_MOST_ITEMS, lanes=_LANES
        )
        self._failing: Coalescer[Failure, EndedClaim | None] = Coalescer(
            self._fail, max_items=_MOST_ITEMS, lanes=_LANES
        )
        self._appending: Coalescer[TextPiece, bool | None] = Coalescer(
            self._append, max_items=_MOST_PIECES, lanes=_LANES
        )

    async def count_ready(self, channel: str, request: ClaimRequest, limit: int, start: int) -> int:
        """Count what could be claimed now from a place of the queue, up to a limit."""
        kinds, versions = _capabilities(request)
        counted = await self._database.pool.fetchval(
            _sql("count_ready"), channel, kinds, versions, limit, start
        )
        return int(counted)

    async def claim(
        self,
        channel: str,
        request: ClaimRequest,
        owner: str,
        *,
        slots: Sequence[Slot],
        lease: timedelta,
        start: int,
    ) -> Sequence[Claimed]:
        """Claim at most one task per slot, looking from a place of the queue."""
        kinds, versions = _capabilities(request)
        rows = await self._database.pool.fetch(
            _sql("claim_tasks"),
            channel,
            kinds,
            versions,
            owner,
            request.worker,
            [slot.token for slot in slots],
            [slot.fence for slot in slots],
            lease // _MILLISECOND,
            start,
        )
        counter(Metric.TASKS_CLAIMED).labels(channel).inc(len(rows))
        for row in rows:
            histogram(Metric.TASK_WAIT_SECONDS).labels(channel).observe(row["waited_seconds"])
        return [_claimed(row, channel, owner, lease) for row in rows]

    async def renew(self, keys: Sequence[ClaimKey], lease: timedelta) -> Sequence[Renewed | None]:
        """Extend claims."""
        rows = await self._database.pool.fetch(_sql("renew_claims"), *_columns(keys), lease // _MILLISECOND)
        renewed = {
            _key(row): Renewed(row["slot_token"], row["remaining_ms"] * _MILLISECOND, row["cancel_requested"])
            for row in rows
        }
        return [renewed.get(key) for key in keys]

    async def expire(self, keys: Sequence[ClaimKey]) -> None:
        """End claims whose slots are gone."""
        await self._database.pool.execute(_sql("expire_claims"), *_columns(keys))

    async def append_text(self, pieces: Sequence[TextPiece]) -> Sequence[bool | None]:
        """Store text events; False for one that came after a greater one and is not stored."""
        return await self._appending.submit(pieces)

    async def report_progress(self, reports: Sequence[ProgressReport]) -> Sequence[bool | None]:
        """Store progress; the last report of a claim counts."""
        latest = {report.key: report for report in reports}
        rows = await self._database.pool.fetch(
            _sql("report_progress"),
            *_columns(list(latest)),
            [report.percent for report in latest.values()],
            [report.message for report in latest.values()],
            [report.seq for report in latest.values()],
        )
        held = {_key(row) for row in rows}
        return [report.key in held or None for report in reports]

    async def complete(self, completions: Sequence[Completion]) -> Sequence[EndedClaim | None]:
        """End claims well; acknowledged after the commit."""
        return await self._completing.submit(completions)

    async def fail(self, failures: Sequence[Failure]) -> Sequence[EndedClaim | None]:
        """End claims badly; acknowledged after the commit."""
        return await self._failing.submit(failures)

    async def release(self, keys: Sequence[ClaimKey]) -> Sequence[EndedClaim | None]:
        """Hand claims back."""
        rows = await self._database.pool.fetch(_sql("release_claims"), *_columns(list(dict.fromkeys(keys))))
        ended = {_key(row): _ended(row, "released") for row in rows}
        return [ended.get(key) for key in keys]

    async def own_ends(self, keys: Sequence[ClaimKey]) -> Sequence[str | None]:
        """Return the outcomes that the claims' own workers have written before."""
        rows = await self._database.pool.fetch(_sql("find_ends"), *_columns(keys))
        found = {_key(row): row["outcome"] for row in rows}
        return [found.get(key) for key in keys]

    async def sweep(self, limit: int) -> Sequence[EndedClaim]:
        """End expired claims."""
        return [_ended(row, "lost") for row in await self._database.pool.fetch(_sql("sweep_claims"), limit)]

    async def promote(self, limit: int, place: Place) -> Sequence[tuple[str, int]]:
        """Make due tasks runnable at the places that ``place`` gives them; answer channel and place of each."""
        async with self._database.transaction() as connection:
            rows = await connection.fetch(_sql("due_tasks"), limit)
            if not rows:
                return []
            orders = await place([DueTask(row["channel"], row["tenant"], row["priority"]) for row in rows])
            await connection.execute(
                _sql("promote_tasks"), [row["due_at"] for row in rows], [row["id"] for row in rows], orders
            )
        return [(row["channel"], order) for row, order in zip(rows, orders, strict=True)]

    async def expire_deadlines(self, limit: int) -> Sequence[UUID]:
        """End waiting tasks whose deadline has passed."""
        return [row["id"] for row in await self._database.pool.fetch(_sql("expire_deadlines"), limit)]

    async def _complete(self, completions: Sequence[Completion]) -> Sequence[EndedClaim | None]:
        return await _once_per_claim(completions, self._complete_rows, "succeeded")

    async def _complete_rows(self, completions: Sequence[Completion]) -> Sequence[Any]:
        exports = [item.export for item in completions]
        return await self._database.pool.fetch(
            _sql("complete_tasks"),
            *_columns([item.key for item in completions]),
            [item.result or "{}" for item in completions],
            [export.export_id if export else None for export in exports],
            [export.object_key if export else None for export in exports],
            [export.row_count if export else None for export in exports],
            [export.size_bytes if export else None for export in exports],
            [export.sha256 if export else None for export in exports],
        )

    async def _fail(self, failures: Sequence[Failure]) -> Sequence[EndedClaim | None]:
        return await _once_per_claim(failures, self._fail_rows, "failed")

    async def _fail_rows(self, failures: Sequence[Failure]) -> Sequence[Any]:
        return await self._database.pool.fetch(
            _sql("fail_tasks"),
            *_columns([item.key for item in failures]),
            [item.error_class for item in failures],
            [_stored_error(item.error) for item in failures],
            [item.retry_after // _MILLISECOND for item in failures],
        )

    async def _append(self, pieces: Sequence[TextPiece]) -> Sequence[bool | None]:
        rows = await self._database.pool.fetch(
            _sql("append_text"),
            *_columns([piece.key for piece in pieces]),
            [piece.seq for piece in pieces],
            [piece.text for piece in pieces],
        )
        last = {_key(row): row["last_seq"] for row in rows}
        old = [piece for piece in pieces if piece.key in last and piece.seq <= last[piece.key]]
        stored = await self._stored_events(old) if old else set()
        return [
            None
            if piece.key not in last
            else piece.seq > last[piece.key] or (piece.key.task_id, piece.key.epoch, piece.seq) in stored
            for piece in pieces
        ]

    async def _stored_events(self, pieces: Sequence[TextPiece]) -> set[tuple[UUID, int, int]]:
        rows = await self._database.pool.fetch(
            _sql("find_events"),
            [piece.key.task_id for piece in pieces],
            [piece.key.epoch for piece in pieces],
            [piece.seq for piece in pieces],
        )
        return {(row["task_id"], row["epoch"], row["seq"]) for row in rows}


async def _once_per_claim(
    items: Sequence[Item], write: Callable[[Sequence[Item]], Awaitable[Sequence[Any]]], outcome: str
) -> Sequence[EndedClaim | None]:
    """Write the first item of every claim; all items of a claim get its answer."""
    first: dict[ClaimKey, Item] = {}
    for item in items:
        first.setdefault(item.key, item)
    ended = {_key(row): _ended(row, outcome) for row in await write(list(first.values()))}
    return [ended.get(item.key) for item in items]


def _sql(name: str) -> str:
    return load_sql(__name__, name)


def _columns(keys: Sequence[ClaimKey]) -> tuple[list[UUID], list[str], list[int]]:
    return [key.task_id for key in keys], [key.owner for key in keys], [key.epoch for key in keys]


def _capabilities(request: ClaimRequest) -> tuple[list[str], list[int]]:
    return list(request.capabilities), list(request.capabilities.values())


def _key(row: Any) -> ClaimKey:
    return ClaimKey(row["task_id"], row["owner"], row["epoch"])


def _ended(row: Any, outcome: str) -> EndedClaim:
    counter(Metric.TASK_ATTEMPTS).labels(row["channel"], outcome).inc()
    return EndedClaim(_key(row), row["channel"], row["slot_token"], row.get("terminal", True))


def _stored_error(error: str) -> str:
    """Return an error as it is stored: secrets hidden, nothing that can't be stored."""
    text = error.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    return redact_text(text)[:_MAX_ERROR_CHARACTERS]


def _claimed(row: Any, channel: str, owner: str, lease: timedelta) -> Claimed:
    return Claimed(
        key=ClaimKey(row["task_id"], owner, row["epoch"]),
        slot=Slot(row["slot_token"], row["slot_fence"]),
        tenant=row["tenant"],
        channel=channel,
        kind=row["kind"],
        payload=row["payload"],
        payload_version=row["payload_version"],
        max_attempts=row["max_attempts"],
        deadline_at=row["deadline_at"],
        traceparent=row["traceparent"],
        lease=lease,
        waited_seconds=row["waited_seconds"],
        run_order=row["run_order"],
    )
