"""Cost of slots: unary acquire and release through gRPC against a bare echo with the same chain and number of calls.

Run: python benchmarks/leases.py [--pairs 3000] [--in-flight 50]. Figures are ratios within one run; processor time of
the service and of Redis is reported apart, because all share the machine's cores.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import redis.asyncio
import uvloop

from devengines.migrate import migrate
from devengines.ports import free_port
from devengines.postgres import PostgresProcess
from devengines.valkey import ValkeyProcess
from servicekit.grpc_client import Channel
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.ids import new_token
from servicekit.settings import ServiceSettings
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc

POOL, SCOPES = "bench", ("a", "b", "c")
CAPACITY = 1_000_000
TICKS = os.sysconf("SC_CLK_TCK")


class Echo(lease_pb2_grpc.LeaseServiceServicer):
    """Answers with what it was sent, and does nothing else."""

    async def Acquire(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        return wire.AcquireResponse(
            lease=wire.Lease(token=request.token, fence=1, remaining_ms=60_000, weight=1)
        )

    async def Release(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        return wire.ReleaseResponse(results=[wire.ReleaseResult(token=request.tokens[0], freed=True)])


async def serve_echo(port: int) -> None:
    settings = ServiceSettings.from_environment({"SERVICE_GRPC__PORT": str(port)})
    server = GrpcServer(settings, [(lease_pb2_grpc.add_LeaseServiceServicer_to_server, Echo())], Health())
    await server.start()
    await asyncio.Event().wait()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def pair(stub: Any) -> None:
    request = wire.AcquireRequest(
        pool=POOL, token=new_token(), scopes=SCOPES, weight=1, ttl_ms=60_000, owner="bench"
    )
    await stub.Acquire(request, timeout=30)
    await stub.Release(wire.ReleaseRequest(pool=POOL, tokens=[request.token]), timeout=30)


async def drive(count: int, in_flight: int, once: Callable[[], Awaitable[None]]) -> float:
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await once()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return time.perf_counter() - began


async def start(arguments: list[str], port: int, environment: dict[str, str]) -> Process:
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=os.environ | environment)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 30)
    return process


async def measure(options: argparse.Namespace, valkey: ValkeyProcess, dsn: str) -> None:
    lease_port, echo_port = free_port(), free_port()
    environment = {
        "SLUICEGATE_POSTGRES_DSN": dsn,
        "SLUICEGATE_REDIS_URL": valkey.url,
        "SLUICEGATE_LOG_LEVEL": "ERROR",
        "LEASE_SERVICE_GRPC__PORT": str(lease_port),
        "LEASE_SERVICE_METRICS_PORT": "0",
    }
    service = await start(["-m", "lease_service"], lease_port, environment)
    echo = await start([__file__, "--echo", str(echo_port)], echo_port, {})
    client = redis.asyncio.Redis.from_url(valkey.url)
    channels = [Channel(f"127.0.0.1:{port}") for port in (lease_port, echo_port)]
    stub, echo_stub = (lease_pb2_grpc.LeaseServiceStub(channel.raw) for channel in channels)
    try:
        for scope in SCOPES:
            await stub.SetPolicy(
                wire.SetPolicyRequest(pool=POOL, scope=scope, capacity=CAPACITY, actor="bench")
            )
        for warm in (stub, echo_stub):
            await drive(500, options.in_flight, lambda warm=warm: pair(warm))
        ratios = []
        for number in range(options.rounds):
            echo_before = cpu_seconds(echo.pid)
            echo_seconds = await drive(options.pairs, options.in_flight, lambda: pair(echo_stub))
            echo_spent = cpu_seconds(echo.pid) - echo_before
            await client.config_resetstat()
            before = cpu_seconds(service.pid), cpu_seconds(valkey.pid or 0)
            seconds = await drive(options.pairs, options.in_flight, lambda: pair(stub))
            spent = cpu_seconds(service.pid) - before[0], cpu_seconds(valkey.pid or 0) - before[1]
            scripts = (await client.info("commandstats"))["cmdstat_evalsha"]
            ratios.append(echo_seconds / seconds)
            calls = 2 * options.pairs
            each = [seconds / calls * 1e6 for seconds in (echo_spent, *spent)]
            print(
                f"round {number + 1}: echo {calls / echo_seconds:.0f} calls/s, leases {calls / seconds:.0f} calls/s, "
                f"ratio {ratios[-1]:.2f}; processor time per call: echo {each[0]:.0f} us, service {each[1]:.0f} us, "
                f"redis {each[2]:.0f} us; a script {scripts['usec_per_call']:.0f} us"
            )
        print(f"median ratio {sorted(ratios)[len(ratios) // 2]:.2f} (aim: at least 0.5)")
    finally:
        await client.aclose()
        for channel in channels:
            await channel.stop()
        for process in (service, echo):
            process.terminate()
            await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3_000)
    parser.add_argument("--in-flight", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--echo", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        uvloop.run(serve_echo(options.echo))
        return
    with tempfile.TemporaryDirectory(prefix="bench-leases") as folder:
        postgres = PostgresProcess(Path(folder) / "postgres", fast=True)
        valkey = ValkeyProcess(Path(folder) / "valkey")
        try:
            postgres.start()
            valkey.start()
            migrate(postgres.dsn)
            uvloop.run(measure(options, valkey, postgres.dsn))
        finally:
            valkey.stop()
            postgres.stop()


if __name__ == "__main__":
    main()
