import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from sluicegate.task.v1 import task_pb2
from sluicegate_client.worker import SyncTaskContext, TaskContext, Worker
from tests.support import plain_handlers
from tests.support.task_api import CHANNEL, RunningTaskApi, read_stream, running_worker, task_stack
from tests.support.waiting import eventually

WAYS = ("async", "thread", "process")


@pytest.fixture
async def api(database: str, redis_url: str) -> AsyncIterator[RunningTaskApi]:
    async with task_stack(database, redis_url) as running:
        yield running


def impatient_worker(api: RunningTaskApi, concurrency: int = 6) -> Worker:
    return Worker(
        api.address,
        channels=[CHANNEL],
        name="w",
        concurrency=concurrency,
        renew_every=timedelta(seconds=0.2),
        loss_margin=timedelta(seconds=0.2),
        claim_wait=timedelta(seconds=1),
        drain_timeout=timedelta(seconds=1),
        stop_grace=timedelta(seconds=0.3),
    )


async def ended(api: RunningTaskApi, task_id: str) -> tuple[str, list[str]]:
    """Wait for a task's end; how it ended, and the classes of its attempts' errors."""

    async def state() -> str:
        now = await api.state(task_id)
        return now if now in ("succeeded", "failed", "cancelled") else ""

    return await eventually(state, within=60), [item.error_class for item in await api.attempts(task_id)]


async def test_a_plain_function_writes_from_a_thread_and_from_a_process(api: RunningTaskApi) -> None:
    worker = impatient_worker(api)
    worker.handler("thread")(plain_handlers.words)
    worker.handler("process", process=True)(plain_handlers.words)
    async with running_worker(worker):
        for kind in ("thread", "process"):
            task = await api.create({"words": ["one ", "two"]}, kind=kind)
            assert await ended(api, task.task_id) == ("succeeded", [""])
            stored = await api.get(task.task_id)
            assert '"count":2' in stored.result_json.replace(" ", "")
            assert (str(os.getpid()) in stored.result_json) == (kind == "thread")
            assert stored.progress_percent == 100
            events, _ = await read_stream(api.http, task.task_id)
            assert "".join(event.data for event in events if event.type == "message") == "one two"


async def test_whatever_a_handler_returns_or_raises_its_task_ends_in_the_right_class(
    api: RunningTaskApi,
) -> None:
    worker = impatient_worker(api)

    @worker.handler("async")
    async def run(task: TaskContext) -> object:
        return plain_handlers.misbehave(task)  # type: ignore[arg-type]

    worker.handler("thread")(plain_handlers.misbehave)
    worker.handler("process", process=True)(plain_handlers.misbehave)
    errors = {name: error_class for name, (_, error_class) in plain_handlers.ERRORS.items()}
    expected = {("return", name): "permanent" for name in plain_handlers.BAD_RESULTS}
    expected |= {("raise", name): error_class for name, error_class in errors.items()}
    expected[("raise", "recursion")] = "transient"
    async with running_worker(worker):
        tasks = {
            (way, how, name): await api.create({"how": how, "name": name}, kind=way, max_attempts=1)
            for way in WAYS
            for how, name in expected
        }
        found = {key: await ended(api, task.task_id) for key, task in tasks.items()}
    assert found == {(way, *key): ("failed", [name]) for way in WAYS for key, name in expected.items()}
    for way in WAYS:
        assert "50000008" in (await api.get(tasks[way, "return", "50 MB"].task_id)).error


async def test_a_process_that_dies_is_poison_and_ends_its_task(api: RunningTaskApi) -> None:
    """activepieces#15130: a task that killed its workers was delivered again for ever."""
    worker = impatient_worker(api)
    worker.handler("job", process=True)(plain_handlers.misbehave)
    attempts = {"exit": 1, "kill": 2, "segfault": 1}
    async with running_worker(worker):
        tasks = {
            name: await api.create({"how": "die", "name": name}, max_attempts=attempts[name])
            for name in plain_handlers.DEATHS
        }
        for name, task in tasks.items():
            assert await ended(api, task.task_id) == ("failed", ["poison"] * attempts[name])
    said = {name: (await api.get(task.task_id)).error for name, task in tasks.items()}
    assert "ended with status 5" in said["exit"]
    assert "killed by SIGKILL" in said["kill"]
    assert "killed by SIGSEGV" in said["segfault"]
    events, _ = await read_stream(api.http, tasks["exit"].task_id)
    assert [event.data for event in events if event.type == "message"] == ["last words"]


async def test_a_thread_is_asked_to_stop_and_may_clean_up(api: RunningTaskApi) -> None:
    worker, seen = impatient_worker(api), []

    @worker.handler("job")
    def run(task: SyncTaskContext) -> None:
        task.text.write("begun")
        task.text.flush()
        if task.wait(60):
            seen.append(task.stop_reason)
            task.text.write(" and cleaned up")
        task.raise_if_cancelled()

    async with running_worker(worker):
        task = await api.create()
        await read_stream(api.http, task.task_id, until="message")
        await api.tasks.CancelTask(task_pb2.CancelTaskRequest(task_id=task.task_id))
        assert (await ended(api, task.task_id))[0] == "cancelled"
    assert seen == ["cancel_requested"]
    events, _ = await read_stream(api.http, task.task_id)
    text = "".join(event.data for event in events if event.type == "message")
    assert text == "begun and cleaned up"


async def test_a_handler_that_never_ends_is_stopped_by_cancel_budget_and_deadline(
    api: RunningTaskApi, request: pytest.FixtureRequest
) -> None:
    worker = impatient_worker(api)

    @worker.handler("async")
    async def stubborn(task: TaskContext) -> None:
        await task.text.write("begun")
        while not gone.is_set():
            try:
                await gone.wait()
            except asyncio.CancelledError:
                continue

    gone = asyncio.Event()
    worker.handler("thread")(plain_handlers.never_end)
    worker.handler("process", process=True)(plain_handlers.never_end)
    worker.handler("budget", process=True, budget=timedelta(seconds=1))(plain_handlers.never_end)
    request.addfinalizer(plain_handlers.LET_GO.set)  # else its thread takes a core from every later test
    async with running_worker(worker):
        deadline = Timestamp()
        deadline.FromDatetime(datetime.now(UTC) + timedelta(seconds=3))
        late = [await api.create(kind=way, deadline_at=deadline) for way in WAYS]
        for task in late:
            assert (await ended(api, task.task_id))[0] == "failed"
            assert "deadline" in (await api.get(task.task_id)).error
        slow = await api.create(kind="budget", max_attempts=1)
        assert await ended(api, slow.task_id) == ("failed", ["transient"])
        assert "budget" in (await api.get(slow.task_id)).error
        unwanted = await api.create(kind="process")
        await read_stream(api.http, unwanted.task_id, until="message")
        await api.tasks.CancelTask(task_pb2.CancelTaskRequest(task_id=unwanted.task_id))
        assert (await ended(api, unwanted.task_id))[0] == "cancelled"
        gone.set()


async def test_a_process_that_holds_the_interpreters_lock_keeps_its_claim(
    database: str, redis_url: str
) -> None:
    """dramatiq#692: a CPU-bound handler starved the heartbeat."""
    async with task_stack(database, redis_url, claims__lease="1s", claims__slot_life="2s") as api:
        worker = impatient_worker(api)
        worker.handler("job", process=True)(plain_handlers.hold_the_lock)
        async with running_worker(worker):
            task = await api.create(max_attempts=1)
            assert await ended(api, task.task_id) == ("succeeded", [""])


async def test_many_of_the_largest_results_at_once_are_all_stored(api: RunningTaskApi) -> None:
    """Together they are more than one message may carry; a batch that can never be sent would be tried for ever."""
    count = 10
    together = asyncio.Barrier(count)
    worker = impatient_worker(api, concurrency=count)

    @worker.handler("job")
    async def run(task: TaskContext) -> dict[str, object]:
        await together.wait()
        return {"text": "\U0001f600" * 262_000}

    async with running_worker(worker):
        tasks = [await api.create() for _ in range(count)]
        for task in tasks:
            assert await ended(api, task.task_id) == ("succeeded", [""])
