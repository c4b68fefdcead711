"""Channels and the audit in PostgreSQL."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from servicekit.postgres import Postgres, load_sql
from task_api.domain.model import AuditRow, ChannelLoad, ChannelPolicy, Route


class PostgresChannels:
    """The tables ``channel`` and ``task_audit``; no change without its audit row."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    async def read(self) -> Sequence[ChannelPolicy]:
        """Return every channel."""
        return [_policy(row) for row in await self._database.pool.fetch(_sql("read_channels"))]

    async def routes(self) -> Sequence[Route]:
        """Return every route."""
        rows = await self._database.pool.fetch(_sql("read_routes"))
        return [Route(row["model"], row["channel"], row["version"]) for row in rows]

    async def loads(self) -> dict[str, ChannelLoad]:
        """Return what waits and runs, by channel."""
        return {
            row["name"]: ChannelLoad(
                row["ready_count"],
                row["deferred_count"],
                row["running_count"],
                timedelta(milliseconds=row["oldest_ready_ms"]),
            )
            for row in await self._database.pool.fetch(_sql("channel_counts"))
        }

    async def backlog(self, name: str, limit: int) -> int:
        """Count the waiting tasks of a channel, up to a limit."""
        return int(await self._database.pool.fetchval(_sql("count_backlog"), name, limit))

    async def oldest(self, name: str) -> timedelta:
        """Return how long the oldest runnable task has waited."""
        return timedelta(milliseconds=await self._database.pool.fetchval(_sql("oldest_ready"), name))

    async def save(self, policy: ChannelPolicy, *, actor: str, reason: str) -> ChannelPolicy:
        """Store a channel and its audit row."""
        row = await self._database.pool.fetchrow(
            _sql("save_channel"),
            policy.name,
            policy.concurrency,
            policy.max_backlog,
            policy.max_attempts,
            policy.paused,
            actor,
            reason,
            policy.max_age // timedelta(milliseconds=1),
        )
        return _policy(row)

    async def pause(self, name: str, *, paused: bool, actor: str, reason: str) -> ChannelPolicy | None:
        """Pause or resume a channel and write its audit row; None when there is none of that name."""
        row = await self._database.pool.fetchrow(_sql("pause_channel"), name, paused, actor, reason)
        return _policy(row) if row else None

    async def audit(self, *, before: int | None, limit: int) -> Sequence[AuditRow]:
        """Return audit rows, newest first."""
        rows = await self._database.pool.fetch(_sql("list_audit"), before, limit)
        return [
            AuditRow(
                audit_id=row["audit_id"],
                changed_at=row["changed_at"],
                actor=row["actor"],
                action=row["action"],
                subject=row["subject"],
                reason=row["reason"],
                before=row["before"] or "",
                after=row["after"] or "",
            )
            for row in rows
        ]


def _sql(name: str) -> str:
    return load_sql(__name__, name)


def _policy(row: Any) -> ChannelPolicy:
    return ChannelPolicy(
        name=row["name"],
        concurrency=row["concurrency"],
        max_backlog=row["max_backlog"],
        max_attempts=row["max_attempts"],
        paused=row["paused"],
        version=row["version"],
        max_age=timedelta(milliseconds=row["max_age_ms"]),
    )
