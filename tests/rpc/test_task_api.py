import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from sluicegate.operator.v1 import operator_pb2
from sluicegate.task.v1 import task_pb2, task_pb2_grpc
from sluicegate.worker.v1 import worker_pb2
from tests.support.task_api import RunningTaskApi, task_stack
from tests.support.waiting import eventually

UNKNOWN = "0195d2d5-9d3a-7c5e-8a8e-000000000000"


@pytest.fixture
async def api(database: str, redis_url: str) -> AsyncIterator[RunningTaskApi]:
    async with task_stack(database, redis_url) as running:
        yield running


def claim_of(**changes: Any) -> worker_pb2.Claim:
    return worker_pb2.Claim(**{"task_id": UNKNOWN, "owner_token": "0" * 32, "epoch": 1, **changes})


async def refused(call: Any) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await call
    return caught.value


def past() -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(datetime.now(UTC) - timedelta(seconds=1))
    return stamp


BAD_TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "no channel": ({"channel": ""}, "channel"),
    "channel with spaces": ({"channel": "a b"}, "channel"),
    "no kind": ({"kind": ""}, "kind"),
    "no JSON": ({"payload_json": "{"}, "payload_json"),
    "no object": ({"payload_json": "[1]"}, "payload_json"),
    "NaN": ({"payload_json": '{"a":NaN}'}, "payload_json"),
    "infinity": ({"payload_json": '{"a":-Infinity}'}, "payload_json"),
    "out of range": ({"payload_json": '{"a":1e400}'}, "payload_json"),
    "NUL": ({"payload_json": '{"a":"\\u0000"}'}, "payload_json"),
    "raw NUL": ({"payload_json": '{"a":"\x00"}'}, "payload_json"),
    "half a surrogate pair": ({"payload_json": '{"a":"\\ud800"}'}, "payload_json"),
    "NUL in a name": ({"payload_json": '{"\\u0000":1}'}, "payload_json"),
    "too deep": ({"payload_json": '{"a":' + "[" * 10_000 + "]" * 10_000 + "}"}, "payload_json"),
    "too long": ({"payload_json": '{"a":"' + "x" * 262_144 + '"}'}, "payload_json"),
    "huge number": ({"payload_json": '{"a":' + "9" * 5000 + "}"}, "payload_json"),
    "negative delay": ({"delay_ms": -1}, "delay_ms"),
    "past deadline": ({"deadline_at": past()}, "deadline_at"),
    "deadline beyond the calendar": ({"deadline_at": Timestamp(seconds=2**60)}, "deadline_at"),
    "priority": ({"priority": 11}, "priority"),
    "attempts": ({"max_attempts": 101}, "max_attempts"),
    "key with NUL": ({"idempotency_key": "a\x00"}, "idempotency_key"),
}


async def test_bad_tasks_are_refused_and_name_the_field(api: RunningTaskApi) -> None:
    for name, (fields, field) in BAD_TASKS.items():
        error = await refused(api.create(**fields))
        assert (name, error.reason, list(error.metadata)) == (name, Reason.INVALID_FIELD, [field])
    error = await refused(api.create(channel="nowhere"))
    assert error.reason is Reason.NOT_FOUND
    listed = await api.tasks.ListTasks(task_pb2.ListTasksRequest())
    assert list(listed.tasks) == []


async def test_strange_but_good_payloads_come_back_as_they_were(api: RunningTaskApi) -> None:
    payload = (
        '{"a": "\\ud83d\\ude00\\u2028", "n": 1e300, "i": 123456789012345678901234567890, "": {}, "a": 2}'
    )
    task = await api.create(payload_json=payload)
    [claimed] = await api.claim()
    assert (task.payload_json, claimed.payload_json) == (payload, payload)


async def test_a_key_answers_the_earlier_task_and_refuses_another_request(api: RunningTaskApi) -> None:
    first = await api.create({"a": 1}, idempotency_key="k")
    request = task_pb2.CreateTaskRequest(
        channel="work", kind="job", payload_json='{"a": 1}', idempotency_key="k"
    )
    again = await api.tasks.CreateTask(request)
    assert (again.task.task_id, again.created) == (first.task_id, False)
    error = await refused(api.create({"a": 2}, idempotency_key="k"))
    assert (error.reason, error.metadata["task_id"]) == (Reason.KEY_REUSED, first.task_id)
    racing = await asyncio.gather(*(api.create({"b": 1}, idempotency_key="race") for _ in range(20)))
    assert len({task.task_id for task in racing}) == 1


async def test_a_full_channel_refuses_and_stores_nothing(api: RunningTaskApi) -> None:
    await api.save_channel("small", max_backlog=3)
    for _ in range(2):
        await api.create(channel="small")
    await api.create(channel="small", delay_ms=60_000)
    error = await refused(api.create(channel="small"))
    assert (error.reason, error.retry_after) == (Reason.BACKLOG_FULL, timedelta(seconds=1))
    listed = await api.tasks.ListTasks(task_pb2.ListTasksRequest(channel="small"))
    assert len(listed.tasks) == 3
    await api.claim(channels=["small"])
    await api.create(channel="small")


async def test_unknown_ids_are_not_found(api: RunningTaskApi) -> None:
    for task_id in (UNKNOWN, "no-id"):
        for call in (
            api.tasks.GetTask(task_pb2.GetTaskRequest(task_id=task_id)),
            api.tasks.CancelTask(task_pb2.CancelTaskRequest(task_id=task_id)),
            api.tasks.RetryTask(task_pb2.RetryTaskRequest(task_id=task_id)),
            api.tasks.ListAttempts(task_pb2.ListAttemptsRequest(task_id=task_id)),
        ):
            assert (await refused(call)).reason is Reason.NOT_FOUND


async def test_another_tenants_task_is_not_found_and_its_key_is_its_own(api: RunningTaskApi) -> None:
    task = await api.create(idempotency_key="k")
    other = Channel(api.address, tenant="other")
    stub = task_pb2_grpc.TaskServiceStub(other.raw)
    try:
        for call in (
            stub.GetTask(task_pb2.GetTaskRequest(task_id=task.task_id)),
            stub.CancelTask(task_pb2.CancelTaskRequest(task_id=task.task_id)),
        ):
            assert (await refused(call)).reason is Reason.NOT_FOUND
        request = task_pb2.CreateTaskRequest(channel="work", kind="other", idempotency_key="k")
        answer = await stub.CreateTask(request)
        assert (answer.created, answer.task.tenant) == (True, "other")
    finally:
        await other.stop()


async def test_writes_of_unknown_claims_are_lost_one_by_one(api: RunningTaskApi) -> None:
    await api.create()
    [held] = await api.claim()
    keys = [claim_of(), held.claim, claim_of(task_id="no-id")]
    lost, ok = worker_pb2.WRITE_OUTCOME_CLAIM_LOST, worker_pb2.WRITE_OUTCOME_OK
    renewed = await api.workers.RenewClaims(worker_pb2.RenewClaimsRequest(claims=keys))
    assert [result.outcome for result in renewed.results] == [lost, ok, lost]
    assert [result.remaining_ms for result in renewed.results] == [0, 45_000, 0]
    pieces = [worker_pb2.TextPiece(claim=key, seq=1, text="x") for key in keys]
    appended = await api.workers.AppendText(worker_pb2.AppendTextRequest(pieces=pieces))
    assert [result.outcome for result in appended.results] == [lost, ok, lost]
    reports = [worker_pb2.Progress(claim=key, percent=5) for key in keys]
    reported = await api.workers.ReportProgress(worker_pb2.ReportProgressRequest(reports=reports))
    assert [result.outcome for result in reported.results] == [lost, ok, lost]
    completions = [worker_pb2.Completion(claim=key) for key in keys]
    for _ in range(2):  # the same completion again is no error
        done = await api.workers.CompleteTasks(worker_pb2.CompleteTasksRequest(completions=completions))
        assert [result.outcome for result in done.results] == [lost, ok, lost]
    failures = [worker_pb2.Failure(claim=key, error_class="transient") for key in keys]
    failed = await api.workers.FailTasks(worker_pb2.FailTasksRequest(failures=failures))
    assert [result.outcome for result in failed.results] == [lost, lost, lost]
    released = await api.workers.ReleaseClaims(worker_pb2.ReleaseClaimsRequest(claims=keys))
    assert [result.outcome for result in released.results] == [lost, lost, lost]


async def test_a_refused_result_writes_nothing_and_the_others_go_on(api: RunningTaskApi) -> None:
    good, bad = await api.create(), await api.create()
    claims = {item.claim.task_id: item.claim for item in await api.claim(2)}
    completions = [
        worker_pb2.Completion(claim=claims[good.task_id], result_json='{"a":1}'),
        worker_pb2.Completion(claim=claims[bad.task_id], result_json='{"a":NaN}'),
    ]
    answer = await api.workers.CompleteTasks(worker_pb2.CompleteTasksRequest(completions=completions))
    outcomes = [result.outcome for result in answer.results]
    assert outcomes == [worker_pb2.WRITE_OUTCOME_OK, worker_pb2.WRITE_OUTCOME_REFUSED]
    assert "NaN" in answer.results[1].message
    assert [await api.state(task.task_id) for task in (good, bad)] == ["succeeded", "running"]


async def test_a_waiting_claim_is_woken_by_a_new_task(api: RunningTaskApi) -> None:
    waiting = asyncio.create_task(api.claim(wait_ms=20_000))
    await asyncio.sleep(0.2)
    started = time.monotonic()
    task = await api.create()
    [claimed] = await waiting
    assert claimed.claim.task_id == task.task_id
    assert time.monotonic() - started < 10


async def test_a_caller_that_gives_up_leaves_nothing_claimed(api: RunningTaskApi) -> None:
    request = worker_pb2.ClaimTasksRequest(
        worker="gone",
        channels=["work"],
        capabilities=[worker_pb2.Capability(kind="job", max_payload_version=1)],
        max_tasks=10,
        wait_ms=20_000,
    )
    answered = []
    for _ in range(20):
        call = asyncio.ensure_future(_claim(api, request))
        await api.create()
        call.cancel()
        (outcome,) = await asyncio.gather(call, return_exceptions=True)
        answered += [] if isinstance(outcome, BaseException) else [task.claim for task in outcome.tasks]
    if answered:
        await api.workers.ReleaseClaims(worker_pb2.ReleaseClaimsRequest(claims=answered))
    # What was taken for a caller that had given up is handed back; only answers that were on their way then are
    # known to nobody, and the end of their claims frees them.
    await eventually(lambda: _free_again(api, 20))


async def _claim(api: RunningTaskApi, request: worker_pb2.ClaimTasksRequest) -> Any:
    return await api.workers.ClaimTasks(request)


async def _free_again(api: RunningTaskApi, count: int) -> bool:
    await api.database.execute(
        "UPDATE task_lease SET lease_until = now() WHERE claimed_at < now() - interval '1 s'"
    )
    return bool(await api.database.fetchval("SELECT count(*) = $1 FROM task_ready", count))


async def test_a_channels_limit_is_exact_under_racing_claimers(api: RunningTaskApi) -> None:
    await api.save_channel("narrow", concurrency=3)
    for _ in range(12):
        await api.create(channel="narrow")
    taken = await asyncio.gather(*(api.claim(5, channels=["narrow"], wait_ms=300) for _ in range(6)))
    claims = [item for batch in taken for item in batch]
    assert len(claims) == 3
    fences = [item.slot_fence for item in claims]
    assert len(set(fences)) == 3
    done = worker_pb2.CompleteTasksRequest(completions=[worker_pb2.Completion(claim=claims[0].claim)])
    waiting = asyncio.create_task(api.claim(5, channels=["narrow"], wait_ms=10_000))
    await api.workers.CompleteTasks(done)
    assert len(await waiting) == 1


async def test_a_paused_channel_starts_nothing_and_resumes_at_once(api: RunningTaskApi) -> None:
    await api.create()
    pause = operator_pb2.PauseChannelRequest(name="work", actor="me", reason="why")
    assert (await api.operators.PauseChannel(pause)).channel.paused
    assert await api.claim(wait_ms=200) == []
    waiting = asyncio.create_task(api.claim(wait_ms=10_000))
    await api.operators.ResumeChannel(operator_pb2.ResumeChannelRequest(name="work", actor="me"))
    assert len(await waiting) == 1
    rows = (await api.operators.ListAudit(operator_pb2.ListAuditRequest(page_size=2))).rows
    assert [(row.action, row.subject, row.actor) for row in rows] == [
        ("channel.resume", "work", "me"),
        ("channel.pause", "work", "me"),
    ]
    missing = operator_pb2.PauseChannelRequest(name="nowhere", actor="me")
    assert (await refused(api.operators.PauseChannel(missing))).reason is Reason.NOT_FOUND
    channels = (await api.operators.ListChannels(operator_pb2.ListChannelsRequest())).channels
    assert {channel.name: channel.running_count for channel in channels}["work"] == 1


async def test_a_lost_slot_takes_the_claim_with_it(api: RunningTaskApi) -> None:
    """Either lost, both lost: an oversold slot would be worse than a repeated attempt."""
    task = await api.create()
    [held] = await api.claim()
    await api.database.execute("UPDATE task_lease SET slot_token = $1", "f" * 32)
    [renewed] = (await api.workers.RenewClaims(worker_pb2.RenewClaimsRequest(claims=[held.claim]))).results
    assert renewed.outcome == worker_pb2.WRITE_OUTCOME_CLAIM_LOST
    [again] = await api.claim()
    assert (again.claim.task_id, again.claim.epoch) == (task.task_id, 2)


async def test_tasks_are_paged(api: RunningTaskApi) -> None:
    ids = [(await api.create()).task_id for _ in range(5)]
    seen, token = [], ""
    while True:
        page = await api.tasks.ListTasks(task_pb2.ListTasksRequest(page_size=2, page_token=token))
        seen += [task.task_id for task in page.tasks]
        token = page.next_page_token
        if not token:
            break
    assert seen == list(reversed(ids))
    error = await refused(api.tasks.ListTasks(task_pb2.ListTasksRequest(page_token="junk")))
    assert error.reason is Reason.INVALID_FIELD


async def test_only_failed_and_cancelled_tasks_run_again(api: RunningTaskApi) -> None:
    task = await api.create()
    request = task_pb2.RetryTaskRequest(task_id=task.task_id)
    error = await refused(api.tasks.RetryTask(request))
    assert (error.reason, error.metadata["state"]) == (Reason.WRONG_STATE, "ready")
    await api.tasks.CancelTask(task_pb2.CancelTaskRequest(task_id=task.task_id))
    assert (await api.tasks.RetryTask(request)).task.state == task_pb2.TASK_STATE_READY


async def test_a_short_deadline_is_kept(api: RunningTaskApi) -> None:
    request = worker_pb2.ClaimTasksRequest(
        worker="w",
        channels=["work"],
        capabilities=[worker_pb2.Capability(kind="job", max_payload_version=1)],
        max_tasks=1,
        wait_ms=20_000,
    )
    error = await refused(api.workers.ClaimTasks(request, timeout=0.5))
    assert error.reason is Reason.TIME_IS_UP


async def test_many_tasks_are_stored_at_once_and_each_stands_for_itself(api: RunningTaskApi) -> None:
    await api.save_channel("narrow", max_backlog=2)

    def one(**fields: Any) -> task_pb2.CreateTaskRequest:
        return task_pb2.CreateTaskRequest(**{"channel": "work", "kind": "job", **fields})

    asked = [
        one(),
        one(payload_json="{"),
        one(channel="nowhere"),
        one(idempotency_key="k"),
        one(idempotency_key="k"),
        one(idempotency_key="k", priority=3),
        *[one(channel="narrow") for _ in range(3)],
        one(model="none"),
        one(channel=""),
    ]
    results = (await api.tasks.CreateTasks(task_pb2.CreateTasksRequest(tasks=asked))).results
    assert [
        result.refusal.reason if result.HasField("refusal") else result.created for result in results
    ] == [
        True,
        "INVALID_FIELD",
        "NOT_FOUND",
        True,
        False,
        "KEY_REUSED",
        True,
        True,
        "BACKLOG_FULL",
        "INVALID_FIELD",
        "INVALID_FIELD",
    ]
    assert results[4].task.task_id == results[3].task.task_id
    assert "payload_json" in results[1].refusal.metadata
    assert results[8].refusal.retry_after_ms > 0
    assert await api.database.fetchval("SELECT count(*) FROM task") == 4


async def test_a_full_quota_refuses_and_operators_see_and_change_it(api: RunningTaskApi) -> None:
    tenant = operator_pb2.Tenant(name="default", weight=200, quota=10)
    saved = await api.operators.SaveTenant(operator_pb2.SaveTenantRequest(tenant=tenant, actor="me"))
    assert (saved.tenant.weight, saved.tenant.quota, saved.tenant.version) == (200, 10, 1)
    task = await api.create(cost=8)
    error = await refused(api.create(cost=8))
    assert (error.reason, error.metadata["tenant"]) == (Reason.QUOTA_EXHAUSTED, "default")
    assert error.retry_after
    [held] = await api.claim()
    await api.workers.CompleteTasks(
        worker_pb2.CompleteTasksRequest(completions=[worker_pb2.Completion(claim=held.claim)])
    )
    [seen] = (await api.operators.ListTenants(operator_pb2.ListTenantsRequest())).tenants
    assert (seen.reserved, seen.spent) == (0, 8)
    entries = (await api.operators.ListLedger(operator_pb2.ListLedgerRequest(tenant="default"))).entries
    assert [(entry.kind, entry.amount, entry.task_id) for entry in entries] == [
        ("settle", 8, task.task_id),
        ("reserve", 8, task.task_id),
    ]
    await api.operators.SaveTenant(
        operator_pb2.SaveTenantRequest(tenant=operator_pb2.Tenant(name="default"), actor="me")
    )
    assert (await api.create(cost=80)).cost == 80
    [last, *_] = (await api.operators.ListAudit(operator_pb2.ListAuditRequest(page_size=1))).rows
    assert (last.action, last.subject) == ("tenant.save", "default")
    assert '"quota" : 10' in last.before_json


async def test_a_model_runs_where_its_route_leads(api: RunningTaskApi) -> None:
    route = operator_pb2.Route(model="writer-2", channel="work")
    saved = (await api.operators.SaveRoute(operator_pb2.SaveRouteRequest(route=route, actor="me"))).route
    assert (await api.create(channel="", model="writer-2")).channel == "work"
    await api.save_channel("other")
    moved = operator_pb2.Route(model="writer-2", channel="other", version=saved.version)
    await api.operators.SaveRoute(operator_pb2.SaveRouteRequest(route=moved, actor="me"))
    assert (await api.create(channel="", model="writer-2")).channel == "other"
    stale = operator_pb2.SaveRouteRequest(route=moved, actor="me")
    assert (await refused(api.operators.SaveRoute(stale))).reason is Reason.STALE_VERSION
    nowhere = operator_pb2.Route(model="writer-2", channel="nowhere")
    wrong = operator_pb2.SaveRouteRequest(route=nowhere, actor="me")
    assert (await refused(api.operators.SaveRoute(wrong))).reason is Reason.NOT_FOUND
    assert (await refused(api.create(model="writer-2"))).reason is Reason.INVALID_FIELD
    await api.operators.DeleteRoute(operator_pb2.DeleteRouteRequest(model="writer-2", actor="me"))
    assert (await refused(api.create(channel="", model="writer-2"))).reason is Reason.NOT_FOUND
    assert (await api.operators.ListRoutes(operator_pb2.ListRoutesRequest())).routes == []


async def test_operators_change_many_tasks_and_put_one_first(api: RunningTaskApi) -> None:
    tasks = [await api.create() for _ in range(5)]
    await api.create(kind="other")
    wanted = operator_pb2.TaskFilter(tenant="default", kind="job")
    put_first = operator_pb2.DispatchTaskRequest(task_id=tasks[3].task_id, actor="me", reason="now")
    await api.operators.DispatchTask(put_first)
    [held] = await api.claim()
    assert held.claim.task_id == tasks[3].task_id
    assert (await refused(api.operators.DispatchTask(put_first))).reason is Reason.WRONG_STATE
    unknown = operator_pb2.DispatchTaskRequest(task_id=UNKNOWN, actor="me")
    assert (await refused(api.operators.DispatchTask(unknown))).reason is Reason.NOT_FOUND
    cancel = operator_pb2.CancelTasksRequest(filter=wanted, actor="me", reason="wrong batch", limit=3)
    first = await api.operators.CancelTasks(cancel)
    assert (first.changed_count, first.more) == (3, True)
    rest = await api.operators.CancelTasks(operator_pb2.CancelTasksRequest(filter=wanted, actor="me"))
    assert (rest.changed_count, rest.more) == (2, False)
    assert [await api.state(task.task_id) for task in tasks].count("cancelled") == 4
    again = await api.operators.RetryTasks(operator_pb2.RetryTasksRequest(filter=wanted, actor="me"))
    assert again.changed_count == 4
    rows = (await api.operators.ListAudit(operator_pb2.ListAuditRequest(page_size=3))).rows
    assert [row.action for row in rows] == ["tasks.retry", "tasks.cancel", "tasks.cancel"]
    assert '"changed_count":4' in rows[0].after_json.replace(" ", "")


async def test_a_channel_refuses_while_its_oldest_task_has_waited_too_long(api: RunningTaskApi) -> None:
    await api.save_channel("fresh", max_age_ms=60_000)
    await api.create(channel="fresh")
    await api.create(channel="fresh")
    await api.database.execute("UPDATE task_ready SET ready_at = now() - interval '2 minutes'")
    error = await eventually(lambda: _refusal(api))
    assert (error.reason, error.metadata) == (
        Reason.BACKLOG_FULL,
        {"channel": "fresh", "max_age_ms": "60000"},
    )
    assert await api.claim(2, channels=["fresh"])
    assert await eventually(lambda: _taken(api))


async def _refusal(api: RunningTaskApi) -> ServiceError | None:
    try:
        await api.create(channel="fresh")
    except ServiceError as error:
        return error
    return None


async def _taken(api: RunningTaskApi) -> bool:
    await api.database.execute("UPDATE task_ready SET ready_at = now()")
    return await _refusal(api) is None


async def test_progress_with_a_place_is_an_event_among_the_text(api: RunningTaskApi) -> None:
    task = await api.create()
    [held] = await api.claim()
    piece = worker_pb2.TextPiece(claim=held.claim, seq=1, text="one")
    await api.workers.AppendText(worker_pb2.AppendTextRequest(pieces=[piece]))
    report = worker_pb2.Progress(claim=held.claim, percent=40, message="half", seq=2)
    for _ in range(2):
        await api.workers.ReportProgress(worker_pb2.ReportProgressRequest(reports=[report]))
    silent = worker_pb2.Progress(claim=held.claim, percent=60)
    await api.workers.ReportProgress(worker_pb2.ReportProgressRequest(reports=[silent]))
    await api.workers.CompleteTasks(
        worker_pb2.CompleteTasksRequest(completions=[worker_pb2.Completion(claim=held.claim)])
    )
    watched = api.tasks.WatchTask(task_pb2.WatchTaskRequest(task_id=task.task_id))
    events = [(event.kind, event.cursor) async for event in watched]
    assert events == [("text", "1.1"), ("progress", "1.2"), ("end", "1.9007199254740991")]
