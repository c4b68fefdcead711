import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sluicegate.task.v1 import task_pb2
from tests.support.node_tools import node_modules
from tests.support.task_api import CHANNEL, RunningTaskApi, read_stream, task_stack
from tests.support.waiting import eventually

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "examples" / "node-worker" / "worker.js"
KIND = "text.words"


@asynccontextmanager
async def node_worker(api: RunningTaskApi) -> AsyncIterator[asyncio.subprocess.Process]:
    environ = {**os.environ, "NODE_PATH": str(node_modules()), "RENEW_EVERY_MS": "100"}
    process = await asyncio.create_subprocess_exec("node", str(SCRIPT), api.address, CHANNEL, env=environ)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ended(api: RunningTaskApi, task_id: str, state: str) -> None:
    async def reached() -> bool:
        return await api.state(task_id) == state

    await eventually(reached, within=30)


async def test_the_example_in_node_runs_fails_stops_and_drains(database: str, redis_url: str) -> None:
    slow = {"prompt": "to be " * 1000, "delay_ms": 20}
    async with task_stack(database, redis_url) as api, node_worker(api) as process:
        good = await api.create({"prompt": "to be or"}, kind=KIND)
        bad = await api.create({"prompt": 1}, kind=KIND)
        unwanted = await api.create(slow, kind=KIND)
        await ended(api, good.task_id, "succeeded")
        assert json.loads((await api.get(good.task_id)).result_json) == {"words": 3}
        events, _ = await read_stream(api.http, good.task_id)
        assert "".join(event.data for event in events if event.type == "message") == "to be or "
        await ended(api, bad.task_id, "failed")
        assert [item.error_class for item in await api.attempts(bad.task_id)] == ["permanent"]
        await read_stream(api.http, unwanted.task_id, until="message")
        await api.tasks.CancelTask(task_pb2.CancelTaskRequest(task_id=unwanted.task_id))
        await ended(api, unwanted.task_id, "cancelled")
        held = await api.create(slow, kind=KIND, max_attempts=1)
        await read_stream(api.http, held.task_id, until="message")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert await api.state(held.task_id) == "ready"
