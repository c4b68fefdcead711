"""Tenants, routes and changes by hand in PostgreSQL; no change without its audit row."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from servicekit.postgres import Postgres, load_sql
from task_api.domain.model import LedgerEntry, Route, Tenant
from task_api.domain.operations import Change, TaskFilter


class PostgresOperations:
    """The tables ``task_tenant``, ``quota``, ``ledger_entry`` and ``route``."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    async def save_tenant(self, tenant: Tenant, change: Change) -> Tenant:
        """Store a tenant's weight and quota."""
        row = await self._database.pool.fetchrow(
            _sql("save_tenant"), tenant.name, tenant.weight, tenant.quota, change.actor, change.reason
        )
        return _tenant(row)

    async def tenants(self) -> Sequence[Tenant]:
        """Return the tenants that have a weight or a quota."""
        return [_tenant(row) for row in await self._database.pool.fetch(_sql("read_tenants"))]

    async def ledger(self, tenant: str, *, before: int | None, limit: int) -> Sequence[LedgerEntry]:
        """Return a tenant's entries, newest first."""
        rows = await self._database.pool.fetch(_sql("list_ledger"), tenant, before, limit)
        return [LedgerEntry(**dict(row)) for row in rows]

    async def save_route(self, route: Route, change: Change) -> Route | None:
        """Store a route; None when the version given is not the stored one."""
        row = await self._database.pool.fetchrow(
            _sql("save_route"), route.model, route.channel, route.version, change.actor, change.reason
        )
        return Route(row["model"], row["channel"], row["version"]) if row else None

    async def delete_route(self, model: str, change: Change) -> bool:
        """Forget a route; False when there was none."""
        gone = await self._database.pool.fetchval(_sql("delete_route"), model, change.actor, change.reason)
        return gone is not None

    async def dispatch(self, task_id: UUID, change: Change) -> str | None:
        """Put a waiting task first; answer its channel, or None when it does not wait."""
        row = await self._database.pool.fetchrow(_sql("dispatch_task"), task_id, change.actor, change.reason)
        return str(row["channel"]) if row else None

    async def find(self, tasks: TaskFilter, *, ended: bool, after: UUID | None, limit: int) -> Sequence[UUID]:
        """Return tasks, oldest first: failed and cancelled ones, or those that have not ended."""
        rows = await self._database.pool.fetch(
            _sql("find_tasks"),
            tasks.tenant,
            tasks.channel,
            tasks.kind,
            tasks.created_from,
            tasks.created_before,
            ended,
            after,
            limit,
        )
        return [row["id"] for row in rows]

    async def audit(self, action: str, subject: str, after: str, change: Change) -> None:
        """Write an audit row."""
        await self._database.pool.execute(
            _sql("add_audit"), change.actor, action, subject, change.reason, after
        )


def _sql(name: str) -> str:
    return load_sql(__name__, name)


def _tenant(row: Any) -> Tenant:
    return Tenant(
        name=row["name"],
        weight=row["weight"],
        quota=row["unit_limit"],
        reserved=row["reserved"],
        spent=row["spent"],
        version=row["version"],
    )
