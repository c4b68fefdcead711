import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

import task_api
from devengines.postgres import PostgresProcess
from servicekit.ids import new_token
from servicekit.postgres import load_sql
from task_api.domain.model import (
    ChannelPolicy,
    Claimed,
    ClaimKey,
    Completion,
    Export,
    Failure,
    ProgressReport,
    Task,
    TaskState,
    TextPiece,
)
from task_api.domain.streams import BEGINNING, TERMINAL_SEQ, Cursor
from task_api.store.postgres_events import PostgresOutbox
from tests.support.task_store import LEASE, Stores, new_task, open_stores, plan

STATEMENTS = sorted((Path(task_api.__file__).parent / "store" / "sql").glob("*.sql"))


@pytest.fixture(scope="module")
def shared_database(postgres_server: PostgresProcess, migrated_template: str) -> Iterator[str]:
    yield postgres_server.create_database("task_statements", template=migrated_template)
    postgres_server.drop_database("task_statements")


@pytest.fixture
async def stores(shared_database: str) -> AsyncIterator[Stores]:
    async with open_stores(shared_database) as opened:
        await opened.empty()
        yield opened


async def only(stores: Stores, **changes: object) -> Claimed:
    [claimed] = await stores.claim(**changes)
    return claimed


async def state(stores: Stores, task_id: UUID) -> TaskState:
    task = await stores.tasks.get(task_id, "t")
    assert task is not None
    return task.state


async def test_every_statement_is_understood(stores: Stores) -> None:
    async with stores.database.pool.acquire() as connection:
        for path in STATEMENTS:
            await connection.prepare(path.read_text())


async def test_a_task_is_claimed_in_order_of_priority_and_time(stores: Stores) -> None:
    first, second = await stores.create(), await stores.create()
    urgent = await stores.create(priority=5)
    assert [item.key.task_id for item in await stores.claim(3)] == [urgent, first, second]


async def test_low_priorities_age_into_their_turn(stores: Stores) -> None:
    old = await stores.create(priority=0)
    await stores.execute("UPDATE task_ready SET run_order = run_order - 5 * 60 * 1000000")
    await stores.create(priority=4)
    assert (await only(stores)).key.task_id == old


async def test_claimers_at_once_never_get_the_same_task(stores: Stores) -> None:
    """pgqueuer#761, solid_queue PR 761: concurrent claimers overshot or shared tasks."""
    expected = {await stores.create() for _ in range(200)}

    async def drain() -> list[UUID]:
        mine: list[UUID] = []
        while batch := await stores.claim(7):
            mine += [item.key.task_id for item in batch]
        return mine

    taken = [task_id for batch in await asyncio.gather(*(drain() for _ in range(8))) for task_id in batch]
    assert len(taken) == len(set(taken)) == 200
    assert set(taken) == expected
    assert await stores.rows("SELECT count(*) FROM task_ready") == [(0,)]


async def test_unknown_kinds_and_newer_payloads_are_left_alone(stores: Stores) -> None:
    """river#1105: a process that did not know a kind discarded it."""
    newer, unknown = await stores.create(payload_version=2), await stores.create(kind="other")
    known = await stores.create()
    assert [item.key.task_id for item in await stores.claim(5)] == [known]
    assert [await state(stores, task_id) for task_id in (newer, unknown)] == [TaskState.READY] * 2
    assert [item.key.task_id for item in await stores.claim(5, capabilities={"other": 1})] == [unknown]
    assert [item.key.task_id for item in await stores.claim(5, capabilities={"k": 2})] == [newer]


async def test_no_attempt_starts_after_the_deadline(stores: Stores) -> None:
    late = await stores.create(deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    waiting = await stores.create(
        deadline_at=datetime.now(UTC) - timedelta(seconds=1), delay=timedelta(hours=1)
    )
    assert await stores.claim(5) == []
    assert set(await stores.claims.expire_deadlines(10)) == {late, waiting}
    for task_id in (late, waiting):
        task = await stores.tasks.get(task_id, "t")
        assert task is not None
        assert (task.state, task.error) == (
            TaskState.FAILED,
            "the deadline passed before an attempt could start",
        )


async def test_a_retry_that_would_miss_the_deadline_ends_the_task(stores: Stores) -> None:
    task_id = await stores.create(deadline_at=datetime.now(UTC) + timedelta(seconds=5))
    claimed = await only(stores)
    [ended] = await stores.claims.fail([Failure(claimed.key, "throttled", "wait", timedelta(minutes=1))])
    assert ended is not None
    assert ended.terminal
    assert await state(stores, task_id) is TaskState.FAILED


def stale(claimed: Claimed) -> list[ClaimKey]:
    return [
        ClaimKey(claimed.key.task_id, new_token(), claimed.key.epoch),
        ClaimKey(claimed.key.task_id, claimed.key.owner, claimed.key.epoch + 1),
        ClaimKey(UUID(int=7), claimed.key.owner, claimed.key.epoch),
    ]


async def assert_changes_nothing(stores: Stores, keys: list[ClaimKey]) -> None:
    before = await stores.snapshot()
    claims, nothing = stores.claims, [None] * len(keys)
    export = Export("e", "o", 1, 1, "0" * 64)
    assert list(await claims.renew(keys, LEASE)) == nothing
    assert list(await claims.append_text([TextPiece(key, 1, "x") for key in keys])) == nothing
    assert list(await claims.report_progress([ProgressReport(key, 5, "") for key in keys])) == nothing
    assert list(await claims.complete([Completion(key, "{}", export) for key in keys])) == nothing
    assert list(await claims.fail([Failure(key, "permanent", "x") for key in keys])) == nothing
    assert list(await claims.release(keys)) == nothing
    await claims.expire(keys)
    assert await stores.snapshot() == before


async def test_a_stale_writer_changes_nothing(stores: Stores) -> None:
    """procrastinate#1518, oban#862, dbos-transact-py#804: an identity used again kept dead work alive."""
    await stores.create()
    await assert_changes_nothing(stores, stale(await only(stores)))


async def test_an_expired_claim_changes_nothing_even_before_it_is_swept(stores: Stores) -> None:
    """celery#5935, good_job#151: work that outlived its lock went on writing."""
    task_id = await stores.create()
    claimed = await only(stores)
    await stores.expire(task_id)
    await assert_changes_nothing(stores, [claimed.key])


async def test_the_claim_of_a_swept_task_changes_nothing_for_its_new_owner(stores: Stores) -> None:
    """hatchet#2432: a missed beat left a task with a worker that never started it."""
    task_id = await stores.create()
    old = await only(stores, worker="same-name")
    await stores.expire(task_id)
    [swept] = await stores.claims.sweep(10)
    assert (swept.key, swept.slot_token, swept.terminal) == (old.key, old.slot.token, False)
    new = await only(stores, worker="same-name")
    assert new.key.epoch == old.key.epoch + 1
    await assert_changes_nothing(stores, [old.key])
    [ended] = await stores.claims.complete([Completion(new.key, "{}")])
    assert ended is not None


async def test_a_claim_renewed_in_time_is_not_swept(stores: Stores) -> None:
    """pgqueuer#430: a heartbeat as long as the time-out let a healthy job be picked twice."""
    await stores.create()
    claimed = await only(stores, lease=timedelta(milliseconds=200))
    [renewed] = await stores.claims.renew([claimed.key], LEASE)
    assert renewed is not None
    assert (renewed.slot_token, renewed.remaining) == (claimed.slot.token, LEASE)
    await asyncio.sleep(0.25)
    assert await stores.claims.sweep(10) == []


async def test_a_task_that_kills_its_workers_is_parked(stores: Stores) -> None:
    """activepieces#15130: a task that ran out of memory was redelivered for ever."""
    task_id = await stores.create(max_attempts=3)
    for attempt in range(1, 4):
        claimed = await only(stores)
        await stores.expire(task_id)
        [swept] = await stores.claims.sweep(10)
        assert swept.terminal == (attempt == 3)
        assert claimed.key.epoch == attempt
    assert await stores.claim() == []
    task = await stores.tasks.get(task_id, "t")
    assert task is not None
    assert (task.state, task.attempt_count) == (TaskState.FAILED, 3)
    attempts = await stores.tasks.attempts(task_id, "t")
    assert [(item.outcome, item.error_class) for item in attempts] == [("lost", "lost")] * 3


async def test_completion_stores_everything_once(stores: Stores) -> None:
    task_id = await stores.create()
    claimed = await only(stores)
    completion = Completion(claimed.key, '{"rows":3}', Export("e1", "exports/e1.csv", 3, 9, "a" * 64))
    racing = await asyncio.gather(*(stores.claims.complete([completion]) for _ in range(5)))
    assert sum(ended is not None for (ended,) in racing) >= 1
    assert await stores.rows("SELECT outcome, terminal, result::text FROM task_outcome") == [
        ("succeeded", True, '{"rows":3}')
    ]
    [end] = await stores.events.read(task_id, BEGINNING, 10)
    assert (end.kind, end.cursor.seq, end.data) == ("end", TERMINAL_SEQ, '{"state":"succeeded"}')
    assert await stores.rows("SELECT event, task_ids FROM task_outbox_batch") == [("succeeded", [task_id])]
    assert await stores.rows("SELECT export_id, task_id, row_count FROM task_export") == [("e1", task_id, 3)]
    assert list(await stores.claims.own_ends([claimed.key, *stale(claimed)])) == [
        "succeeded",
        None,
        None,
        None,
    ]


async def test_the_first_completion_of_an_export_wins(stores: Stores) -> None:
    for object_key in ("first", "second"):
        await stores.create()
        await stores.claims.complete(
            [Completion((await only(stores)).key, "{}", Export("e", object_key, 1, 1, "a" * 64))]
        )
    assert await stores.rows("SELECT object_key FROM task_export") == [("first",)]


async def test_failed_attempts_return_spread_out(stores: Stores) -> None:
    """payload#16318: without jitter all failed jobs returned in one wave."""
    await stores.execute("INSERT INTO channel VALUES ('c', 100, 1000, 9, 60000, 60000)")
    for _ in range(40):
        await stores.create()
    failures = [Failure(item.key, "transient", "x") for item in await stores.claim(40)]
    await stores.claims.fail(failures)
    due = [row[0] for row in await stores.rows("SELECT due_at FROM task_deferred ORDER BY due_at")]
    assert len(due) == 40
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(due)]
    assert max(due) - min(due) > timedelta(seconds=20)
    assert max(gaps) < 30


async def test_throttled_attempts_wait_as_long_as_asked(stores: Stores) -> None:
    task_id = await stores.create()
    claimed = await only(stores)
    await stores.claims.fail([Failure(claimed.key, "throttled", "later", timedelta(hours=1))])
    task = await stores.tasks.get(task_id, "t")
    assert task is not None
    assert task.state is TaskState.DEFERRED
    assert task.due_at is not None
    assert task.due_at > datetime.now(UTC) + timedelta(minutes=59)
    assert await stores.claims.promote(10, stores.place) == []


async def test_deferred_tasks_are_promoted_when_due_and_can_be_cancelled_before_and_after(
    stores: Stores,
) -> None:
    soon = await stores.create(delay=timedelta(milliseconds=1))
    later = await stores.create(delay=timedelta(hours=1))
    await asyncio.sleep(0.01)
    assert [channel for channel, _ in await stores.claims.promote(10, stores.place)] == ["c"]
    assert [await state(stores, item) for item in (soon, later)] == [TaskState.READY, TaskState.DEFERRED]
    assert await stores.tasks.cancel_waiting(soon, "t", "")
    assert await stores.tasks.cancel_waiting(later, "t", "")
    assert not await stores.tasks.cancel_waiting(later, "t", "")
    assert await stores.rows("SELECT count(*) FROM task_ready, task_deferred") == [(0,)]


async def test_a_cancelled_task_that_fails_gets_no_further_attempt(stores: Stores) -> None:
    task_id = await stores.create()
    claimed = await only(stores)
    assert not await stores.tasks.cancel_waiting(task_id, "t", "")
    assert await stores.tasks.cancel_running(task_id, "t", "why")
    [renewed] = await stores.claims.renew([claimed.key], LEASE)
    assert renewed is not None
    assert renewed.cancel_requested
    await stores.claims.fail([Failure(claimed.key, "transient", "x")])
    assert await state(stores, task_id) is TaskState.CANCELLED


async def test_an_ended_task_runs_again_with_a_fresh_budget_once(stores: Stores) -> None:
    task_id = await stores.create(max_attempts=1)
    await stores.claims.fail([Failure((await only(stores)).key, "transient", "x")])
    assert await state(stores, task_id) is TaskState.FAILED
    answers = await asyncio.gather(*(stores.retry(task_id, "t") for _ in range(5)))
    assert sorted(filter(None, answers)) == ["c"]
    assert await state(stores, task_id) is TaskState.READY
    assert await stores.tasks.cancel_waiting(task_id, "t", "")
    assert await stores.retry(task_id, "t") == "c"
    await stores.claims.complete([Completion((await only(stores)).key, "{}")])
    assert await state(stores, task_id) is TaskState.SUCCEEDED
    assert await stores.retry(task_id, "t") is None
    ends = [event.cursor.epoch for event in await stores.events.read(task_id, BEGINNING, 10)]
    assert ends == [1, 2, 4]


async def test_a_released_attempt_does_not_count(stores: Stores) -> None:
    task_id = await stores.create(max_attempts=1)
    for _ in range(3):
        [ended] = await stores.claims.release([(await only(stores)).key])
        assert ended is not None
        assert not ended.terminal
    assert await state(stores, task_id) is TaskState.READY


async def test_text_is_appended_in_order_once_and_only_under_the_claim(stores: Stores) -> None:
    task_id = await stores.create()
    key = (await only(stores)).key
    pieces = [TextPiece(key, seq, f"{seq};") for seq in (1, 2, 3)]
    assert list(await stores.claims.append_text(pieces)) == [True] * 3
    assert list(await stores.claims.append_text(pieces)) == [True] * 3
    assert list(await stores.claims.append_text([TextPiece(key, 9, "9;")])) == [True]
    assert list(await stores.claims.append_text([TextPiece(key, 5, "late")])) == [False]
    await stores.claims.complete([Completion(key, "{}")])
    assert list(await stores.claims.append_text([TextPiece(key, 10, "after")])) == [None]
    events = await stores.events.read(task_id, BEGINNING, 100)
    assert [(event.kind, event.data) for event in events[:-1]] == [
        ("text", f"{seq};") for seq in (1, 2, 3, 9)
    ]
    assert events[-1].cursor == Cursor(1, TERMINAL_SEQ)
    assert await stores.events.last(task_id, "t") == (Cursor(1, TERMINAL_SEQ), True)
    assert await stores.events.last(task_id, "other") is None


async def test_racing_appends_become_visible_in_order(stores: Stores) -> None:
    task_id = await stores.create()
    key = (await only(stores)).key
    seen: list[Cursor] = []
    cursor, reading = BEGINNING, asyncio.Event()

    async def read() -> None:
        nonlocal cursor
        while not reading.is_set():
            for event in await stores.events.read(task_id, cursor, 100):
                seen.append(event.cursor)
                cursor = event.cursor

    reader = asyncio.create_task(read())
    answers = await asyncio.gather(
        *(stores.claims.append_text([TextPiece(key, seq, "x")]) for seq in range(1, 60))
    )
    reading.set()
    await reader
    stored = [event.cursor for event in await stores.events.read(task_id, BEGINNING, 100)]
    seen += [event for event in stored if event > cursor]
    assert seen == stored
    assert len(stored) == sum(answer is True for (answer,) in answers)


async def test_a_key_answers_the_first_task_under_races(stores: Stores) -> None:
    tasks = [new_task(idempotency_key="same", request_hash=b"h") for _ in range(10)]
    created = await asyncio.gather(*(stores.create_all([task]) for task in tasks))
    [first] = [task for (task,) in created if isinstance(task, Task)]
    found = await stores.tasks.find_keys([("t", "same"), ("other", "same")])
    assert found == {("t", "same"): (first.task_id, b"h")}
    assert await stores.rows("SELECT count(*) FROM task_ready") == [(1,)]


async def test_tasks_are_listed_newest_first_by_channel_and_state(stores: Stores) -> None:
    ids = [await stores.create() for _ in range(3)]
    other = await stores.create(channel="d")
    await stores.create(tenant="u")
    every = {"channel": "", "state": None, "before": None, "limit": 10}
    assert [task.task_id for task in await stores.tasks.list("t", **every)] == [other, *reversed(ids)]
    page = await stores.tasks.list("t", **{**every, "before": other, "limit": 2})
    assert [task.task_id for task in page] == [ids[2], ids[1]]
    running = (await only(stores)).key.task_id
    assert [
        task.task_id for task in await stores.tasks.list("t", **{**every, "state": TaskState.RUNNING})
    ] == [running]
    assert [task.task_id for task in await stores.tasks.list("t", **{**every, "channel": "d"})] == [other]


async def test_channels_and_their_audit(stores: Stores) -> None:
    policy = ChannelPolicy(name="c", concurrency=3, max_backlog=2, max_attempts=4)
    saved = await stores.channels.save(policy, actor="a", reason="new")
    again = await stores.channels.save(policy, actor="a", reason="again")
    paused = await stores.channels.pause("c", paused=True, actor="b", reason="stop")
    assert paused is not None
    assert (saved.version, again.version, paused.version, paused.paused) == (1, 2, 3, True)
    assert await stores.channels.pause("missing", paused=True, actor="b", reason="") is None
    rows = await stores.channels.audit(before=None, limit=10)
    assert [row.action for row in rows] == ["channel.pause", "channel.save", "channel.save"]
    assert json.loads(rows[0].before)["paused"] is False
    assert rows[2].before == ""
    await stores.create()
    await stores.create(delay=timedelta(hours=1))
    await stores.create()
    await only(stores)
    load = (await stores.channels.loads())["c"]
    assert (load.ready, load.deferred, load.running) == (1, 1, 1)
    assert await stores.channels.backlog("c", 10) == 2
    assert "c" in [item.name for item in await stores.channels.read()]


async def test_the_outbox_keeps_what_could_not_be_relayed(stores: Stores) -> None:
    outbox, sent = PostgresOutbox(stores.database), []
    for _ in range(3):
        await stores.create()
        await stores.claims.complete([Completion((await only(stores)).key, "{}")])

    async def refuse(rows: object) -> None:
        raise ConnectionError

    async def take(rows: object) -> None:
        sent.extend(rows)

    with pytest.raises(ConnectionError):
        await outbox.relay(10, refuse)
    assert await outbox.relay(2, take) == 2
    assert await outbox.relay(10, take) == 1
    assert await outbox.relay(10, take) == 0
    assert len({row["task_id"] for row in sent}) == 3


async def test_partitions_are_made_ahead_once(stores: Stores) -> None:
    assert await stores.tasks.create_partitions() in (0, 3, 6)
    assert await stores.tasks.create_partitions() == 0


async def test_hot_statements_read_no_table_from_end_to_end(stores: Stores) -> None:
    """absurd PR 140: a sweep scanned millions of finished rows."""
    ids = [new_task() for _ in range(3000)]
    later = [new_task(delay=timedelta(hours=1)) for _ in range(500)]
    await stores.create_all([*ids, *later])
    for _ in range(15):
        finished = await stores.claim(100)
        await stores.claims.append_text([TextPiece(item.key, 1, "x" * 50) for item in finished])
        await stores.claims.complete([Completion(item.key, "{}") for item in finished])
    claimed = await stores.claim(100)
    await stores.execute("ANALYZE task, task_ready, task_deferred, task_lease, task_outcome, task_event")
    keys = [item.key for item in claimed[:10]]
    columns = [key.task_id for key in keys], [key.owner for key in keys], [key.epoch for key in keys]
    hot = {
        "claim_tasks": ("c", ["k"], [1], "owner", "w", ["s"] * 20, [1] * 20, 1000, 0),
        "count_ready": ("c", ["k"], [1], 20, 0),
        "complete_tasks": (*columns, ["{}"] * 10, *([[None] * 10] * 5)),
        "get_task": (ids[500].task_id, "t"),
        "read_events": (ids[0].task_id, 0, 0, 100),
        "last_event": (ids[0].task_id, "t"),
        "cancel_waiting": (ids[2500].task_id, "t", ""),
    }
    async with stores.database.pool.acquire() as connection:
        for name, arguments in hot.items():
            shown = await plan(connection, load_sql("task_api", name), *arguments)
            scans = [
                line
                for line in shown.splitlines()
                if "Seq Scan on task" in line and "never executed" not in line
            ]
            assert [line for line in scans if "task_lease" not in line] == [], f"{name}:\n{shown}"
            if name == "claim_tasks":
                assert (
                    "Index Scan using task_ready_pkey" in shown
                    or "Index Only Scan using task_ready_pkey" in shown
                )
