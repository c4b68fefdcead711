"""Many processes race for few slots while workers, a service and scripts are killed: never oversold, nothing leaked."""

import asyncio
import os
import random
import signal
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis.asyncio

from devengines.ports import free_port
from lease_service.store.keys import pool_keys
from servicekit.grpc_client import Channel
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from tests.support.lease_racer import POOL, SCOPES
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SHORT_RUN, LONG_RUN = 8.0, 120.0


class Race:
    """The processes of one race."""

    def __init__(self, folder: Path, database: str, redis_url: str, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        self.ports = [free_port(), free_port()]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLUICEGATE_")},
            "SLUICEGATE_POSTGRES_DSN": database,
            "SLUICEGATE_REDIS_URL": redis_url,
            "SLUICEGATE_LOG_LEVEL": "ERROR",
            "LEASE_SERVICE_METRICS_PORT": "0",
            "LEASE_SERVICE_SLOTS__REAP_EVERY": "100ms",
            "LEASE_SERVICE_SLOTS__AUDIT_EVERY": "100ms",
        }
        self.services: list[Process] = []
        self.racers: dict[str, Process] = {}
        self.killed_at: dict[str, float] = {}
        self.count = 0

    async def start_service(self, port: int) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lease_service"),
            env=self.environment | {"LEASE_SERVICE_GRPC__PORT": str(port)},
            cwd=ROOT,
        )

    async def start_racer(self) -> None:
        self.count += 1
        name = f"racer{self.count}"
        address = f"127.0.0.1:{self.ports[self.count % 2]}"
        self.racers[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.lease_racer"),
            *(address, str(self.seconds), str(self.folder / name)),
            env=self.environment,
            cwd=ROOT,
        )

    async def kill_racer(self) -> None:
        name = random.choice([name for name in self.racers if name not in self.killed_at])
        self.racers[name].kill()
        await self.racers[name].wait()
        self.killed_at[name] = time.monotonic()

    async def end(self) -> None:
        for process in [*self.racers.values(), *self.services]:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.wait()

    def most_used(self) -> tuple[dict[str, int], int]:
        """Return the most that was ever in use at once, per scope, and how often work ran."""
        changes = []
        runs = 0
        for path in self.folder.iterdir():
            open_work: dict[str, tuple[int, str]] = {}
            for line in path.read_text(encoding="utf-8").splitlines():
                sign, identity, weight, scopes, at = line.split()
                changes.append((float(at), 1 if sign == "+" else 0, int(weight), scopes))
                if sign == "+":
                    open_work[identity] = int(weight), scopes
                    runs += 1
                else:
                    del open_work[identity]
            changes += [
                (self.killed_at[path.name], 0, weight, scopes) for weight, scopes in open_work.values()
            ]
        most, used = dict.fromkeys(SCOPES, 0), dict.fromkeys(SCOPES, 0)
        for _, begins, weight, scopes in sorted(changes):
            for scope in scopes.split(","):
                used[scope] += weight if begins else -weight
                most[scope] = max(most[scope], used[scope])
        return most, runs


async def set_up(race: Race) -> tuple[Any, Channel]:
    race.services = [await race.start_service(port) for port in race.ports]
    channel = Channel(f"127.0.0.1:{race.ports[0]}")
    for port in race.ports:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as waiting:
            await asyncio.wait_for(waiting.channel_ready(), 30)
    stub: Any = lease_pb2_grpc.LeaseServiceStub(channel.raw)
    for scope, capacity in SCOPES.items():
        await stub.SetPolicy(wire.SetPolicyRequest(pool=POOL, scope=scope, capacity=capacity, actor="test"))
    return stub, channel


@pytest.mark.parametrize("seconds", [SHORT_RUN, pytest.param(LONG_RUN, marks=pytest.mark.soak)])
@pytest.mark.timeout(300)
async def test_never_oversold_and_nothing_leaked(
    tmp_path: Path, database: str, redis_url: str, seconds: float
) -> None:
    race = Race(tmp_path, database, redis_url, seconds)
    client = redis.asyncio.Redis.from_url(redis_url)
    try:
        stub, channel = await set_up(race)
        ends_at = time.monotonic() + seconds
        for _ in range(4):
            await race.start_racer()
        while time.monotonic() < ends_at:
            await asyncio.sleep(random.uniform(0.3, 0.8))  # the trouble comes at random moments
            await client.script_flush()
            if random.random() < 0.6:
                await race.kill_racer()
                await race.start_racer()
            if random.random() < 0.3:
                race.services[1].kill()
                await race.services[1].wait()
                race.services[1] = await race.start_service(race.ports[1])
        await asyncio.wait_for(
            asyncio.gather(*(racer.wait() for racer in race.racers.values())), seconds + 60
        )
        assert {racer.returncode for racer in race.racers.values()} <= {0, -signal.SIGKILL}

        async def all_is_free() -> bool:
            keys = pool_keys(POOL)
            return await client.exists(keys[0], keys[1], keys[2], keys[6]) == 0

        await eventually(all_is_free, within=20)
        holders = (await stub.ListHolders(wire.ListHoldersRequest(pool=POOL))).holders
        assert not holders
        await channel.stop()
        most, runs = race.most_used()
        assert runs > 100
        assert all(most[scope] <= capacity for scope, capacity in SCOPES.items()), most
        assert min(most.values()) > 0
        assert race.killed_at
    finally:
        await race.end()
        await client.aclose()
