import asyncio
import json
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from servicekit.errors import Reason, ServiceError
from sluicegate.task.v1 import task_pb2
from sluicegate.worker.v1 import worker_pb2
from sluicegate_client.worker import PermanentError, TaskContext, TransientError
from tests.support.task_api import RunningTaskApi, make_worker, read_stream, running_worker, task_stack
from tests.support.waiting import eventually


@pytest.fixture
async def api(database: str, redis_url: str) -> AsyncIterator[RunningTaskApi]:
    async with task_stack(database, redis_url) as running:
        yield running


async def ended(api: RunningTaskApi, task_id: str, *, within: float = 20) -> str:
    return await eventually(lambda: _end(api, task_id), within=within)


async def _end(api: RunningTaskApi, task_id: str) -> str:
    state = await api.state(task_id)
    return state if state in ("succeeded", "failed", "cancelled") else ""


async def test_a_task_runs_writes_text_and_ends(api: RunningTaskApi) -> None:
    worker = make_worker(api)

    @worker.handler("job")
    async def run(task: TaskContext) -> dict[str, object]:
        for word in task.payload["words"]:
            await task.text.write(word)
        await task.progress(50, "half")
        return {"count": len(task.payload["words"])}

    words = ["one ", "two\n", "three\u2028", "\U0001f600", "\n\n", "four\r\nfive"]
    async with running_worker(worker):
        task = await api.create({"words": words})
        assert await ended(api, task.task_id) == "succeeded"
    stored = await api.get(task.task_id)
    assert json.loads(stored.result_json) == {"count": 6}
    assert (stored.attempt_count, stored.progress_percent, stored.worker) == (1, 100, "")
    events, headers = await read_stream(api.http, task.task_id)
    text = "".join(json.loads(e.data) if e.type == "text-json" else e.data for e in events[:-1])
    assert text == "".join(words)
    assert (events[-1].type, json.loads(events[-1].data)) == ("end", {"state": "succeeded"})
    assert headers.headers["x-sluicegate-replay-from"] == "0.0"
    assert headers.headers["x-accel-buffering"] == "no"


async def test_live_text_reaches_a_reader_while_the_task_runs(api: RunningTaskApi) -> None:
    gate, worker = asyncio.Event(), make_worker(api)

    @worker.handler("job")
    async def run(task: TaskContext) -> None:
        await task.text.write("before ")
        await task.text.flush()
        await gate.wait()
        await task.text.write("after")

    async with running_worker(worker):
        task = await api.create()
        events, _ = await read_stream(api.http, task.task_id, until="message")
        assert [event.data for event in events] == ["before "]
        rest = asyncio.create_task(read_stream(api.http, task.task_id, last_event_id=events[-1].last_id))
        gate.set()
        assert [event.data for event in (await rest)[0]] == ["after", '{"state":"succeeded"}']


async def test_a_killed_workers_task_is_done_once_by_another(api: RunningTaskApi) -> None:
    task = await api.create({"n": 1})
    [dead] = await api.claim(worker="dead")
    await api.workers.AppendText(
        worker_pb2.AppendTextRequest(
            pieces=[worker_pb2.TextPiece(claim=dead.claim, seq=1, text="lost words")]
        )
    )
    await api.expire(task.task_id)
    runs, worker = [], make_worker(api, "alive")

    @worker.handler("job")
    async def run(attempt: TaskContext) -> None:
        runs.append(attempt.epoch)
        await attempt.text.write("new words")

    async with running_worker(worker):
        assert await ended(api, task.task_id) == "succeeded"
    assert runs == [2]
    assert [(item.outcome, item.worker) for item in await api.attempts(task.task_id)] == [
        ("lost", "dead"),
        ("succeeded", "alive"),
    ]
    late = worker_pb2.CompleteTasksRequest(completions=[worker_pb2.Completion(claim=dead.claim)])
    [result] = (await api.workers.CompleteTasks(late)).results
    assert result.outcome == worker_pb2.WRITE_OUTCOME_CLAIM_LOST
    events, _ = await read_stream(api.http, task.task_id)
    assert [event.type for event in events] == ["message", "reset", "message", "end"]


async def test_a_handlers_errors_decide_about_another_attempt(api: RunningTaskApi) -> None:
    worker, seen = make_worker(api), []

    @worker.handler("job")
    async def run(task: TaskContext) -> None:
        seen.append(task.epoch)
        if task.payload["how"] == "permanent":
            raise PermanentError("never: password=hunter2\x00")
        if task.epoch == 1:
            raise TransientError("once")

    async with running_worker(worker):
        again = await api.create({"how": "transient"})
        never = await api.create({"how": "permanent"})
        assert await ended(api, again.task_id) == "succeeded"
        assert await ended(api, never.task_id) == "failed"
    attempts = await api.attempts(again.task_id)
    assert [(item.outcome, item.error_class) for item in attempts] == [
        ("failed", "transient"),
        ("succeeded", ""),
    ]
    error = (await api.get(never.task_id)).error
    assert error.startswith("never: password=")
    assert "hunter2" not in error
    assert "\x00" not in error


BAD_RESULTS: dict[str, object] = {
    "nan": {"n": float("nan")},
    "infinity": {"n": float("inf")},
    "surrogate": {"text": "\ud800"},
    "too large": {"big": "x" * 300_000},
    "object": {"thing": object()},
    "list": ["no", "mapping"],
    "deep": {"deep": json.loads("[" * 200 + "]" * 200)},
    "nul": {"nul": "a\x00b"},
}


async def test_nothing_that_a_handler_returns_gets_a_task_stuck(api: RunningTaskApi) -> None:
    """kestra#10326, pydantic-ai#7164: NUL could not be stored; an oversize payload was retried for ever."""
    worker = make_worker(api)

    @worker.handler("job")
    async def run(task: TaskContext) -> object:
        return BAD_RESULTS[task.payload["name"]]

    async with running_worker(worker):
        tasks = {name: await api.create({"name": name}) for name in BAD_RESULTS}
        for name, task in tasks.items():
            assert (name, await ended(api, task.task_id)) == (name, "failed")
    for name, task in tasks.items():
        attempts = await api.attempts(task.task_id)
        assert [(name, item.error_class) for item in attempts] == [(name, "permanent")]
    assert "300" in (await api.get(tasks["too large"].task_id)).error


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even its message is broken")


BAD_ERRORS: dict[str, BaseException] = {
    "broken": BrokenError(),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "unstorable": Exception("\x00\ud800" * 20_000),
    "slow": TimeoutError("slow"),
}


async def test_nothing_that_a_handler_raises_gets_a_task_stuck(api: RunningTaskApi) -> None:
    worker = make_worker(api)

    @worker.handler("job")
    async def run(task: TaskContext) -> None:
        raise BAD_ERRORS[task.payload["name"]]

    async with running_worker(worker):
        tasks = {name: await api.create({"name": name}, max_attempts=1) for name in BAD_ERRORS}
        for name, task in tasks.items():
            assert (name, await ended(api, task.task_id)) == (name, "failed")


async def test_cancelling_a_waiting_task_ends_it_at_once(api: RunningTaskApi) -> None:
    for task in (await api.create(), await api.create(delay_ms=60_000)):
        request = task_pb2.CancelTaskRequest(task_id=task.task_id, reason="not needed")
        answer = (await api.tasks.CancelTask(request)).task
        assert (answer.state, answer.error) == (task_pb2.TASK_STATE_CANCELLED, "not needed")
        assert (await api.tasks.CancelTask(request)).task.state == task_pb2.TASK_STATE_CANCELLED
    assert await api.claim(wait_ms=0) == []


async def test_cancelling_a_running_task_reaches_its_handler(api: RunningTaskApi) -> None:
    worker, started, reasons = make_worker(api), asyncio.Event(), []

    @worker.handler("job")
    async def run(task: TaskContext) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            reasons.append(task.stop_reason)
            raise

    async with running_worker(worker):
        task = await api.create()
        await asyncio.wait_for(started.wait(), 10)
        await api.tasks.CancelTask(task_pb2.CancelTaskRequest(task_id=task.task_id))
        assert await ended(api, task.task_id) == "cancelled"
    assert reasons == ["cancel_requested"]
    assert [item.outcome for item in await api.attempts(task.task_id)] == ["cancelled"]


async def test_cancel_of_an_unknown_id_harms_no_later_task(api: RunningTaskApi) -> None:
    """arq#485: a cancel of an unknown id killed a later job."""
    with pytest.raises(ServiceError) as caught:
        await api.tasks.CancelTask(task_pb2.CancelTaskRequest(task_id="0195d2d5-9d3a-7c5e-8a8e-000000000000"))
    assert caught.value.reason is Reason.NOT_FOUND
    task = await api.create()
    [claimed] = await api.claim()
    assert claimed.claim.task_id == task.task_id
    renewal = await api.workers.RenewClaims(worker_pb2.RenewClaimsRequest(claims=[claimed.claim]))
    assert not renewal.results[0].cancel_requested


async def test_draining_hands_claims_back_at_once_and_the_attempt_does_not_count(api: RunningTaskApi) -> None:
    """celery#3802: SIGTERM lost or repeated finished work."""
    started, worker = asyncio.Event(), make_worker(api, drain_timeout=0.1)

    @worker.handler("job")
    async def run(task: TaskContext) -> None:
        started.set()
        await asyncio.sleep(60)

    task = await api.create(max_attempts=1)
    async with running_worker(worker):
        await asyncio.wait_for(started.wait(), 10)
    assert await api.state(task.task_id) == "ready"
    [claimed] = await api.claim()
    assert (claimed.claim.task_id, claimed.claim.epoch) == (task.task_id, 2)
    assert (await api.get(task.task_id)).attempt_count == 1


async def test_a_handler_that_blocks_the_event_loop_keeps_its_claim(database: str, redis_url: str) -> None:
    """dramatiq#692: a CPU-bound handler starved the heartbeat."""
    async with task_stack(database, redis_url, claims__lease="2s", claims__slot_life="4s") as api:
        task = await api.create()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.blocking_worker", api.address, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert await ended(api, task.task_id, within=90) == "succeeded"
        finally:
            process.terminate()
            await process.wait()
        assert [item.outcome for item in await api.attempts(task.task_id)] == ["succeeded"]


async def test_http_creates_reads_and_cancels(api: RunningTaskApi) -> None:
    async with aiohttp.ClientSession(api.http) as session:
        body = {"channel": "work", "kind": "job", "payload": {"a": 1}, "idempotency_key": "k"}
        async with session.post("/api/tasks", json=body) as response:
            created = await response.json()
            assert response.status == 201
        async with session.post("/api/tasks", json=body) as response:
            assert (response.status, (await response.json())["task_id"]) == (200, created["task_id"])
        async with session.post("/api/tasks", json={**body, "payload": {"a": 2}}) as response:
            assert (response.status, (await response.json())["reason"]) == (409, "KEY_REUSED")
        async with session.get("/api/tasks") as response:
            assert [task["task_id"] for task in (await response.json())["tasks"]] == [created["task_id"]]
        async with session.get(f"/api/tasks/{created['task_id']}") as response:
            assert (await response.json())["payload"] == {"a": 1}
        async with session.post(f"/api/tasks/{created['task_id']}/cancel") as response:
            assert (await response.json())["state"] == "cancelled"
        async with session.get("/api/channels") as response:
            assert "work" in [channel["name"] for channel in (await response.json())["channels"]]
        async with session.get("/openapi.json") as response:
            assert "/api/tasks/{task_id}/text-events" in (await response.json())["paths"]
        async with session.get("/console/") as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["content-security-policy"]


async def test_another_tenants_task_does_not_exist(api: RunningTaskApi) -> None:
    task = await api.create()
    other = {"x-sluicegate-tenant": "other"}
    async with aiohttp.ClientSession(api.http, headers=other) as session:
        for path in ("", "/text-events", "/text-deltas", "/attempts"):
            async with session.get(f"/api/tasks/{task.task_id}{path}") as response:
                assert (response.status, (await response.json())["reason"]) == (404, "NOT_FOUND")
        async with session.post(f"/api/tasks/{task.task_id}/cancel") as response:
            assert response.status == 404
        async with session.get("/api/tasks") as response:
            assert (await response.json())["tasks"] == []
    assert await api.state(task.task_id) == "ready"
