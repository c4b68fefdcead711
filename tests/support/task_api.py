"""A whole task_api, with a real lease service, inside the test's event loop."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
import asyncpg

from servicekit.grpc_client import Channel
from servicekit.grpc_server import GrpcServer
from servicekit.http_server import HttpServer
from servicekit.lifecycle import App
from sluicegate.lease.v1 import lease_pb2, lease_pb2_grpc
from sluicegate.operator.v1 import operator_pb2, operator_pb2_grpc
from sluicegate.task.v1 import task_pb2, task_pb2_grpc
from sluicegate.worker.v1 import worker_pb2, worker_pb2_grpc
from sluicegate_client.worker import Worker
from task_api.app import build
from task_api.settings import Settings
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.sse import SseEvent, SseReader
from tests.support.waiting import eventually

CHANNEL = "work"
KIND = "job"


def task_settings(database: str, redis_url: str, lease_service: str, **variables: str) -> Settings:
    """Make settings with short lives and quick loops."""
    return Settings.from_environment(
        {
            "TASK_API_GRPC__PORT": "0",
            "TASK_API_HTTP__PORT": "0",
            "TASK_API_METRICS_PORT": "0",
            "TASK_API_POSTGRES__DSN": database,
            "TASK_API_REDIS__URL": redis_url,
            "TASK_API_PEERS__LEASE_SERVICE": lease_service,
            "TASK_API_CLAIMS__POLL": "100ms",
            "TASK_API_CLAIMS__SWEEP_EVERY": "50ms",
            "TASK_API_CLAIMS__PROMOTE_EVERY": "50ms",
            "TASK_API_HTTP__RECONNECT": "20ms",
            "SLUICEGATE_LOG_LEVEL": "WARNING",
            **{f"TASK_API_{name.upper()}": value for name, value in variables.items()},
        }
    )


@dataclass
class RunningTaskApi:
    """A running task_api and stubs connected to it."""

    app: App
    address: str
    http: str
    tasks: task_pb2_grpc.TaskServiceStub
    workers: worker_pb2_grpc.WorkerServiceStub
    operators: operator_pb2_grpc.OperatorServiceStub
    channel: Channel
    database: asyncpg.Connection

    async def save_channel(self, name: str = CHANNEL, **changes: int) -> None:
        """Create or change a channel and wait until its limit is stored."""
        values = {"concurrency": 10, "max_backlog": 1000, "max_attempts": 3, **changes}
        request = operator_pb2.SaveChannelRequest(
            channel=operator_pb2.Channel(name=name, **values), actor="test"
        )
        await eventually(lambda: self._saved(request))

    async def _saved(self, request: operator_pb2.SaveChannelRequest) -> bool:
        await self.operators.SaveChannel(request)
        return True

    async def create(self, payload: dict[str, Any] | None = None, **fields: Any) -> task_pb2.Task:
        """Store a task."""
        request = task_pb2.CreateTaskRequest(
            **{"channel": CHANNEL, "kind": KIND, "payload_json": json.dumps(payload or {}), **fields}
        )
        return (await self.tasks.CreateTask(request)).task

    async def get(self, task_id: str) -> task_pb2.Task:
        """Read a task."""
        return (await self.tasks.GetTask(task_pb2.GetTaskRequest(task_id=task_id))).task

    async def state(self, task_id: str) -> str:
        """Return a task's state in lower case."""
        name: str = task_pb2.TaskState.Name((await self.get(task_id)).state)
        return name.removeprefix("TASK_STATE_").lower()

    async def claim(
        self, count: int = 1, *, worker: str = "w", wait_ms: int = 5000, **fields: Any
    ) -> list[Any]:
        """Claim tasks; fails unless the first comes in time."""
        request = worker_pb2.ClaimTasksRequest(
            worker=worker,
            channels=fields.pop("channels", [CHANNEL]),
            capabilities=[worker_pb2.Capability(kind=fields.pop("kind", KIND), max_payload_version=1)],
            max_tasks=count,
            wait_ms=wait_ms,
        )
        return list((await self.workers.ClaimTasks(request)).tasks)

    async def attempts(self, task_id: str) -> list[Any]:
        """List a task's ended attempts."""
        request = task_pb2.ListAttemptsRequest(task_id=task_id)
        return list((await self.tasks.ListAttempts(request)).attempts)

    async def expire(self, task_id: str) -> None:
        """Let a claim run out now, by the database's clock."""
        await self.database.execute(
            "UPDATE task_lease SET lease_until = now() - interval '1 second' WHERE task_id = $1", task_id
        )


@asynccontextmanager
async def running_task_api(settings: Settings) -> AsyncIterator[RunningTaskApi]:
    """Run one; it drains at the end, as on SIGTERM."""
    app = build(settings)
    started = []
    async with AsyncExitStack() as stack:
        try:
            for component in app.components:
                await component.start()
                started.append(component)
            await app.health.start()
            [grpc_server] = [item for item in app.components if isinstance(item, GrpcServer)]
            [http_server] = [item for item in app.components if isinstance(item, HttpServer)]
            channel = Channel(grpc_server.address, auth=settings.auth)
            stack.push_async_callback(channel.stop)
            database = await asyncpg.connect(settings.postgres.dsn.get_secret_value())
            stack.push_async_callback(database.close)
            yield RunningTaskApi(
                app=app,
                address=grpc_server.address,
                http=f"http://127.0.0.1:{http_server.port}",
                tasks=task_pb2_grpc.TaskServiceStub(channel.raw),
                workers=worker_pb2_grpc.WorkerServiceStub(channel.raw),
                operators=operator_pb2_grpc.OperatorServiceStub(channel.raw),
                channel=channel,
                database=database,
            )
        finally:
            await app.health.stop()
            for component in reversed(started):
                await component.drain()
            for component in reversed(started):
                await component.stop()


@asynccontextmanager
async def task_stack(database: str, redis_url: str, **variables: str) -> AsyncIterator[RunningTaskApi]:
    """Run a lease service and a task_api on it, with the channel ``work``."""
    async with running_lease_service(lease_settings(database, redis_url)) as lease_address:
        settings = task_settings(database, redis_url, lease_address, **variables)
        async with running_task_api(settings) as api:
            await api.save_channel()
            await eventually(lambda: _worker_limit(lease_address))
            yield api


async def _worker_limit(lease_address: str) -> bool:
    channel = Channel(lease_address)
    try:
        stub = lease_pb2_grpc.LeaseServiceStub(channel.raw)
        policies = (await stub.GetPolicy(lease_pb2.GetPolicyRequest(pool="tasks"))).policies
        return any(policy.scope == "workers" for policy in policies)
    finally:
        await channel.stop()


@asynccontextmanager
async def running_worker(worker: Worker) -> AsyncIterator[Worker]:
    """Run a worker; it drains at the end."""
    await worker.start()
    try:
        yield worker
    finally:
        await worker.drain()
        await worker.stop()


def make_worker(api: RunningTaskApi, name: str = "w", **options: Any) -> Worker:
    """Make a worker for the channel ``work`` that notices everything quickly."""
    seconds = {"renew_every": 0.2, "loss_margin": 0.2, "claim_wait": 1, "drain_timeout": 5}
    timings = {key: timedelta(seconds=options.pop(key, value)) for key, value in seconds.items()}
    return Worker(
        api.address, channels=[CHANNEL], name=name, concurrency=options.pop("concurrency", 4), **timings
    )


async def read_stream(
    http: str,
    task_id: str,
    *,
    after: str = "",
    last_event_id: str = "",
    until: str = "end",
    within: float = 20,
) -> tuple[list[SseEvent], Any]:
    """Read a task's stream until an event of a type, or its end; answer the events and the response's headers."""
    headers = {"last-event-id": last_event_id} if last_event_id else {}
    reader, events = SseReader(), []
    async with (
        asyncio.timeout(within),
        aiohttp.ClientSession() as session,
        session.get(
            f"{http}/api/tasks/{task_id}/text-events", params={"after": after}, headers=headers
        ) as response,
    ):
        if response.status != 200:
            return [], response
        async for chunk in response.content.iter_any():
            events += reader.feed(chunk)
            if any(event.type == until for event in events):
                break
        return events, response
