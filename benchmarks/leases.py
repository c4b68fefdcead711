"""Cost of slots, each figure next to what it is to be compared with in the same run.

Run: python benchmarks/leases.py [--only unary,session,renewals,latency,peers] [--pairs 3000] [--in-flight 50]

- unary: acquire and release through gRPC against a bare echo with the same chain and number of calls
- session: the same operations over one Session stream, 32 in a message
- renewals: what renewing 100,000 live leases every 15 s takes of one Redis core
- latency: p50 and p99 of a grant at half load, and from a release to the waiter's grant
- peers: the same of other locks, each in an environment of its own that is made on first use (needs a package index)

Variants take turns and the median round counts; processor time of the service and of Redis is told apart, because all
share the machine's cores.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import uvloop
from peers.environments import environment
from peers.interruption import end_cleanly

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

SECTIONS = ("unary", "session", "renewals", "latency", "peers")
POOL, SCOPES = "bench", ("a", "b", "c")
CAPACITY = 1_000_000
TICKS = os.sysconf("SC_CLK_TCK")
BATCH = 32
LIVE = 100_000
RENEW_EVERY = 15.0
RENEWED_PER_CALL = 100
WORKERS = 8
HAND_OVERS = 40
PEERS = {
    "redis-py": ["redis>=6"],
    "python-redis-lock": ["python-redis-lock"],
    "pottery": ["pottery"],
    "database counter": ["psycopg[binary]"],
}


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


class Bench:
    """The processes of one run and what their processors have spent."""

    def __init__(
        self, service: Process, echo: Process, valkey: ValkeyProcess, stub: Any, echo_stub: Any
    ) -> None:
        self.service = service
        self.echo = echo
        self.valkey = valkey
        self.stub = stub
        self.echo_stub = echo_stub

    def spent(self) -> tuple[float, float, float, float]:
        """Return processor seconds of the service, of Redis, of the echo and of this process."""
        return (
            cpu_seconds(self.service.pid),
            cpu_seconds(self.valkey.pid or 0),
            cpu_seconds(self.echo.pid),
            time.process_time(),
        )


def acquire_request(pool: str = POOL, scopes: Sequence[str] = SCOPES, **more: Any) -> Any:
    return wire.AcquireRequest(
        pool=pool, token=new_token(), scopes=scopes, weight=1, ttl_ms=60_000, owner="bench", **more
    )


async def pair(stub: Any) -> None:
    request = acquire_request()
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


def difference(after: Sequence[float], before: Sequence[float], calls: int) -> list[float]:
    """Return microseconds per call."""
    return [(late - early) / calls * 1e6 for late, early in zip(after, before, strict=True)]


async def unary(bench: Bench, options: argparse.Namespace) -> float:
    """Print the rates of echo and leases in turn; returns the median rate of leases."""
    ratios, work_ratios, rates, spendings = [], [], [], []
    calls = 2 * options.pairs
    for _ in range(options.rounds):
        before = bench.spent()
        echo_seconds = await drive(options.pairs, options.in_flight, lambda: pair(bench.echo_stub))
        middle = bench.spent()
        seconds = await drive(options.pairs, options.in_flight, lambda: pair(bench.stub))
        after = bench.spent()
        echo, leases = difference(middle, before, calls), difference(after, middle, calls)
        ratios.append(echo_seconds / seconds)
        work_ratios.append((echo[2] + echo[3]) / (leases[0] + leases[1] + leases[3]))
        rates.append(calls / seconds)
        spendings.append((echo[2], echo[3], leases[0], leases[1], leases[3]))
    told = [statistics.median(column) for column in zip(*spendings, strict=True)]
    print(
        f"unary: leases {statistics.median(rates):.0f} calls/s, {statistics.median(ratios):.2f} of a bare echo"
    )
    print(
        f"  rounds {' '.join(f'{ratio:.2f}' for ratio in ratios)}; by processor time of all processes "
        f"{statistics.median(work_ratios):.2f} (independent of what else the machine does)"
    )
    print(
        f"  us per call: echo {told[0]:.0f} + its client {told[1]:.0f}; service {told[2]:.0f} + Redis {told[3]:.0f} "
        f"+ client {told[4]:.0f}; service against echo {told[0] / told[2]:.2f}"
    )
    return statistics.median(rates)


class SessionClient:
    """Sends messages of many items over one stream and waits for all their results."""

    def __init__(self, stub: Any) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next = 1
        self._stream = stub.Session(self._requests())
        self._reader = asyncio.create_task(self._read())

    async def _requests(self) -> AsyncIterator[Any]:
        while (message := await self._queue.get()) is not None:
            yield message

    async def _read(self) -> None:
        async for message in self._stream:
            for result in message.results:
                self._waiting.pop(result.request_id).set_result(result)

    async def send(self, items: Sequence[dict[str, Any]]) -> None:
        loop = asyncio.get_running_loop()
        message, answers = wire.SessionRequest(), []
        for item in items:
            message.items.add(request_id=self._next, **item)
            self._waiting[self._next] = future = loop.create_future()
            answers.append(future)
            self._next += 1
        self._queue.put_nowait(message)
        for result in await asyncio.gather(*answers):
            assert result.WhichOneof("result") != "error", result.error

    async def close(self) -> None:
        self._queue.put_nowait(None)
        await self._reader


async def session(bench: Bench, options: argparse.Namespace) -> None:
    client = SessionClient(bench.stub)

    async def pairs() -> None:
        requests = [acquire_request() for _ in range(BATCH)]
        await client.send([{"acquire": request} for request in requests])
        releases = [wire.ReleaseRequest(pool=POOL, tokens=[request.token]) for request in requests]
        await client.send([{"release": release} for release in releases])

    rates, spendings, ratios = [], [], []
    count = max(1, options.pairs // BATCH)
    for _ in range(options.rounds):
        unary_seconds = await drive(options.pairs // 2, options.in_flight, lambda: pair(bench.stub))
        before = bench.spent()
        seconds = await drive(count, 4, pairs)
        spendings.append(difference(bench.spent(), before, count * BATCH * 2))
        rates.append(count * BATCH * 2 / seconds)
        ratios.append(rates[-1] / (options.pairs / unary_seconds))
    await client.close()
    told = [statistics.median(column) for column in zip(*spendings, strict=True)]
    print(
        f"session: {statistics.median(rates):.0f} operations/s in messages of {BATCH}, "
        f"{statistics.median(ratios):.1f} times the unary rate; us per operation: service {told[0]:.0f}, "
        f"Redis {told[1]:.0f}"
    )


async def renewals(bench: Bench) -> None:
    tokens = [new_token() for _ in range(LIVE)]
    pages = [tokens[start : start + RENEWED_PER_CALL] for start in range(0, LIVE, RENEWED_PER_CALL)]
    tickets: dict[str, bytes] = {}

    async def take(page: Sequence[str]) -> None:
        request = wire.AcquireBatchRequest(
            pool="live", tokens=page, scopes=["a"], weight=1, ttl_ms=3_600_000, owner="bench"
        )
        for lease in (await bench.stub.AcquireBatch(request, timeout=30)).leases:
            tickets[lease.token] = lease.ticket

    async def renew(page: Sequence[str]) -> None:
        items = [wire.RenewItem(token=token, ticket=tickets[token]) for token in page]
        answer = await bench.stub.Renew(wire.RenewRequest(pool="live", items=items), timeout=30)
        assert all(result.outcome == wire.RENEW_OUTCOME_OK for result in answer.results)

    await set_policy(bench.stub, "live", "a", CAPACITY)
    waiting = iter(pages)
    await drive(len(pages), 4, lambda: take(next(waiting)))
    assert len(tickets) == LIVE
    shares = []
    for _ in range(3):
        waiting = iter(pages)
        before = bench.spent()
        await drive(len(pages), 4, lambda: renew(next(waiting)))  # noqa: B023 - used up before it changes
        spent = difference(bench.spent(), before, 1)
        shares.append((spent[1] / 1e6 / RENEW_EVERY, spent[0] / 1e6 / RENEW_EVERY, spent[1] / LIVE))
    redis_share, service_share, each = (statistics.median(column) for column in zip(*shares, strict=True))
    print(
        f"renewals: {LIVE} live leases every {RENEW_EVERY:.0f} s take {redis_share:.1%} of one Redis core "
        f"(aim: <= 12 %), {service_share:.1%} of one core of the service; {each:.1f} us of Redis each"
    )


async def latency(bench: Bench, seconds: float) -> dict[str, float]:
    """Measure as `peers/lock_peer.py` does: every worker with a pool of its own, capacity 1."""
    names = [f"bench-{number}" for number in range(WORKERS)]
    for name in [*names, "bench-hand-over"]:
        await set_policy(bench.stub, name, "one", 1)

    async def once(name: str) -> float:
        request = acquire_request(name, ["one"])
        began = time.perf_counter()
        await bench.stub.Acquire(request, timeout=30)
        took = time.perf_counter() - began
        await bench.stub.Release(wire.ReleaseRequest(pool=name, tokens=[request.token]), timeout=30)
        return took

    async def work(name: str, pause: float) -> list[float]:
        took, due = [], time.perf_counter()
        ends_at = due + seconds
        while due < ends_at and time.perf_counter() < ends_at:
            if pause:
                due += random.expovariate(1 / pause)
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            took.append(await once(name))
        return took

    full = sum(map(len, await asyncio.gather(*(work(name, 0.0) for name in names)))) / seconds
    half = [
        took
        for run in await asyncio.gather(*(work(name, WORKERS / (full / 2)) for name in names))
        for took in run
    ]
    passed = [await hand_over(bench.stub) for _ in range(HAND_OVERS)]
    return {
        "pairs_per_second": full,
        "grant_p50": statistics.median(half),
        "grant_p99": quantile(half, 0.99),
        "hand_over_p50": statistics.median(passed),
        "hand_over_p99": quantile(passed, 0.99),
    }


async def hand_over(stub: Any) -> float:
    name = "bench-hand-over"
    holder, waiter = acquire_request(name, ["one"]), acquire_request(name, ["one"], wait_ms=30_000)
    await stub.Acquire(holder, timeout=30)

    async def wait_for_it() -> float:
        await stub.Acquire(waiter, timeout=40)
        return time.perf_counter()

    waiting = asyncio.create_task(wait_for_it())
    await asyncio.sleep(random.uniform(0.1, 0.3))  # it waits by then
    released_at = time.perf_counter()
    await stub.Release(wire.ReleaseRequest(pool=name, tokens=[holder.token]), timeout=30)
    passed = await waiting - released_at
    await stub.Release(wire.ReleaseRequest(pool=name, tokens=[waiter.token]), timeout=30)
    return passed


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def tell(name: str, found: dict[str, float]) -> None:
    print(
        f"  {name:18} {found['pairs_per_second']:7.0f} pairs/s by {WORKERS} workers; grant at half load p50 "
        f"{found['grant_p50'] * 1e3:.1f} p99 {found['grant_p99'] * 1e3:.1f} ms; release to the waiter's grant p50 "
        f"{found['hand_over_p50'] * 1e3:.1f} p99 {found['hand_over_p99'] * 1e3:.1f} ms"
    )


async def peers(valkey: ValkeyProcess, dsn: str, seconds: float) -> None:
    for name, packages in PEERS.items():
        python = await environment(name, packages)
        if python is None:
            print(f"  {name:18} could not be installed")
            continue
        script = Path(__file__).parent / "peers" / "lock_peer.py"
        process = await asyncio.create_subprocess_exec(
            str(python), str(script), name, valkey.url_of(7), dsn, str(seconds), stdout=PIPE
        )
        output, _ = await process.communicate()
        if process.returncode == 0:
            tell(name, json.loads(output.splitlines()[-1]))
        else:
            print(f"  {name:18} failed")


async def set_policy(stub: Any, pool: str, scope: str, capacity: int) -> None:
    await stub.SetPolicy(wire.SetPolicyRequest(pool=pool, scope=scope, capacity=capacity, actor="bench"))


async def start(arguments: list[str], port: int, variables: dict[str, str]) -> Process:
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=os.environ | variables)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)
    return process


async def measure(options: argparse.Namespace, valkey: ValkeyProcess, dsn: str) -> None:
    lease_port, echo_port = free_port(), free_port()
    variables = {
        "SLUICEGATE_POSTGRES_DSN": dsn,
        "SLUICEGATE_REDIS_URL": valkey.url,
        "SLUICEGATE_LOG_LEVEL": "ERROR",
        "LEASE_SERVICE_GRPC__PORT": str(lease_port),
        "LEASE_SERVICE_METRICS_PORT": "0",
    }
    service = await start(["-m", "lease_service"], lease_port, variables)
    echo = await start([__file__, "--echo", str(echo_port)], echo_port, {"SLUICEGATE_LOG_LEVEL": "ERROR"})
    channels = [Channel(f"127.0.0.1:{port}") for port in (lease_port, echo_port)]
    stub, echo_stub = (lease_pb2_grpc.LeaseServiceStub(channel.raw) for channel in channels)
    bench = Bench(service, echo, valkey, stub, echo_stub)
    try:
        for scope in SCOPES:
            await set_policy(stub, POOL, scope, CAPACITY)
        for warm in (stub, echo_stub):
            await drive(500, options.in_flight, lambda warm=warm: pair(warm))
        await run_sections(bench, options, dsn)
    finally:
        for channel in channels:
            await channel.stop()
        for process in (service, echo):
            process.terminate()
            await process.wait()


async def run_sections(bench: Bench, options: argparse.Namespace, dsn: str) -> None:
    wanted = options.only.split(",")
    if "unary" in wanted:
        await unary(bench, options)
    if "session" in wanted:
        await session(bench, options)
    if "renewals" in wanted:
        await renewals(bench)
    if "latency" in wanted or "peers" in wanted:
        print("locks, on the same engines:")
        tell("slots over gRPC", await latency(bench, options.seconds))
    if "peers" in wanted:
        await peers(bench.valkey, dsn, options.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--pairs", type=int, default=3_000)
    parser.add_argument("--in-flight", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--echo", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        uvloop.run(serve_echo(options.echo))
        return
    end_cleanly()
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
