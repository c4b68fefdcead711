"""One replica of the lease service without its gRPC edge, racing for slots as fast as it can; killed at any moment.

It works on Redis through the same use-cases and scripts as the service. Its file tells what it believed to hold:
``+ token pool weight scopes at until`` when a lease begins, ``= token weight at until`` when it was renewed,
``- token at`` when the work ended, all on the machine's monotonic clock. The file beside it counts operations.
"""

import asyncio
import contextlib
import random
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import redis.exceptions
import uvloop

from lease_service.domain.model import Attempt, Claim, Policy, PoolPolicies, Renewal, RenewItem
from lease_service.domain.policy_cache import PolicyCache
from lease_service.domain.slots import Slots
from lease_service.domain.tickets import Tickets
from lease_service.store.redis import RedisSlots
from lease_service.store.redis_identity import identify
from servicekit.clock import SystemClock
from servicekit.errors import ServiceError
from servicekit.ids import new_token
from servicekit.redis import Redis
from servicekit.settings import RedisSettings
from servicekit.values import SecretUrl
from sluicegate_client.local_lease import local_deadline

CAPACITIES = {"race:one": {"a": 14, "b": 8, "c": 5}, "race:two": {"a": 6, "b": 18, "c": 10}}
TTLS_MS = (400, 1_000, 2_000)
KEY = b"every racer signs with this key."
TASKS = 6
AWAY = (ServiceError, redis.exceptions.RedisError, OSError)


def policies_of(pool: str) -> PoolPolicies:
    """Return the fixed policies of a pool."""
    policies = {
        scope: Policy(
            pool=pool,
            scope=scope,
            capacity=capacity,
            max_lifetime_ms=0,
            paused=False,
            version=1,
            updated_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for scope, capacity in CAPACITIES[pool].items()
    }
    return PoolPolicies(pool, policies, max(TTLS_MS))


class NoPolicyStore:
    """Policies are fixed: no ttl is longer than what is known."""

    async def widen_ttl(self, pool: str, ttl_ms: int) -> None:
        raise AssertionError(f"{pool} {ttl_ms}")


class Racer:
    """Counts its operations and notes what it holds."""

    def __init__(self, slots: Slots, notes: TextIO, counts: Path, wanted: int) -> None:
        self.slots = slots
        self.notes = notes
        self.counts = counts
        self.left = wanted
        self.done = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._task() for _ in range(TASKS)))
        self._save()

    def _save(self) -> None:
        self.counts.write_text(f"{self.done:09d}", encoding="utf-8")

    def _count(self) -> None:
        self.left -= 1
        self.done += 1
        if self.done % 100 == 0:
            self._save()

    async def _task(self) -> None:
        while self.left > 0:
            work = asyncio.create_task(self._round())
            if random.random() < 0.1:
                await asyncio.sleep(random.uniform(0, 0.02))
                work.cancel()
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()

    async def _round(self) -> None:
        pool = random.choice(tuple(CAPACITIES))
        claim = Claim(
            pool=pool,
            scopes=random.choice((["a"], ["b"], ["c"], ["a", "b"], ["a", "b", "c"])),
            weight=random.choice((1, 1, 2)),
            owner="racer",
            ttl_ms=random.choice(TTLS_MS),
        )
        tokens = [new_token() for _ in range(random.choice((1, 1, 1, 3)))]
        sent_at = time.monotonic()
        with contextlib.suppress(*AWAY):
            result = await self.slots.acquire_batch(claim, tokens)
            held = [attempt for attempt in result.attempts if attempt.held]
            if held:
                self._count()
            else:
                await asyncio.sleep(0.005)  # refused: not counted as an operation
            for attempt in held:
                await self._hold(claim, attempt, sent_at)

    async def _hold(self, claim: Claim, attempt: Attempt, sent_at: float) -> None:
        until = local_deadline(sent_at, attempt.remaining_ms, claim.ttl_ms / 1000)
        token, weight = attempt.token, attempt.weight
        begins = time.monotonic()
        noted = begins < until
        if noted:
            scopes = ",".join(claim.scopes)
            self.notes.write(f"+ {token} {claim.pool} {weight} {scopes} {begins:.6f} {until:.6f}\n")
        try:
            await asyncio.sleep(random.choice((0, 0, 0.001, 0.01)))
            if random.random() < 0.5:
                until = await self._renew(claim, attempt, until)
            if random.random() < 0.01:
                return  # forgotten: its expiry frees it
        finally:
            if noted:
                self.notes.write(f"- {token} {min(time.monotonic(), until):.6f}\n")
        self._count()
        tokens = [token, token] if random.random() < 0.1 else [token]
        await self.slots.release(claim.pool, tokens)

    async def _renew(self, claim: Claim, attempt: Attempt, until: float) -> float:
        sent_at = time.monotonic()
        keep = 1 if attempt.weight > 1 and random.random() < 0.3 else 0
        self._count()
        item = RenewItem(attempt.token, weight=keep, ticket=attempt.ticket)
        if keep:  # what is given up is given up before it is sent
            self.notes.write(f"= {attempt.token} 1 {sent_at:.6f} {until:.6f}\n")
        [result] = await self.slots.renew(claim.pool, [item])
        if result.outcome is not Renewal.OK:
            return min(until, time.monotonic())
        until = max(until, local_deadline(sent_at, result.remaining_ms, claim.ttl_ms / 1000))
        if not keep and time.monotonic() < until:
            self.notes.write(f"= {attempt.token} {result.weight} {sent_at:.6f} {until:.6f}\n")
        return until


async def main(url: str, operations: int, path: Path) -> None:
    server = Redis(RedisSettings(url=SecretUrl(url)), greet=identify)
    leases = RedisSlots(server, tickets=Tickets(KEY))

    async def load(pool: str) -> PoolPolicies:
        return policies_of(pool)

    slots = Slots(leases, NoPolicyStore(), PolicyCache(load, ttl=2.0, clock=SystemClock()))
    with path.open("a", buffering=1, encoding="utf-8") as notes:
        await Racer(slots, notes, path.with_suffix(".count"), operations).run()
    await slots.drain()
    await server.stop()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
