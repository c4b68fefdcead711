"""What the server's chain and the client's channel cost, as ratios to bare grpc.aio measured in the same run.

    python benchmarks/grpc_chain.py [calls]

Client and server share one process, so that each ratio is about the whole of a call. Rounds of all variants are
interleaved, processor time is what counts, and the median of each is compared.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import uvloop
from peers.interruption import end_cleanly

from servicekit import telemetry
from servicekit.grpc_client import Channel
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.settings import ServiceSettings, TelemetrySettings
from sluicegate.lease.v1 import lease_pb2, lease_pb2_grpc

IN_FLIGHT = 50
ROUNDS = 7
REQUEST = lease_pb2.AcquireRequest(
    pool="gateway:demo", token="a" * 32, scopes=["poll"], weight=1, ttl_ms=30_000, owner="benchmark"
)

Call = Callable[..., Awaitable[Any]]


class Echo(lease_pb2_grpc.LeaseServiceServicer):
    """Answers at once."""

    async def Acquire(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return lease_pb2.AcquireResponse()


async def rate(call: Call, calls: int) -> float:
    """Return calls per second of processor time, of all threads: what other work on the machine hardly changes."""
    left = calls

    async def one_after_another() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call(REQUEST, timeout=10)

    began = time.process_time()
    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    telemetry.flush()
    return calls / (time.process_time() - began)


async def run(calls: int) -> None:
    bare = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    lease_pb2_grpc.add_LeaseServiceServicer_to_server(Echo(), bare)
    bare_port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    ours = GrpcServer(
        ServiceSettings.from_environment({}),
        [(lease_pb2_grpc.add_LeaseServiceServicer_to_server, Echo())],
        Health(),
    )
    await ours.start()
    to_bare = grpc.aio.insecure_channel(f"127.0.0.1:{bare_port}")
    to_ours = grpc.aio.insecure_channel(ours.address)
    channel = Channel(ours.address)
    variants: list[tuple[str, bool, Call]] = [
        ("bare client, bare server", False, lease_pb2_grpc.LeaseServiceStub(to_bare).Acquire),
        ("bare client, our server", False, lease_pb2_grpc.LeaseServiceStub(to_ours).Acquire),
        ("our client, our server", False, lease_pb2_grpc.LeaseServiceStub(channel.raw).Acquire),
        ("bare client, our server, traced", True, lease_pb2_grpc.LeaseServiceStub(to_ours).Acquire),
        ("our client, our server, traced", True, lease_pb2_grpc.LeaseServiceStub(channel.raw).Acquire),
    ]
    rates: dict[str, list[float]] = {name: [] for name, _, _ in variants}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS + 1):
            for name, traced, call in variants:
                store = Path(folder) / "spans.db" if traced else None
                telemetry.setup("benchmark", TelemetrySettings(span_store_path=store))
                measured = await rate(call, calls)
                telemetry.shutdown()
                if turn:  # the first turn warms up
                    rates[name].append(measured)
    for closing in (to_bare.close(), to_ours.close(), channel.stop(), ours.stop(), bare.stop(0)):
        await closing
    base = statistics.median(rates["bare client, bare server"])
    print(f"{calls} calls a round, {IN_FLIGHT} in flight, median of {ROUNDS}")
    for name, measured_rates in rates.items():
        median = statistics.median(measured_rates)
        print(f"{name:<34} {median:>8.0f} calls/CPU-s   {median / base:.2f}")


if __name__ == "__main__":
    end_cleanly()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
