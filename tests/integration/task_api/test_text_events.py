import asyncio
import json
import socket
from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest

from servicekit.errors import Reason, ServiceError
from sluicegate.task.v1 import task_pb2
from sluicegate.worker.v1 import worker_pb2
from task_api.app import _Intake
from task_api.domain.streams import TERMINAL_SEQ, Hub
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.sse import SseReader
from tests.support.task_api import (
    RunningTaskApi,
    read_stream,
    running_task_api,
    task_settings,
    task_stack,
)
from tests.support.waiting import eventually


@pytest.fixture
async def api(database: str, redis_url: str) -> AsyncIterator[RunningTaskApi]:
    async with task_stack(database, redis_url, http__heartbeat="200ms") as running:
        yield running


def hub_of(api: RunningTaskApi) -> Hub:
    [intake] = [item for item in api.app.components if isinstance(item, _Intake)]
    return intake._hub


async def append(api: RunningTaskApi, claim: worker_pb2.Claim, seq: int, text: str) -> None:
    piece = worker_pb2.TextPiece(claim=claim, seq=seq, text=text)
    [result] = (await api.workers.AppendText(worker_pb2.AppendTextRequest(pieces=[piece]))).results
    assert result.outcome == worker_pb2.WRITE_OUTCOME_OK


async def complete(api: RunningTaskApi, claim: worker_pb2.Claim) -> None:
    request = worker_pb2.CompleteTasksRequest(completions=[worker_pb2.Completion(claim=claim)])
    assert (await api.workers.CompleteTasks(request)).results[0].outcome == worker_pb2.WRITE_OUTCOME_OK


async def claimed(api: RunningTaskApi) -> worker_pb2.Claim:
    await api.create()
    [task] = await api.claim()
    return task.claim


async def finished(api: RunningTaskApi) -> str:
    """Return a task that wrote a, b, c and ended."""
    claim = await claimed(api)
    for seq, text in enumerate("abc", 1):
        await append(api, claim, seq, text)
    await complete(api, claim)
    return str(claim.task_id)


END = f"1.{TERMINAL_SEQ}"


CURSORS = [
    ("", "", 200, "0.0", "abc$"),
    ("0.0", "", 200, "0.0", "abc$"),
    ("1.1", "", 200, "1.1", "bc$"),
    ("", "1.2", 200, "1.2", "c$"),
    ("1.1", "1.2", 200, "1.2", "c$"),
    ("1.2", "1.1", 200, "1.2", "c$"),
    ("junk", "1.2", 200, "1.2", "c$"),
    ("1.2", "junk", 200, "1.2", "c$"),
    ("1.3", "", 200, "1.3", "$"),
    (END, "", 204, "", ""),
    ("", END, 204, "", ""),
    (END, "1.1", 204, "", ""),
    ("junk", "", 200, "0.0", "!malformed_cursor abc$"),
    ("1.2.3", "", 200, "0.0", "!malformed_cursor abc$"),
    ("-1.2", "", 200, "0.0", "!malformed_cursor abc$"),
    ("01.2", "", 200, "0.0", "!malformed_cursor abc$"),
    ("1.9007199254740992", "", 200, "0.0", "!malformed_cursor abc$"),
    ("9" * 5000, "", 200, "0.0", "!malformed_cursor abc$"),
    ("2.1", "", 200, "0.0", "!ahead_of_end abc$"),
    ("", "7.7", 200, "0.0", "!ahead_of_end abc$"),
    ("8.8", "7.7", 200, "0.0", "!ahead_of_end abc$"),
    ("1.2", "7.7", 200, "1.2", "c$"),
    ("7.7", "1.2", 200, "1.2", "c$"),
    (END, "7.7", 204, "", ""),
]
"""Last-Event-ID, ?after=, then the status, the start and what is seen of the text a, b, c."""


async def test_every_cursor_has_a_defined_outcome(api: RunningTaskApi) -> None:
    """izanami PR 51, mercure#1382: a query cursor frozen at its first value; a recent cursor that was not found."""
    task_id = await finished(api)
    shown = {"reset": lambda data: f"!{json.loads(data)['reason']} ", "end": lambda _: "$", "message": str}
    for header, query, status, start, seen in CURSORS:
        events, response = await read_stream(api.http, task_id, after=query, last_event_id=header)
        text = "".join(shown[event.type](event.data) for event in events)
        told = response.headers.get("x-sluicegate-replay-from", "")
        assert (response.status, told, text) == (status, start, seen), (header, query)


async def test_unknown_tasks_are_404_before_any_stream_begins(api: RunningTaskApi) -> None:
    """fastapi#15917: a failure before the first event became 200 and an empty stream."""
    for task_id in ("0195d2d5-9d3a-7c5e-8a8e-000000000000", "no-id", "%00"):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{api.http}/api/tasks/{task_id}/text-events") as response,
        ):
            body = await response.json()
            assert (response.status, response.content_type, body["reason"]) == (
                404,
                "application/problem+json",
                "NOT_FOUND",
            )


async def test_first_bytes_and_heartbeats_come_without_any_event(api: RunningTaskApi) -> None:
    claim = await claimed(api)
    await append(api, claim, 1, "x")
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{api.http}/api/tasks/{claim.task_id}/text-events?after=1.1") as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store, no-transform"
        first = await asyncio.wait_for(response.content.readuntil(b"\n\n"), 5)
        assert first.startswith(b"retry: ")
        assert await asyncio.wait_for(response.content.readuntil(b"\n\n"), 5) == b"id: 1.1\n\n"


async def test_a_reader_that_leaves_stops_nothing_and_leaves_nothing(api: RunningTaskApi) -> None:
    """aegra PR 323, sse-starlette#28, stemdeck#513: a viewer's cut killed the job, or its place was never freed."""
    claim, hub = await claimed(api), hub_of(api)
    await append(api, claim, 1, "a")
    for _ in range(5):
        await read_stream(api.http, claim.task_id, until="message")
    await eventually(lambda: hub.tail_count == 0)
    assert await api.state(claim.task_id) == "running"
    await append(api, claim, 2, "b")
    await complete(api, claim)
    events, _ = await read_stream(api.http, claim.task_id)
    assert [event.data for event in events[:-1]] == ["a", "b"]


async def test_readers_at_random_moments_meet_every_event_once(api: RunningTaskApi) -> None:
    """mercure#178, agentscope#2123: an event was lost between reading history and following."""
    claim = await claimed(api)

    async def read(delay: float, cut_after: int) -> str:
        await asyncio.sleep(delay)
        text, cursor, done = "", "", False
        while not done:
            reader = SseReader()
            headers = {"last-event-id": cursor} if cursor else {}
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{api.http}/api/tasks/{claim.task_id}/text-events", headers=headers) as response,
            ):
                taken = 0
                async for chunk in response.content.iter_any():
                    for event in reader.feed(chunk):
                        cursor, done, taken = event.last_id, event.type == "end", taken + 1
                        text += "" if done else event.data
                        if taken == cut_after or done:
                            break
                    if taken >= cut_after or done:
                        break
        return text

    readers = [asyncio.create_task(read(0.03 * number, 3 + number % 5)) for number in range(12)]
    for seq in range(1, 120):
        await append(api, claim, seq, f"{seq};")
    await complete(api, claim)
    expected = "".join(f"{seq};" for seq in range(1, 120))
    for reader in readers:
        assert await asyncio.wait_for(reader, 20) == expected


async def test_a_lost_wake_is_closed_by_the_safety_poll(api: RunningTaskApi) -> None:
    """open-webui PR 28910, channels#1717: a listener died silently or came back with a hole."""
    claim = await claimed(api)
    reading = asyncio.create_task(read_stream(api.http, claim.task_id, until="message"))
    await eventually(lambda: hub_of(api).tail_count == 1)
    await api.database.execute(
        "INSERT INTO task_event (task_id, epoch, seq, kind, data) VALUES ($1, 1, 1, 'text', 'unannounced')",
        claim.task_id,
    )
    assert [event.data for event in (await reading)[0]] == ["unannounced"]


async def test_many_readers_cost_the_reads_of_one(api: RunningTaskApi) -> None:
    claim, hub = await claimed(api), hub_of(api)
    reads = 0
    inner = hub._log.read

    async def counted(*arguments: object) -> object:
        nonlocal reads
        reads += 1
        return await inner(*arguments)

    hub._log.read = counted  # type: ignore[method-assign]
    readers = [asyncio.create_task(read_stream(api.http, claim.task_id)) for _ in range(30)]
    await eventually(lambda: hub.tail_count == 1 and next(iter(hub._tails.values())).reader_count == 30)
    reads = 0
    for seq in range(1, 11):
        await append(api, claim, seq, "x")
    await complete(api, claim)
    for reader in readers:
        events, _ = await reader
        assert "".join(event.data for event in events[:-1]) == "x" * 10
    assert reads <= 30, "one read or two per event and process, not one per reader"


async def test_stopping_says_farewell_and_does_not_wait_for_readers(database: str, redis_url: str) -> None:
    """uvicorn#451, sse-starlette#132: the server never exited while a stream was open."""
    async with running_lease_service(lease_settings(database, redis_url)) as lease_address:
        settings = task_settings(database, redis_url, lease_address)
        async with running_task_api(settings) as api:
            await api.save_channel()
            claim = await claimed(api)
            await append(api, claim, 1, "before ")
            readers = [
                asyncio.create_task(read_stream(api.http, claim.task_id, until="farewell")) for _ in range(20)
            ]
            await eventually(lambda: hub_of(api).tail_count == 1)
            await eventually(lambda: next(iter(hub_of(api)._tails.values())).reader_count == 20)
            watch = api.tasks.WatchTask(task_pb2.WatchTaskRequest(task_id=claim.task_id, after="1.1"))
            watching = asyncio.create_task(_drain(watch))
            await eventually(lambda: next(iter(hub_of(api)._tails.values())).reader_count == 21)
        cursors = set()
        for reader in readers:
            events, _ = await reader
            assert [event.type for event in events] == ["message", "farewell"]
            cursors.add(events[-1].last_id)
        assert cursors == {"1.1"}
        with pytest.raises(ServiceError) as caught:
            await watching
        assert caught.value.reason is Reason.DEPENDENCY_AWAY
        async with running_task_api(settings) as again:
            await append(again, claim, 2, "after")
            await complete(again, claim)
            events, _ = await read_stream(again.http, claim.task_id, last_event_id="1.1")
            assert [event.data for event in events[:-1]] == ["after"]


async def _drain(watch: AsyncIterator[task_pb2.WatchTaskResponse]) -> list[task_pb2.WatchTaskResponse]:
    return [message async for message in watch]


async def test_watching_over_grpc_sees_the_same_events(api: RunningTaskApi) -> None:
    task_id = await finished(api)
    messages = await _drain(api.tasks.WatchTask(task_pb2.WatchTaskRequest(task_id=task_id, after="1.1")))
    assert [(message.cursor, message.kind, message.data) for message in messages] == [
        ("1.2", "text", "b"),
        ("1.3", "text", "c"),
        (END, "end", '{"state":"succeeded"}'),
    ]
    assert await _drain(api.tasks.WatchTask(task_pb2.WatchTaskRequest(task_id=task_id, after=END))) == []
    for request, reason in (
        (task_pb2.WatchTaskRequest(task_id=task_id, after="junk"), Reason.INVALID_FIELD),
        (task_pb2.WatchTaskRequest(task_id="nobody"), Reason.NOT_FOUND),
    ):
        with pytest.raises(ServiceError) as caught:
            await _drain(api.tasks.WatchTask(request))
        assert caught.value.reason is reason


async def test_deltas_are_plain_json(api: RunningTaskApi) -> None:
    task_id = await finished(api)
    async with aiohttp.ClientSession(api.http) as session:
        async with session.get(f"/api/tasks/{task_id}/text-deltas?limit=2") as response:
            first = await response.json()
        async with session.get(
            f"/api/tasks/{task_id}/text-deltas", params={"after": first["next_after"]}
        ) as response:
            rest = await response.json()
        async with session.get(f"/api/tasks/{task_id}/text-deltas?after=junk") as response:
            assert response.status == 422
    assert [event["data"] for event in first["events"]] == ["a", "b"]
    assert (first["ended"], rest["ended"]) == (False, True)
    assert [event["kind"] for event in rest["events"]] == ["text", "end"]


async def test_a_task_that_runs_again_is_followed_to_its_second_end(api: RunningTaskApi) -> None:
    claim = await claimed(api)
    await append(api, claim, 1, "first")
    failure = worker_pb2.Failure(claim=claim, error_class="permanent", error="no")
    await api.workers.FailTasks(worker_pb2.FailTasksRequest(failures=[failure]))
    await api.tasks.RetryTask(task_pb2.RetryTaskRequest(task_id=claim.task_id))
    reading = asyncio.create_task(read_stream(api.http, claim.task_id))
    resuming = asyncio.create_task(read_stream(api.http, claim.task_id, last_event_id=END))
    await eventually(lambda: hub_of(api).tail_count == 1)
    [again] = await api.claim()
    await append(api, again.claim, 1, "second")
    await complete(api, again.claim)
    assert [event.type for event in (await reading)[0]] == ["message", "reset", "message", "end"]
    assert [event.type for event in (await resuming)[0]] == ["reset", "message", "end"]


async def test_a_stalled_reader_is_cut(database: str, redis_url: str) -> None:
    """mercure#899: unbounded memory for subscribers that read nothing."""
    async with task_stack(database, redis_url, http__send_timeout="1s") as api:
        claim, hub = await claimed(api), hub_of(api)
        host, port = api.http.removeprefix("http://").split(":")
        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((host, int(port)))
        stalled.sendall(
            f"GET /api/tasks/{claim.task_id}/text-events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        )
        await eventually(lambda: hub.tail_count == 1)
        for seq in range(1, 200):
            await append(api, claim, seq, "x" * 60_000)
            if hub.tail_count == 0:
                break
        await eventually(lambda: hub.tail_count == 0, within=15)
        stalled.close()


ORIGINS: list[tuple[dict[str, str], int]] = [
    ({}, 404),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({"sec-fetch-site": "same-origin"}, 404),
    ({"host": "rebound.example"}, 403),
]


async def test_foreign_pages_change_nothing(api: RunningTaskApi) -> None:
    path = "/api/tasks/0195d2d5-9d3a-7c5e-8a8e-000000000000/cancel"
    async with aiohttp.ClientSession(api.http) as session:
        for headers, status in ORIGINS:
            async with session.post(path, headers=headers) as response:
                assert response.status == status, headers


async def test_with_a_token_browsers_use_a_cookie(database: str, redis_url: str) -> None:
    variables = {"auth__mode": "token", "auth__token": "secret-token"}
    lease = lease_settings(database, redis_url, **variables)
    async with running_lease_service(lease) as address:
        settings = task_settings(database, redis_url, address, **variables)
        async with running_task_api(settings) as api:
            await api.save_channel()
            async with aiohttp.ClientSession(api.http, cookie_jar=aiohttp.DummyCookieJar()) as session:
                async with session.get("/api/tasks") as response:
                    assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
                bearer = {"authorization": "Bearer secret-token"}
                async with session.get("/api/tasks", headers=bearer) as response:
                    assert response.status == 200
                async with session.post("/api/session", headers=bearer) as response:
                    cookie = response.headers["set-cookie"]
                assert "secret-token" not in cookie
                assert {"HttpOnly", "Secure", "SameSite=strict"} <= {
                    part.strip() for part in cookie.split(";")
                }
                async with session.get("/api/tasks", headers={"cookie": cookie.split(";")[0]}) as response:
                    assert response.status == 200


def test_the_heartbeat_is_fifteen_seconds() -> None:
    assert task_settings("postgresql://h/d", "redis://h", "h:1").http.heartbeat == timedelta(seconds=15)


async def test_what_http_itself_refuses_is_a_problem_too(api: RunningTaskApi) -> None:
    """A page's address, a method, a body that is no object, one that is too long, an empty cursor."""
    task_id = await finished(api)
    too_long = json.dumps({"payload": {"text": "x" * 1_048_576}})
    async with aiohttp.ClientSession(api.http) as session:
        async with session.get("/", allow_redirects=False) as response:
            assert (response.status, response.headers["location"]) == (307, "/console/")
        for method, path, body, status, detail in (
            ("DELETE", "/api/channels", None, 405, "/api/channels takes GET, not DELETE"),
            ("GET", "/nowhere", None, 404, "there is nothing at /nowhere"),
            ("POST", "/api/tasks", "[]", 422, "body: must be a JSON object"),
            ("POST", "/api/tasks", "null", 422, "body: must be a JSON object"),
            ("POST", "/api/tasks", too_long, 413, "the body has more than 1048576 bytes"),
        ):
            async with session.request(method, path, data=body) as response:
                problem = await response.json()
                found = (response.status, response.content_type, problem["status"], problem["detail"])
                assert found == (status, "application/problem+json", status, detail)
        async with session.get(f"/api/tasks/{task_id}/text-deltas?after=") as response:
            assert [event["data"] for event in (await response.json())["events"][:-1]] == ["a", "b", "c"]
