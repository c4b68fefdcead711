"""Rates of tasks next to those of other queues, one run on the same engines; everything is durable, fenced and slotted.

Run: python benchmarks/tasks.py [--only sql,grpc,peers] [--tasks 2000] [--waits 200] [--peers NAME,...]

- sql: enqueue and drain on the stores alone: no RPC, no slots
- grpc: create, claim and complete one by one and in batches; WAL per task
- peers: our SDK worker and other queues: enqueue, drain without work, time from sending to the handler's start; each
  peer in its default and in a tuned setting, in an environment of its own, made on first use (needs a package index)

What counts are the ratios: client, services and engines share the machine's cores.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from peers import queues
from peers.interruption import end_cleanly

from devengines.migrate import migrate
from devengines.ports import free_port
from devengines.postgres import PostgresProcess
from devengines.valkey import ValkeyProcess
from servicekit.grpc_client import Channel
from servicekit.ids import new_token, uuid7
from servicekit.postgres import Postgres
from servicekit.settings import PostgresSettings
from servicekit.values import SecretUrl
from sluicegate.operator.v1 import operator_pb2, operator_pb2_grpc
from sluicegate.task.v1 import task_pb2, task_pb2_grpc
from sluicegate.worker.v1 import worker_pb2, worker_pb2_grpc
from task_api.domain.model import ClaimRequest, Completion, NewTask, Slot
from task_api.store.postgres import PostgresTasks
from task_api.store.postgres_claims import PostgresClaims

CHANNEL, KIND = "bench", "noop"
SECTIONS = ("sql", "grpc", "peers")
BATCH = 50
CREATED_PER_CALL = 500
SDK_CONCURRENCY = {"default": 10, "tuned": 200}
SDK_WORKER = str(Path(queues.__file__).with_name("sdk_worker.py"))
ANALYZE = "ANALYZE task, task_ready, task_lease, task_outcome"
CAPABILITY = worker_pb2.Capability(kind=KIND, max_payload_version=1)


class Bench:
    """Clients of one running task_api."""

    def __init__(self, channel: Channel, watch: asyncpg.Connection, target: str) -> None:
        self.target = target
        self.tasks = task_pb2_grpc.TaskServiceStub(channel.raw)
        self.workers = worker_pb2_grpc.WorkerServiceStub(channel.raw)
        self.operators = operator_pb2_grpc.OperatorServiceStub(channel.raw)
        self.watch = watch

    async def prepare(self) -> None:
        channel = operator_pb2.Channel(
            name=CHANNEL, concurrency=100_000, max_backlog=10_000_000, max_attempts=3
        )
        await self.operators.SaveChannel(operator_pb2.SaveChannelRequest(channel=channel, actor="bench"))

    async def create(self, count: int, in_flight: int) -> None:
        left = iter(range(count))

        async def some() -> None:
            for _ in left:
                await self.tasks.CreateTask(noop_task())

        await asyncio.gather(*(some() for _ in range(in_flight)))

    async def create_in_batches(self, count: int) -> None:
        for start in range(0, count, CREATED_PER_CALL):
            tasks = [noop_task() for _ in range(min(CREATED_PER_CALL, count - start))]
            answer = await self.tasks.CreateTasks(task_pb2.CreateTasksRequest(tasks=tasks))
            assert all(result.created for result in answer.results)

    async def drain(self, batch: int, workers: int) -> int:
        async def work(number: int) -> int:
            done = 0
            request = worker_pb2.ClaimTasksRequest(
                worker=f"w{number}", channels=[CHANNEL], capabilities=[CAPABILITY], max_tasks=batch
            )
            while claimed := (await self.workers.ClaimTasks(request)).tasks:
                completions = [worker_pb2.Completion(claim=task.claim) for task in claimed]
                answer = await self.workers.CompleteTasks(
                    worker_pb2.CompleteTasksRequest(completions=completions)
                )
                done += sum(result.outcome == worker_pb2.WRITE_OUTCOME_OK for result in answer.results)
            return done

        return sum(await asyncio.gather(*(work(number) for number in range(workers))))

    async def wal(self) -> int:
        return int(await self.watch.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


def noop_task() -> task_pb2.CreateTaskRequest:
    payload = json.dumps({"sent": time.time()})
    return task_pb2.CreateTaskRequest(channel=CHANNEL, kind=KIND, payload_json=payload)


async def sql_alone(dsn: str, count: int) -> tuple[float, float]:
    """Enqueue and drain on the stores themselves: no RPC, no slots; answer both rates."""
    database = Postgres(PostgresSettings(dsn=SecretUrl(dsn), max_size=8), "bench")
    await database.start()
    tasks, claims = PostgresTasks(database), PostgresClaims(database)
    request = ClaimRequest("w", ("sql",), {KIND: 1}, BATCH)
    new = [sql_task() for _ in range(count)]
    enqueue = await rate(count, lambda: asyncio.gather(*(tasks.create([task]) for task in new)))
    await database.pool.execute("ANALYZE task, task_ready, task_lease")

    async def work() -> int:
        done = 0
        while claimed := await claims.claim(
            "sql",
            request,
            new_token(),
            slots=[Slot(new_token(), 1) for _ in range(BATCH)],
            lease=timedelta(seconds=45),
            start=0,
        ):
            ended = await claims.complete([Completion(item.key, "{}") for item in claimed])
            done += sum(item is not None for item in ended)
        return done

    drain = await rate(count, lambda: asyncio.gather(*(work() for _ in range(4))))
    await database.stop()
    return enqueue, drain


def sql_task() -> NewTask:
    return NewTask(
        task_id=uuid7(datetime.now(UTC)),
        tenant="t",
        channel="sql",
        kind=KIND,
        payload="{}",
        payload_version=1,
        priority=0,
        max_attempts=3,
        idempotency_key=None,
        request_hash=b"",
        delay=timedelta(),
        deadline_at=None,
        traceparent="",
    )


async def rate(count: int, work: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await work()
    return count / (time.perf_counter() - started)


async def start(module: str, environment: dict[str, str]) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, env={**os.environ, "SLUICEGATE_LOG_LEVEL": "WARNING", **environment}
    )


async def measure(dsn: str, redis_url: str, folder: Path, options: argparse.Namespace) -> None:
    lease, grpc_port = free_port(), free_port()
    shared = {
        "SLUICEGATE_POSTGRES_DSN": dsn,
        "SLUICEGATE_REDIS_URL": redis_url,
        "SLUICEGATE_LEASE_SERVICE": f"127.0.0.1:{lease}",
    }
    lease_settings = {"LEASE_SERVICE_GRPC__PORT": str(lease), "LEASE_SERVICE_METRICS_PORT": "0"}
    task_settings = {
        "TASK_API_GRPC__PORT": str(grpc_port),
        "TASK_API_HTTP__PORT": "0",
        "TASK_API_METRICS_PORT": "0",
        "TASK_API_CLAIMS__WORKER_LIMIT": "100000",
    }
    processes = [
        await start("lease_service", {**shared, **lease_settings}),
        await start("task_api", {**shared, **task_settings}),
    ]
    print(f"process ids: lease_service {processes[0].pid}, task_api {processes[1].pid}", flush=True)
    channel = Channel(f"127.0.0.1:{grpc_port}", timeout=timedelta(seconds=60))
    watch = await asyncpg.connect(dsn)
    try:
        await channel.wait_ready(timedelta(seconds=30))
        await asyncio.sleep(6)  # the worker limit is stored by a loop of task_api
        await run_sections(Bench(channel, watch, f"127.0.0.1:{grpc_port}"), dsn, redis_url, folder, options)
    finally:
        await channel.stop()
        await watch.close()
        for process in reversed(processes):
            if process.returncode is not None:
                print(f"a service ended by itself with {process.returncode}: its figures count for nothing")
                continue
            process.terminate()
            await process.wait()


async def run_sections(
    bench: Bench, dsn: str, redis_url: str, folder: Path, options: argparse.Namespace
) -> None:
    wanted = options.only.split(",")
    await bench.prepare()
    rates: dict[str, float] = {}
    if "sql" in wanted:
        enqueue, rates["SQL engine alone"] = await sql_alone(dsn, options.tasks * 2)
        print(
            f"SQL alone: enqueue {enqueue:.0f}/s, claim+complete of {BATCH} {rates['SQL engine alone']:.0f}/s"
        )
    if "grpc" in wanted:
        rates |= await grpc_rates(bench, options.tasks)
    if "peers" in wanted:
        variables = {"REDIS_URL": redis_url.rpartition("/")[0] + "/7", "POSTGRES_DSN": dsn}
        rates |= await contests(bench, variables, folder, options)
    tell_goals(rates)


async def grpc_rates(bench: Bench, count: int) -> dict[str, float]:
    await bench.create(200, 20)
    await bench.drain(BATCH, 2)
    create_one = await rate(count // 4, lambda: bench.create(count // 4, 1))
    create_many = await rate(count, lambda: bench.create(count, 50))
    backlog = count + count // 4
    await bench.watch.execute(ANALYZE)
    half = backlog // 2
    before = await bench.wal()
    unary = await rate(half, lambda: drain_exactly(bench, half))
    batch_started = await bench.wal()
    batched = await rate(backlog - half, lambda: bench.drain(BATCH, 4))
    wal_batch = (await bench.wal() - batch_started) / (backlog - half)
    wal_unary = (batch_started - before) / half
    print(f"create, unary, 1 in flight       {create_one:9.0f} tasks/s")
    print(f"create, unary, 50 in flight      {create_many:9.0f} tasks/s")
    print(f"claim+complete, 1 a call, 16     {unary:9.0f} tasks/s   WAL {wal_unary:5.0f} B/task")
    print(
        f"claim+complete, {BATCH} a call, 4     {batched:9.0f} tasks/s   WAL {wal_batch:5.0f} B/task",
        flush=True,
    )
    return {"gRPC unary": unary, "gRPC batch": batched}


async def contests(
    bench: Bench, variables: dict[str, str], folder: Path, options: argparse.Namespace
) -> dict[str, float]:
    """Let everyone run in turn; the drain of each."""
    entrants = [ours(bench, variant) for variant in queues.VARIANTS]
    entrants += await queues.peers([name for name in options.peers.split(",") if name], variables)

    async def analyze() -> None:
        await bench.watch.execute("ANALYZE")

    drains = {}
    for entrant in entrants:
        try:
            found = await queues.contest(
                entrant, folder, variables, tasks=options.tasks, waits=options.waits, before_drain=analyze
            )
        except (RuntimeError, OSError) as error:
            print(f"{entrant.name:24} failed: {error}")
            continue
        queues.tell(entrant.name, found)
        drains[entrant.name] = found.drained
    return drains


def ours(bench: Bench, variant: str) -> queues.Entrant:
    """Our own worker: one process, made with the SDK."""

    async def trickle(count: int) -> float:
        for _ in range(count):
            await asyncio.sleep(random.uniform(0.01, 0.05))
            await bench.tasks.CreateTask(noop_task())
        return 0.0

    async def enqueue(count: int) -> float:
        began = time.perf_counter()
        if variant == "tuned":
            await bench.create_in_batches(count)
        else:
            await bench.create(count, 16)
        return time.perf_counter() - began

    concurrency = str(SDK_CONCURRENCY[variant])
    return queues.Entrant(
        f"sluicegate {variant}",
        enqueue,
        trickle,
        [sys.executable, SDK_WORKER, bench.target, CHANNEL, concurrency],
    )


def tell_goals(rates: dict[str, float]) -> None:
    """Print the ratios that are aimed at, as far as both sides were measured."""
    goals = [
        ("SQL engine alone", "pgqueuer tuned", 1.0),
        ("gRPC batch", "procrastinate tuned", 5.0),
        ("gRPC batch", "dramatiq tuned", 1.0),
        ("gRPC batch", "gRPC unary", 4.0),
        ("sluicegate tuned", "procrastinate tuned", 5.0),
        ("sluicegate tuned", "dramatiq tuned", 1.0),
        ("sluicegate tuned", "pgqueuer tuned", 1.0),
    ]
    for name, other, aim in goals:
        if rates.get(name) and rates.get(other):
            print(f"{name} / {other}: {rates[name] / rates[other]:.2f} (aim {aim:g})")


async def drain_exactly(bench: Bench, count: int) -> None:
    left = count

    async def work(number: int) -> None:
        nonlocal left
        request = worker_pb2.ClaimTasksRequest(
            worker=f"u{number}", channels=[CHANNEL], capabilities=[CAPABILITY], max_tasks=1
        )
        while left > 0:
            left -= 1
            [task] = (await bench.workers.ClaimTasks(request)).tasks
            completion = worker_pb2.Completion(claim=task.claim)
            await bench.workers.CompleteTasks(worker_pb2.CompleteTasksRequest(completions=[completion]))

    await asyncio.gather(*(work(number) for number in range(16)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--waits", type=int, default=200)
    parser.add_argument("--peers", default=",".join(queues.PACKAGES))
    options = parser.parse_args()
    end_cleanly()
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as folder:
        Path(folder).chmod(0o755)
        postgres, valkey = PostgresProcess(Path(folder) / "postgres"), ValkeyProcess(Path(folder) / "valkey")
        postgres.start()
        valkey.start()
        try:
            migrate(postgres.dsn)
            uvloop.run(measure(postgres.dsn, valkey.url, Path(folder), options))
        finally:
            valkey.stop()
            postgres.stop()


if __name__ == "__main__":
    main()
