"""Two replicas, lost engines, killed processes."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from devengines.valkey import ValkeyProcess
from sluicegate.worker.v1 import worker_pb2
from sluicegate_client.worker import TaskContext
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.task_api import (
    RunningTaskApi,
    make_worker,
    read_stream,
    running_task_api,
    running_worker,
    task_settings,
)
from tests.support.waiting import eventually

SLOW = {"claims__poll": "30s", "http__heartbeat": "30s"}
"""Polling so slow that only a wake explains a quick answer."""


@asynccontextmanager
async def replicas(
    database: str, redis_url: str, **variables: str
) -> AsyncIterator[tuple[RunningTaskApi, RunningTaskApi]]:
    async with running_lease_service(lease_settings(database, redis_url)) as lease:
        settings = task_settings(database, redis_url, lease, **variables)
        async with running_task_api(settings) as one, running_task_api(settings) as other:
            await one.save_channel()
            yield one, other


async def append(api: RunningTaskApi, claim: worker_pb2.Claim, seq: int) -> None:
    piece = worker_pb2.TextPiece(claim=claim, seq=seq, text=f"{seq};")
    await api.workers.AppendText(worker_pb2.AppendTextRequest(pieces=[piece]))


async def complete(api: RunningTaskApi, claim: worker_pb2.Claim) -> None:
    completion = worker_pb2.Completion(claim=claim)
    await api.workers.CompleteTasks(worker_pb2.CompleteTasksRequest(completions=[completion]))


async def test_a_wake_reaches_the_other_replica(database: str, redis_url: str) -> None:
    async with replicas(database, redis_url, **SLOW) as (one, other):
        waiting = asyncio.create_task(other.claim(wait_ms=25_000))
        await asyncio.sleep(0.3)
        await one.create()
        [claimed] = await asyncio.wait_for(waiting, 15)
        reading = asyncio.create_task(read_stream(other.http, claimed.claim.task_id))
        await asyncio.sleep(0.3)
        await append(one, claimed.claim, 1)
        await complete(one, claimed.claim)
        events, _ = await asyncio.wait_for(reading, 15)
        assert [event.data for event in events] == ["1;", '{"state":"succeeded"}']


async def test_without_redis_polling_still_finds_everything(
    database: str, redis_url: str, engines_folder: Path
) -> None:
    wakes = ValkeyProcess(engines_folder / "wakes")
    wakes.start()
    async with running_lease_service(lease_settings(database, redis_url)) as lease:
        settings = task_settings(database, wakes.url, lease, http__heartbeat="300ms")
        async with running_task_api(settings) as one, running_task_api(settings) as other:
            await one.save_channel()
            wakes.kill()
            waiting = asyncio.create_task(other.claim(wait_ms=25_000))
            await one.create()
            [claimed] = await asyncio.wait_for(waiting, 15)
            reading = asyncio.create_task(read_stream(other.http, claimed.claim.task_id))
            await append(one, claimed.claim, 1)
            await complete(one, claimed.claim)
            assert [event.data for event in (await reading)[0]] == ["1;", '{"state":"succeeded"}']
            wakes.start()
            await one.create()
            assert len(await other.claim()) == 1
    wakes.stop()


async def test_a_worker_goes_on_after_its_server_was_away(database: str, redis_url: str) -> None:
    """celery#8030: a worker was alive but consumed nothing after it had reconnected."""
    async with running_lease_service(lease_settings(database, redis_url)) as lease:
        async with running_task_api(task_settings(database, redis_url, lease)) as first:
            port = first.address.rpartition(":")[2]
            await first.save_channel()
            worker, done = make_worker(first), asyncio.Event()

            @worker.handler("job")
            async def run(task: TaskContext) -> None:
                done.set()

            await worker.start()
            await first.create()
            await asyncio.wait_for(done.wait(), 15)
        done.clear()
        await asyncio.sleep(0.5)
        async with running_task_api(task_settings(database, redis_url, lease, grpc__port=port)) as second:
            task = await second.create()
            await asyncio.wait_for(done.wait(), 20)
            await eventually(lambda: _succeeded(second, task.task_id))
            await worker.drain()
            await worker.stop()


async def _succeeded(api: RunningTaskApi, task_id: str) -> bool:
    return await api.state(task_id) == "succeeded"


async def test_a_completion_whose_answer_was_lost_is_stored_once(database: str, redis_url: str) -> None:
    """celery#3802: finished work was lost or repeated when the process ended."""
    async with running_lease_service(lease_settings(database, redis_url)) as lease:
        settings = task_settings(database, redis_url, lease)
        async with running_task_api(settings) as api:
            await api.save_channel()
            port = api.address.rpartition(":")[2]
            worker, release, runs = make_worker(api, drain_timeout=10), asyncio.Event(), []

            @worker.handler("job")
            async def run(task: TaskContext) -> None:
                runs.append(task.epoch)
                await release.wait()

            await worker.start()
            task = await api.create()
            await eventually(lambda: runs)
        release.set()  # it ends while nobody answers
        await asyncio.sleep(0.3)
        async with running_task_api(task_settings(database, redis_url, lease, grpc__port=port)) as again:
            await eventually(lambda: _succeeded(again, task.task_id), within=20)
            assert [item.outcome for item in await again.attempts(task.task_id)] == ["succeeded"]
            assert runs == [1]
            await worker.drain()
            await worker.stop()


async def test_a_killed_worker_processs_tasks_are_done_once_by_another(database: str, redis_url: str) -> None:
    variables = {"claims__lease": "2s", "claims__slot_life": "3s"}
    async with replicas(database, redis_url, **variables) as (one, other):
        tasks = [await one.create() for _ in range(3)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.blocking_worker", one.address
        )
        await eventually(lambda: _runs(one), within=20)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        worker = make_worker(other, "alive")

        @worker.handler("job")
        async def run(task: TaskContext) -> None:
            await task.text.write("done")

        async with running_worker(worker):
            for task in tasks:
                await eventually(lambda task_id=task.task_id: _succeeded(other, task_id), within=20)
        outcomes = [[item.outcome for item in await one.attempts(task.task_id)] for task in tasks]
        assert sorted(outcomes) == [["lost", "succeeded"], ["succeeded"], ["succeeded"]]
        succeeded = await one.database.fetchval("SELECT count(*) FROM task_outcome WHERE terminal")
        assert succeeded == 3


async def _runs(api: RunningTaskApi) -> bool:
    return await api.database.fetchval("SELECT count(*) FROM task_lease") == 1


async def test_sigterm_ends_the_process_while_streams_and_claims_are_open(
    database: str, redis_url: str
) -> None:
    """uvicorn#451: open streams kept the process alive."""
    async with running_lease_service(lease_settings(database, redis_url)) as lease:
        settings = task_settings(database, redis_url, lease)
        async with running_task_api(settings) as api:
            await api.save_channel()
            task = await api.create()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLUICEGATE_")},
            "TASK_API_GRPC__PORT": "0",
            "TASK_API_HTTP__PORT": "0",
            "TASK_API_METRICS_PORT": "0",
            "SLUICEGATE_POSTGRES_DSN": database,
            "SLUICEGATE_REDIS_URL": redis_url,
            "SLUICEGATE_LEASE_SERVICE": lease,
            "SLUICEGATE_LOG_JSON": "false",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "task_api",
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        lines: list[str] = []
        reading = asyncio.create_task(_read_lines(process.stdout, lines))
        try:
            address = await eventually(lambda: _http_address(lines), within=30)
            streams = [
                asyncio.create_task(
                    read_stream(f"http://{address}", task.task_id, until="farewell", within=40)
                )
                for _ in range(5)
            ]
            await asyncio.sleep(1)
            started = time.monotonic()
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == 0
            assert time.monotonic() - started < 30
            for stream in streams:
                assert [event.type for event in (await stream)[0]] == ["farewell"]
        finally:
            if process.returncode is None:
                process.kill()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
    assert not [line for line in lines if "Traceback" in line or "[error" in line], "\n".join(lines)


async def _read_lines(stream: asyncio.StreamReader | None, lines: list[str]) -> None:
    assert stream is not None
    async for line in stream:
        lines.append(line.decode())  # noqa: PERF401 - the lines are looked at as they come


def _http_address(lines: list[str]) -> str:
    for line in lines:
        if "serving" in line and "protocol=http" in line:
            return next(word.removeprefix("address=") for word in line.split() if word.startswith("address="))
    return ""


async def test_a_taken_port_is_told_in_one_line(database: str, redis_url: str) -> None:
    async with running_lease_service(lease_settings(database, redis_url)) as lease:  # noqa: SIM117 - one needs the other
        async with running_task_api(task_settings(database, redis_url, lease)) as api:
            port = api.http.rpartition(":")[2]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "task_api",
                env={
                    **os.environ,
                    "TASK_API_HTTP__PORT": port,
                    "TASK_API_GRPC__PORT": "0",
                    "TASK_API_METRICS_PORT": "0",
                    "TASK_API_POSTGRES__DSN": database,
                    "TASK_API_REDIS__URL": redis_url,
                    "TASK_API_PEERS__LEASE_SERVICE": lease,
                },
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            _, told = await asyncio.wait_for(process.communicate(), 40)
    [line] = [line for line in told.decode().splitlines() if "cannot start" in line]
    assert process.returncode == 1
    assert f"127.0.0.1:{port}" in line
    assert "TASK_API_HTTP__PORT" in line
    assert "Traceback" not in told.decode()


async def test_the_health_page_tells_the_truth(database: str, redis_url: str) -> None:
    async with running_lease_service(lease_settings(database, redis_url)) as lease:
        settings = task_settings(database, redis_url, lease)
        async with running_task_api(settings) as api, aiohttp.ClientSession(api.http) as session:
            assert await eventually(lambda: _health(session)) == (
                200,
                {"lease_service": True, "postgres": True},
            )


async def _health(session: aiohttp.ClientSession) -> tuple[int, dict[str, bool]] | None:
    async with session.get("/health") as response:
        body = await response.json()
        checks = {name: check["ok"] for name, check in body["checks"].items()}
        return (response.status, checks) if response.status == 200 else None


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SLUICEGATE_", "TASK_API_")):
            monkeypatch.delenv(name)
