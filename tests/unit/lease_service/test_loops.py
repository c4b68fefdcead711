"""Timed roles: what they do when an engine is away."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from lease_service.domain.model import AuditEvent, PoolPolicies, PoolState, ReapResult
from lease_service.loops.audit_drain import AuditDrain
from lease_service.loops.reaper import Reaper
from servicekit.clock import ManualClock


class Names:
    def __init__(self) -> None:
        self.away = False
        self.names = ["a", "b"]

    async def pools(self) -> list[str]:
        if self.away:
            raise ConnectionResetError
        return self.names

    async def read(self, pool: str) -> PoolPolicies:
        return PoolPolicies(pool, {})


class Leases:
    def __init__(self) -> None:
        self.expired = {"a": 70, "b": 0}
        self.recounted: list[str] = []

    async def reap(self, pool: str) -> ReapResult:
        reaped = min(32, self.expired[pool])
        self.expired[pool] -= reaped
        return ReapResult(reaped, self.expired[pool] > 0, 0)

    async def recount(self, pool: str, most: int) -> int:
        self.recounted.append(pool)
        return 0

    async def explain(self, policies: PoolPolicies) -> PoolState:
        return PoolState([], 0, 0)


async def test_the_reaper_goes_on_with_the_pools_it_knows_when_the_database_is_away() -> None:
    leases, names, clock = Leases(), Names(), ManualClock()
    reaper = Reaper(leases, names, clock=clock, recount_every=10, recount_most=100)
    await reaper.run_once()
    assert leases.expired["a"] == 0
    assert leases.recounted == ["a", "b"]
    names.away = True
    leases.expired["b"] = 5
    with pytest.raises(ConnectionResetError):
        await reaper.run_once()
    assert leases.expired["b"] == 0
    assert leases.recounted == ["a", "b"]


class Source:
    def __init__(self, count: int) -> None:
        self.events = [
            AuditEvent(pool="a", event_id=f"{number}-0", kind="grant", at=datetime(2026, 1, 1, tzinfo=UTC))
            for number in range(count)
        ]
        self.trimmed: list[str] = []

    async def pools_with_audit(self, pools: Sequence[str]) -> list[str]:
        return ["a"] if self.events else []

    async def read_audit(self, pool: str, most: int) -> list[AuditEvent]:
        return self.events[:most]

    async def trim_audit(self, pool: str, last_id: str) -> int:
        self.trimmed.append(last_id)
        while self.events and int(self.events[0].event_id.split("-")[0]) <= int(
            last_id.split("-", maxsplit=1)[0]
        ):
            self.events.pop(0)
        return len(self.events)


class Target:
    def __init__(self) -> None:
        self.stored: list[str] = []
        self.away = False
        self.purged: list[datetime] = []

    async def pools(self) -> list[str]:
        return ["a"]

    async def put_audit(self, events: Sequence[AuditEvent]) -> None:
        if self.away:
            raise ConnectionResetError
        self.stored += [event.event_id for event in events]

    async def purge_audit(self, before: datetime, most: int) -> int:
        self.purged.append(before)
        return 0


async def test_audit_is_forgotten_only_after_it_is_stored() -> None:
    source, target, clock = Source(25), Target(), ManualClock()
    drain = AuditDrain(source, target, batch=10, retention=timedelta(days=30), clock=clock)
    target.away = True
    with pytest.raises(ConnectionResetError):
        await drain.run_once()
    assert len(source.events) == 25
    target.away = False
    assert [await drain.run_once() for _ in range(3)] == [True, True, False]
    assert target.stored == [f"{number}-0" for number in range(25)]
    assert source.events == []


async def test_old_audit_is_purged_now_and_then() -> None:
    target, clock = Target(), ManualClock()
    drain = AuditDrain(Source(0), target, batch=10, retention=timedelta(days=30), clock=clock)
    await drain.run_once()
    await drain.run_once()
    assert target.purged == [clock.now() - timedelta(days=30)]
    clock.advance(600)
    await drain.run_once()
    assert len(target.purged) == 2
