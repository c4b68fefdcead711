"""Sixteen replicas race while they are killed, cancelled, cut off and robbed of scripts: 0 oversold, 0 leaked, 0 left.

Oversold is looked for twice: in the order in which Redis did things (its audit events), and in what the racers believed
to hold on the machine's clock.
"""

import asyncio
import contextlib
import random
import signal
import sys
import time
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis.asyncio
import redis.exceptions

from devengines.valkey import ValkeyProcess
from lease_service.domain.model import AuditEvent
from lease_service.loops.audit_drain import NO_EVENT
from lease_service.store.keys import PROBE_POOL, pool_keys
from lease_service.store.redis import RedisSlots
from servicekit.redis import Redis
from servicekit.settings import RedisSettings
from servicekit.values import SecretUrl
from tests.support.engines import made_or_skipped
from tests.support.fault_proxy import FaultProxy
from tests.support.slot_racer import CAPACITIES, TTLS_MS, policies_of
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SHORT, LONG = (4, 1_200), (16, 200_000)
PAUSES = {SHORT: (0.1, 0.5), LONG: (0.5, 2.5)}
PROXIES = 4
LINGER_MS = 60_000
DOCUMENTED = ("f", "e")


@dataclass
class Belief:
    """What one racer believed about one lease: from when on it held how much, and until when."""

    pool: str
    scopes: list[str]
    weights: list[tuple[float, int]]
    until: float


@dataclass
class Race:
    folder: Path
    urls: list[str]
    racers: dict[str, Process] = field(default_factory=dict)
    killed_at: dict[str, float] = field(default_factory=dict)
    kills: int = 0

    @property
    def alive(self) -> list[str]:
        return [name for name, process in self.racers.items() if process.returncode is None]

    async def start(self, operations: int) -> None:
        name = f"racer{len(self.racers)}"
        url = self.urls[len(self.racers) % len(self.urls)]
        self.racers[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.slot_racer"),
            *(url, str(operations), str(self.folder / name)),
            cwd=ROOT,
        )

    async def kill_one(self) -> int:
        """Kill a racer that has begun, if there is one, and return how many operations it had done."""
        working = [name for name in self.alive if self.operations_of(name)]
        if not working:
            return sys.maxsize
        name = random.choice(working)
        self.racers[name].kill()
        await self.racers[name].wait()
        self.killed_at[name] = time.monotonic()
        self.kills += 1
        return self.operations_of(name)

    def operations_of(self, name: str) -> int:
        path = self.folder / f"{name}.count"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return int(text or 0)

    def operations(self) -> int:
        return sum(self.operations_of(name) for name in self.racers)

    async def end(self) -> None:
        for name in self.alive:
            self.racers[name].send_signal(signal.SIGKILL)
            await self.racers[name].wait()

    def beliefs(self) -> Iterator[Belief]:
        for name in self.racers:
            found: dict[str, Belief] = {}
            for line in lines_of(self.folder / name):
                kind, token, *rest = line.split()
                if kind == "+":
                    pool, weight, scopes, at, until = rest
                    found[token] = Belief(pool, scopes.split(","), [(float(at), int(weight))], float(until))
                elif kind == "=" and token in found:
                    weight, at, until = rest
                    found[token].weights.append((float(at), int(weight)))
                    found[token].until = float(until)
                elif kind == "-":
                    found[token].until = float(rest[0])
            for belief in found.values():
                belief.until = min(belief.until, self.killed_at.get(name, belief.until))
                yield belief


def lines_of(path: Path) -> list[str]:
    """Return whole lines; a killed process may have left a piece of one."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def most_believed(race: Race) -> tuple[dict[tuple[str, str], int], int]:
    """Return the most that was ever held at once in each scope, as racers saw it, and how many leases there were."""
    changes: list[tuple[float, int, str, list[str]]] = []
    count = 0
    for belief in race.beliefs():
        count += 1
        held = 0
        for at, weight in belief.weights:
            changes.append((at, weight - held, belief.pool, belief.scopes))
            held = weight
        changes.append((belief.until, -held, belief.pool, belief.scopes))
    used: dict[tuple[str, str], int] = defaultdict(int)
    most: dict[tuple[str, str], int] = defaultdict(int)
    for _, step, pool, scopes in sorted(changes):
        for scope in scopes:
            used[pool, scope] += step
            most[pool, scope] = max(most[pool, scope], used[pool, scope])
    return most, count


class Ledger:
    """Replays audit events in the order of Redis and complains when a capacity is passed."""

    def __init__(self, pool: str) -> None:
        self.capacities = CAPACITIES[pool]
        self.held: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.used: dict[str, int] = defaultdict(int)
        self.fence = 0
        self.grants = 0
        self.last = (0, 0)

    def replay(self, events: list[AuditEvent]) -> None:
        """Replay what was not replayed before; what could not be trimmed comes again."""
        for event in events:
            milliseconds, _, number = event.event_id.partition("-")
            place = int(milliseconds), int(number)
            if place > self.last:
                self.last = place
                self._replay(event)

    def _replay(self, event: AuditEvent) -> None:
        if event.kind == "grant":
            assert event.token not in self.held
            assert event.fence > self.fence
            self.fence = event.fence
            self.grants += 1
            self._charge(event.token, event.weight, tuple(event.scopes))
        elif event.kind in ("release", "expire", "force"):
            self._free(event.token)
        elif event.kind == "shrink":
            _, scopes = self._free(event.token)
            self._charge(event.token, event.weight, scopes)

    def _charge(self, token: str, weight: int, scopes: tuple[str, ...]) -> None:
        self.held[token] = weight, scopes
        for scope in scopes:
            self.used[scope] += weight
            assert self.used[scope] <= self.capacities[scope], (scope, self.used[scope])

    def _free(self, token: str) -> tuple[int, tuple[str, ...]]:
        weight, scopes = self.held.pop(token)
        for scope in scopes:
            self.used[scope] -= weight
        return weight, scopes


async def audit(leases: RedisSlots, ledgers: dict[str, Ledger]) -> None:
    """Move every event there is now into the ledgers."""
    for pool, ledger in ledgers.items():
        while events := await leases.read_audit(pool, 1_000):
            ledger.replay(events)
            await leases.trim_audit(pool, events[-1].event_id)
        await leases.trim_audit(pool, NO_EVENT)


async def keep_auditing(leases: RedisSlots, ledgers: dict[str, Ledger]) -> None:
    """Replay events all the time; ends with the first that must not be."""
    while True:
        await try_to(audit(leases, ledgers))
        await asyncio.sleep(0.05)


async def try_to(work: Awaitable[None]) -> None:
    """Do some work of the test's own, unless the busy machine is too slow for it now."""
    with contextlib.suppress(redis.exceptions.RedisError):
        await work


async def trouble(race: Race, proxies: list[FaultProxy], client: redis.asyncio.Redis, share: int) -> None:
    """Make one piece of trouble."""
    what = random.random()
    if what < 0.25:
        await client.script_flush()
    elif what < 0.45:
        random.choice(proxies).lose_replies()
    elif what < 0.6:
        random.choice(proxies).cut()
    elif what < 0.7:
        random.choice(proxies).go_silent()
    elif what < 0.8:
        proxy = random.choice(proxies)
        proxy.delay = random.choice((0.0, 0.005, 0.05))
    elif (done := await race.kill_one()) < share:
        await race.start(share - done)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ValkeyProcess]:
    engine = made_or_skipped(lambda: ValkeyProcess(tmp_path / "valkey"))
    engine.start()
    yield engine
    engine.stop()


@pytest.mark.parametrize("size", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)], ids=["short", "long"])
@pytest.mark.timeout(3_000)
async def test_nothing_is_oversold_leaked_or_left(
    tmp_path: Path, engine: ValkeyProcess, size: tuple[int, int]
) -> None:
    processes, operations = size
    share = operations // processes
    server = Redis(RedisSettings(url=SecretUrl(engine.url)))
    leases = RedisSlots(server)
    ledgers = {pool: Ledger(pool) for pool in CAPACITIES}
    told_at = time.monotonic()
    notes = tmp_path / "notes"
    notes.mkdir()
    for pool in CAPACITIES:
        await leases.push_policies(pool, list(policies_of(pool).scopes.values()), pool_is_new=True)
    proxies = [FaultProxy(engine.port) for _ in range(PROXIES)]
    async with proxies[0], proxies[1], proxies[2], proxies[3]:
        race = Race(notes, [engine.url, *(proxy.url for proxy in proxies)])
        auditing = asyncio.create_task(keep_auditing(leases, ledgers))
        try:
            for _ in range(processes):
                await race.start(share)
            while race.alive:
                await asyncio.sleep(random.uniform(*PAUSES[size]))  # trouble comes at random moments
                if race.operations() < operations * 0.95:
                    await try_to(trouble(race, proxies, server.client, share))
                if size is LONG and time.monotonic() > told_at + 15:
                    told_at = time.monotonic()
                    sys.stdout.write(f"{race.operations()} operations, {race.kills} killed\n")
                    sys.stdout.flush()
                if auditing.done():
                    break
        finally:
            await race.end()
            auditing.cancel()
            await asyncio.wait({auditing})
    if not auditing.cancelled():
        auditing.result()  # says what was oversold
    codes = {process.returncode for process in race.racers.values()}
    assert codes <= {0, -signal.SIGKILL}
    done = race.operations()
    assert done >= operations * 0.9

    async def nothing_is_held() -> bool:
        await try_to(clean_up())
        return all(not ledger.held for ledger in ledgers.values()) and await nothing_is_stored()

    async def nothing_is_stored() -> bool:
        return await server.client.exists(*(key for pool in CAPACITIES for key in pool_keys(pool)[:3])) == 0

    async def clean_up() -> None:
        for pool in CAPACITIES:
            while (await leases.reap(pool)).more:
                pass
        await audit(leases, ledgers)

    await eventually(nothing_is_held, within=max(TTLS_MS) / 1000 + 10)
    for pool, ledger in ledgers.items():
        assert ledger.held == {}
        assert not any(ledger.used.values())
        assert await leases.recount(pool, 10_000) == 0
    most, believed = most_believed(race)
    grants = sum(ledger.grants for ledger in ledgers.values())
    sys.stdout.write(f"{done} operations, {grants} grants, {believed} held, {race.kills} killed\n")
    assert {(pool, scope) for pool, scopes in CAPACITIES.items() for scope in scopes} == set(most)
    assert all(0 < units <= CAPACITIES[pool][scope] for (pool, scope), units in most.items()), most
    assert 0 < believed <= grants
    await only_documented_keys_stay(server.client, long=size is LONG)
    await server.stop()


async def only_documented_keys_stay(client: redis.asyncio.Redis, *, long: bool) -> None:
    """Wait until they are gone; the short form only looks that each is about to go."""
    stay = {pool_keys(pool)["hlupxfae".index(letter)] for pool in CAPACITIES for letter in DOCUMENTED}

    async def others() -> list[str]:
        names = {name.decode() for name in await client.keys("*")}
        return sorted(names - stay - set(pool_keys(PROBE_POOL)))

    for name in await others():
        assert 0 < await client.pttl(name) <= LINGER_MS + 30_000 + max(TTLS_MS), name
    if long:

        async def all_gone() -> bool:
            return not await others()

        await eventually(all_gone, within=120)
