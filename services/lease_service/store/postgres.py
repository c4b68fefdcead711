"""Policies and audit in PostgreSQL."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from lease_service.domain.model import (
    DEFAULT_TTL_MS,
    AuditEvent,
    AuditKind,
    Policy,
    PolicyChange,
    PoolPolicies,
    StoredPolicies,
)
from servicekit.errors import Reason, ServiceError
from servicekit.postgres import Connection, Postgres, load_sql

_PACKAGE = "lease_service"


class PostgresPolicies:
    """Policies of every pool and the audit of slots.

    Args:
        database: the process's pool of connections.
    """

    def __init__(self, database: Postgres) -> None:
        self._database = database

    async def read(self, pool: str) -> PoolPolicies:
        """Read the policies of one pool; empty for an unknown one."""
        rows = await self._database.pool.fetch(load_sql(_PACKAGE, "pool_policies"), pool)
        scopes = {row["scope"]: _policy(row) for row in rows}
        return PoolPolicies(
            pool, scopes, max((row["longest_ttl_ms"] for row in rows), default=DEFAULT_TTL_MS)
        )

    async def read_all(self) -> list[Policy]:
        """Read every policy, in order of pool and scope."""
        return [_policy(row) for row in await self._database.pool.fetch(load_sql(_PACKAGE, "all_policies"))]

    async def pools(self) -> list[str]:
        """Return the names of all pools."""
        return [row["pool"] for row in await self._database.pool.fetch(load_sql(_PACKAGE, "pools"))]

    async def set(self, change: PolicyChange) -> StoredPolicies:
        """Store the policy of one scope and its audit event; the same values again change nothing.

        Raises:
            ServiceError: STALE_VERSION when the stored version is another than the expected one.
        """

        async def apply(connection: Connection, rows: Sequence[Any]) -> list[Any]:
            stored = next((_policy(row) for row in rows if row["scope"] == change.scope), None)
            _check_version(change, stored.version if stored else 0)
            wanted = change.applied_to(stored)
            if stored and wanted == stored.rules:
                return []
            return [
                await connection.fetchrow(
                    load_sql(_PACKAGE, "put_policy"),
                    change.pool,
                    change.scope,
                    wanted.capacity,
                    wanted.max_lifetime_ms,
                    any(row["paused"] for row in rows),
                    max((row["longest_ttl_ms"] for row in rows), default=DEFAULT_TTL_MS),
                    _next_version(rows),
                    wanted.max_waiting,
                    wanted.max_waiting_per_tenant,
                    json.dumps(wanted.shares, sort_keys=True),
                )
            ]

        return await self._change(change.pool, AuditKind.POLICY, change.actor, _note(change), apply)

    async def pause(self, pool: str, *, paused: bool, actor: str, reason: str) -> StoredPolicies:
        """Stop or allow new grants of a pool; the pool may be in that state already.

        Raises:
            ServiceError: NOT_FOUND when the pool has no policy.
        """

        async def apply(connection: Connection, rows: Sequence[Any]) -> list[Any]:
            if not rows:
                raise ServiceError(Reason.NOT_FOUND, f"pool {pool} has no policy")
            return await connection.fetch(load_sql(_PACKAGE, "pause_pool"), pool, paused, _next_version(rows))

        return await self._change(pool, AuditKind.PAUSE if paused else AuditKind.RESUME, actor, reason, apply)

    async def widen_ttl(self, pool: str, ttl_ms: int) -> None:
        """Remember that a longer ttl is about to be granted."""
        await self._database.pool.execute(load_sql(_PACKAGE, "widen_ttl"), pool, ttl_ms)

    async def put_audit(self, events: Sequence[AuditEvent]) -> None:
        """Store audit events; those that are stored already are left as they are."""
        await self._database.pool.execute(load_sql(_PACKAGE, "put_audit"), *_columns(events))

    async def purge_audit(self, before: datetime, most: int) -> int:
        """Delete at most that many events from before an instant; returns how many."""
        deleted: int = await self._database.pool.fetchval(load_sql(_PACKAGE, "purge_audit"), before, most)
        return deleted

    async def _change(
        self,
        pool: str,
        kind: AuditKind,
        actor: str,
        note: str,
        apply: Callable[[Connection, Sequence[Any]], Any],
    ) -> StoredPolicies:
        async with self._database.transaction() as connection:
            await connection.fetchrow(load_sql(_PACKAGE, "lock_pool"), pool)
            rows = await connection.fetch(load_sql(_PACKAGE, "pool_policies"), pool)
            changed = [_policy(row) for row in await apply(connection, rows)]
            events = [_change_event(policy, kind, actor, note) for policy in changed]
            if events:
                await connection.execute(load_sql(_PACKAGE, "put_audit"), *_columns(events))
        unchanged = {row["scope"]: _policy(row) for row in rows}
        after = unchanged | {policy.scope: policy for policy in changed}
        return StoredPolicies(changed, [after[scope] for scope in sorted(after)], pool_is_new=not rows)


def _policy(row: Any) -> Policy:
    return Policy(
        pool=row["pool"],
        scope=row["scope"],
        capacity=row["capacity"],
        max_lifetime_ms=row["max_lifetime_ms"],
        paused=row["paused"],
        version=row["version"],
        updated_at=row["updated_at"],
        max_waiting=row["max_waiting"],
        max_waiting_per_tenant=row["max_waiting_per_tenant"],
        shares=json.loads(row["tenant_shares"]),
    )


def _check_version(change: PolicyChange, stored: int) -> None:
    if change.expected_version not in (0, stored):
        raise ServiceError(
            Reason.STALE_VERSION,
            f"the policy of {change.pool}/{change.scope} has version {stored}, not {change.expected_version}: "
            "read it again",
            metadata={"version": str(stored)},
        )


def _next_version(rows: Sequence[Any]) -> int:
    return 1 + max((row["version"] for row in rows), default=0)


def _note(change: PolicyChange) -> str:
    parts = [f"capacity {change.capacity}, max_lifetime_ms {change.max_lifetime_ms}"]
    parts += [
        f"{name} {value}"
        for name in ("max_waiting", "max_waiting_per_tenant")
        if (value := getattr(change, name)) is not None
    ]
    parts += [f"share of {tenant} {share}" for tenant, share in change.shares.items()]
    return f"{', '.join(parts)}; {change.reason}".rstrip("; ")


def _change_event(policy: Policy, kind: AuditKind, actor: str, note: str) -> AuditEvent:
    return AuditEvent(
        pool=policy.pool,
        event_id=f"policy-{policy.version}-{policy.scope}",
        kind=kind,
        at=policy.updated_at,
        scopes=(policy.scope,),
        owner=actor,
        note=note,
    )


def _columns(events: Sequence[AuditEvent]) -> list[list[Any]]:
    return [
        [event.pool for event in events],
        [event.event_id for event in events],
        [str(event.kind) for event in events],
        [event.token for event in events],
        [event.at for event in events],
        [event.fence for event in events],
        [event.weight for event in events],
        [",".join(event.scopes) for event in events],
        [event.owner for event in events],
        [event.job for event in events],
        [event.note for event in events],
    ]
