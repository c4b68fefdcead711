"""How many gateway calls one poller makes per second, beside a bare aiohttp client on the same machine.

Usage: python benchmarks/polling.py [--seconds 10] [--limit 100] [--mode async|sync] [--spans]
Every process runs on this machine: simulator, Valkey, PostgreSQL, nsqd (or the development broker), lease service,
poller, and this one, which stands in for ingest_service. The ratio says what scheduling, slots, messages and traces
cost on top of the calls themselves.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
from peers.interruption import end_cleanly

from devengines.child import spawn
from devengines.migrate import migrate
from devengines.nsqd import DevbrokerProcess, NsqdProcess, build_nsqd
from devengines.ports import free_ports
from devengines.postgres import PostgresProcess
from devengines.valkey import ValkeyProcess
from gateways.generic_http import GenericHttpAdapter
from servicekit.clock import SystemClock
from servicekit.grpc_client import Channel
from servicekit.nsq import NsqAdmin
from servicekit.settings import NsqSettings
from sluicegate.lease.v1 import lease_pb2, lease_pb2_grpc
from sluicegate.poller.v1 import poller_pb2, poller_pb2_grpc
from tests.support.gateways import RunningSimulator, running_simulator
from tests.support.polling import FakeIngest, serving

CARDS = 6000
ACCOUNTS = ("harbor",)
KINDS = ("traffic", "network", "realname")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--mode", choices=["async", "sync"], default="async")
    parser.add_argument("--spans", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="polling-") as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            print(json.dumps(await measure(stack, folder, options), indent=2))


async def measure(stack: AsyncExitStack, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    simulator = await stack.enter_async_context(running_simulator(cards=CARDS))
    bare, bare_per_cpu = await bare_rate(simulator, options)
    environment = await engines(stack, folder)
    ingest = FakeIngest()
    for account_id in ACCOUNTS:
        ingest.add_account(simulator.accounts[account_id], poll_limit=options.limit, poll_interval_s=1)
        for card_id in simulator.cards_of(account_id):
            ingest.add_card(card_id, account_id)
    ingest_address = await stack.enter_async_context(serving(ingest))
    lease_port, poller_port = free_ports(2)
    environment |= {
        "SLUICEGATE_INGEST_SERVICE": ingest_address,
        "SLUICEGATE_COLLECTION_WRITER": ingest_address,
        "SLUICEGATE_LEASE_SERVICE": f"127.0.0.1:{lease_port}",
        "SLUICEGATE_LOG_LEVEL": "WARNING",
        "LEASE_SERVICE_GRPC__PORT": str(lease_port),
        "POLLER_GRPC__PORT": str(poller_port),
        "LEASE_SERVICE_METRICS_PORT": "0",
        "POLLER_METRICS_PORT": "0",
    }
    if options.spans:
        environment["SLUICEGATE_SPAN_STORE"] = str(folder / "spans.sqlite")
    service(stack, "lease_service", environment)
    await set_policies(lease_port, options.limit)
    poller = service(stack, "poller", environment)
    await set_mode(poller_port, options.mode)
    print(f"poller is process {poller.pid}", file=sys.stderr)
    await asyncio.sleep(5)  # a benchmark: let schedule, slots and connections settle
    rate = await served_rate(simulator, options.seconds)
    cpu = cpu_seconds(poller.pid)
    began = time.perf_counter()
    rate = await served_rate(simulator, options.seconds)
    busy = (cpu_seconds(poller.pid) - cpu) / (time.perf_counter() - began)
    return {
        "mode": options.mode,
        "spans": options.spans,
        "poll_limit": options.limit,
        "bare_aiohttp_calls_per_second": round(bare),
        "poller_calls_per_second": round(rate),
        "poller_cards_per_second": round(rate / len(KINDS)),
        "poller_cpu_share": round(busy, 2),
        "calls_per_cpu_second": round(rate / busy),
        "bare_calls_per_cpu_second": round(bare_per_cpu),
        "ratio_to_bare": round(rate / bare, 2),
        "ratio_to_bare_per_cpu_second": round(rate / busy / bare_per_cpu, 2),
    }


async def bare_rate(simulator: RunningSimulator, options: argparse.Namespace) -> tuple[float, float]:
    """Call the same gateway with the same adapter and nothing else; calls per second and per CPU second."""
    cards = simulator.cards_of(ACCOUNTS[0])
    deadline = time.perf_counter() + options.seconds / 2
    calls = 0
    cpu = time.process_time()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1000)) as session:
        account = simulator.account(ACCOUNTS[0])
        adapter = GenericHttpAdapter(account, session, SystemClock(), timedelta(seconds=10))

        async def worker(number: int) -> None:
            nonlocal calls
            index = number
            while time.perf_counter() < deadline:
                for kind in KINDS:
                    await adapter.fetch(kind, cards[index % len(cards)])
                    calls += 1
                index += options.limit

        await asyncio.gather(*(worker(number) for number in range(options.limit)))
    return calls / (options.seconds / 2), calls / (time.process_time() - cpu)


async def engines(stack: AsyncExitStack, folder: Path) -> dict[str, str]:
    postgres = PostgresProcess(folder / "postgres")
    valkey = ValkeyProcess(folder / "valkey")
    broker = NsqdProcess(folder / "nsqd") if build_nsqd() else DevbrokerProcess(folder / "broker")
    for engine in (postgres, valkey, broker):
        stack.callback(engine.stop)
        engine.start()  # by the main thread: only its children die with it, whatever kills it
    await asyncio.to_thread(migrate, postgres.dsn)
    nsq = NsqSettings(nsqd_tcp=broker.tcp_address, nsqd_http=broker.http_address)
    await NsqAdmin(nsq).prime({"card.ingest": ["ingest_service"], "card.collection": ["collection_writer"]})
    return {
        **os.environ,
        "SLUICEGATE_POSTGRES_DSN": postgres.dsn,
        "SLUICEGATE_REDIS_URL": valkey.url,
        "SLUICEGATE_NSQD": broker.tcp_address,
        "SLUICEGATE_NSQD_HTTP": broker.http_address,
    }


def service(stack: AsyncExitStack, name: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    process = spawn([sys.executable, "-m", name], sys.stderr.buffer, environment=environment)

    async def end() -> None:
        process.terminate()
        await asyncio.to_thread(process.wait)  # it may still need what runs in this loop

    stack.push_async_callback(end)
    return process


async def set_policies(port: int, limit: int) -> None:
    channel = Channel(f"127.0.0.1:{port}")
    await channel.wait_ready(timedelta(seconds=20))
    stub: Any = lease_pb2_grpc.LeaseServiceStub(channel.raw)
    for account_id in ACCOUNTS:
        await stub.SetPolicy(
            lease_pb2.SetPolicyRequest(
                pool=f"gateway:{account_id}", scope="poll", capacity=limit, actor="benchmark"
            )
        )
    await channel.stop()


async def set_mode(port: int, mode: str) -> None:
    channel = Channel(f"127.0.0.1:{port}")
    await channel.wait_ready(timedelta(seconds=20))
    stub: Any = poller_pb2_grpc.PollerServiceStub(channel.raw)
    wanted = poller_pb2.INGEST_MODE_ASYNC if mode == "async" else poller_pb2.INGEST_MODE_SYNC
    await stub.SetMode(poller_pb2.SetModeRequest(mode=wanted, actor="benchmark"))
    await channel.stop()


async def served_rate(simulator: RunningSimulator, seconds: float) -> float:
    async def served() -> int:
        return sum([(await simulator.stats(account_id))["requests"] for account_id in ACCOUNTS])

    before, began = await served(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (await served() - before) / (time.perf_counter() - began)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    end_cleanly()
    asyncio.run(main())
