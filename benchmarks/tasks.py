"""Rates of tasks: create, claim and complete through gRPC one by one and in batches, and the SQL alone; one run.

Run: python benchmarks/tasks.py [--tasks 2000]. Everything is durable and fenced and holds a slot per task. What counts
are the ratios: client, services and engines share the machine's cores.
"""

import argparse
import asyncio
import os
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
BATCH = 50
CAPABILITY = worker_pb2.Capability(kind=KIND, max_payload_version=1)


class Bench:
    """Clients of one running task_api."""

    def __init__(self, channel: Channel, watch: asyncpg.Connection) -> None:
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
        async def some(share: int) -> None:
            for _ in range(share):
                await self.tasks.CreateTask(task_pb2.CreateTaskRequest(channel=CHANNEL, kind=KIND))

        await asyncio.gather(*(some(count // in_flight) for _ in range(in_flight)))

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


async def sql_alone(dsn: str, count: int) -> tuple[float, float]:
    """Enqueue and drain on the stores themselves: no RPC, no slots; answer both rates."""
    database = Postgres(PostgresSettings(dsn=SecretUrl(dsn), max_size=8), "bench")
    await database.start()
    tasks, claims = PostgresTasks(database), PostgresClaims(database)
    request = ClaimRequest("w", ("sql",), {KIND: 1}, BATCH)
    new = [sql_task() for _ in range(count)]
    enqueue = await rate(count, lambda: asyncio.gather(*(tasks.create(task) for task in new)))
    await database.pool.execute("ANALYZE task, task_ready, task_lease")

    async def work() -> int:
        done = 0
        while claimed := await claims.claim(
            "sql", request, new_token(), [Slot(new_token(), 1) for _ in range(BATCH)], timedelta(seconds=45)
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


async def measure(dsn: str, redis_url: str, count: int) -> None:
    lease, grpc_port = free_port(), free_port()
    shared = {
        "SLUICEGATE_POSTGRES_DSN": dsn,
        "SLUICEGATE_REDIS_URL": redis_url,
        "SLUICEGATE_LEASE_SERVICE": f"127.0.0.1:{lease}",
    }
    processes = [
        await start(
            "lease_service",
            {**shared, "LEASE_SERVICE_GRPC__PORT": str(lease), "LEASE_SERVICE_METRICS_PORT": "0"},
        ),
        await start(
            "task_api",
            {
                **shared,
                "TASK_API_GRPC__PORT": str(grpc_port),
                "TASK_API_HTTP__PORT": "0",
                "TASK_API_METRICS_PORT": "0",
                "TASK_API_CLAIMS__WORKER_LIMIT": "100000",
            },
        ),
    ]
    channel = Channel(f"127.0.0.1:{grpc_port}", timeout=timedelta(seconds=60))
    watch = await asyncpg.connect(dsn)
    try:
        await channel.wait_ready(timedelta(seconds=30))
        await asyncio.sleep(6)  # the worker limit is stored by a loop of task_api
        await report(Bench(channel, watch), dsn, count)
    finally:
        await channel.stop()
        await watch.close()
        for process in reversed(processes):
            process.terminate()
            await process.wait()


async def report(bench: Bench, dsn: str, count: int) -> None:
    await bench.prepare()
    await bench.create(200, 20)
    await bench.drain(BATCH, 2)
    create_one = await rate(count // 4, lambda: bench.create(count // 4, 1))
    create_many = await rate(count, lambda: bench.create(count, 50))
    backlog = count + count // 4
    await bench.watch.execute("ANALYZE task, task_ready, task_lease, task_outcome")
    half = backlog // 2
    before = await bench.wal()
    unary = await rate(half, lambda: drain_exactly(bench, half))
    batch_started = await bench.wal()
    batched = await rate(backlog - half, lambda: bench.drain(BATCH, 4))
    wal_batch = (await bench.wal() - batch_started) / (backlog - half)
    wal_unary = (batch_started - before) / half
    gain = batched / unary
    sql_enqueue, sql_drain = await sql_alone(dsn, count * 2)
    print(f"create, unary, 1 in flight       {create_one:9.0f} tasks/s")
    print(
        f"create, unary, 50 in flight      {create_many:9.0f} tasks/s   {create_many / create_one:5.1f} x one in flight"
    )
    print(f"claim+complete, 1 a call, 16     {unary:9.0f} tasks/s   WAL {wal_unary:5.0f} B/task")
    print(
        f"claim+complete, {BATCH} a call, 4     {batched:9.0f} tasks/s   WAL {wal_batch:5.0f} B/task"
        f"   {gain:5.1f} x unary"
    )
    print(
        f"SQL alone: enqueue               {sql_enqueue:9.0f} tasks/s   {sql_enqueue / create_many:5.1f} x gRPC"
    )
    print(
        f"SQL alone: claim+complete of {BATCH}  {sql_drain:9.0f} tasks/s   {sql_drain / batched:5.1f} x gRPC in batches"
    )


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as folder:
        Path(folder).chmod(0o755)
        postgres, valkey = PostgresProcess(Path(folder) / "postgres"), ValkeyProcess(Path(folder) / "valkey")
        postgres.start()
        valkey.start()
        try:
            migrate(postgres.dsn)
            uvloop.run(measure(postgres.dsn, valkey.url, options.tasks))
        finally:
            valkey.stop()
            postgres.stop()


if __name__ == "__main__":
    main()
