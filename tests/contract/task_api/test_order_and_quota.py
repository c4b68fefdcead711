import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from devengines.postgres import PostgresProcess
from servicekit.ids import new_token
from task_api.domain.low_water import BEGINNING
from task_api.domain.model import ClaimRequest, Completion, Failure, Route, Slot, Task, Tenant, Unstored
from task_api.domain.operations import Change, TaskFilter
from task_api.domain.turns import TURN, Pair, Turns
from task_api.store.postgres_operations import PostgresOperations
from task_api.store.postgres_turns import PostgresTurns
from tests.support.task_store import LEASE, Stores, new_task, open_stores

ME = Change("me", "why")
REQUEST = ClaimRequest("w", ("c",), {"k": 1}, 3)


@pytest.fixture(scope="module")
def shared_database(postgres_server: PostgresProcess, migrated_template: str) -> Iterator[str]:
    yield postgres_server.create_database("task_order", template=migrated_template)
    postgres_server.drop_database("task_order")


@pytest.fixture
async def stores(shared_database: str) -> AsyncIterator[Stores]:
    async with open_stores(shared_database) as opened:
        await opened.empty()
        yield opened


@pytest.fixture
def operations(stores: Stores) -> PostgresOperations:
    return PostgresOperations(stores.database)


async def tenants_started(stores: Stores, count: int, batch: int = 10) -> list[str]:
    started: list[str] = []
    while len(started) < count and (claimed := await stores.claim(batch)):
        started += [item.tenant for item in claimed]
    return started


async def test_light_tenants_start_beside_a_noisy_one_in_turns(stores: Stores) -> None:
    await stores.create_all([new_task(tenant="noisy") for _ in range(3000)])
    await tenants_started(stores, 50)
    light = [f"light{number}" for number in range(20)]
    for tenant in light:
        await stores.create_all([new_task(tenant=tenant) for _ in range(3)])
    started = await tenants_started(stores, 90)
    for turn in range(3):
        places = [[at for at, name in enumerate(started) if name == tenant][turn] for tenant in light]
        assert max(places) < 21 * (turn + 1) + 10  # one of everybody's a turn; claims are batches of ten


async def test_weights_and_marks_reach_every_process_and_survive_it(
    stores: Stores, operations: PostgresOperations
) -> None:
    await operations.save_tenant(Tenant(name="heavy", weight=300, quota=None), ME)
    await stores.create_all([new_task(tenant=name) for name in ["heavy", "other"] for _ in range(400)])
    started = await tenants_started(stores, 200)
    assert abs(started.count("heavy") - 150) <= 10
    await stores.turns.sync()
    fresh = Turns(PostgresTurns(stores.database))
    [place] = await fresh.place([(Pair("c", "newcomer"), 0)])
    assert place >= 40 * TURN
    assert (await fresh.place([(Pair("c", "other"), 0)]))[0] == 400 * TURN


async def test_turns_that_are_passed_are_forgotten(stores: Stores) -> None:
    await stores.create_all([new_task(tenant=str(number)) for number in range(5)])
    await stores.create_all([new_task(tenant="long") for _ in range(50)])
    await tenants_started(stores, 20)
    await stores.turns.sync()
    await stores.turns.drop()
    assert await stores.rows("SELECT tenant FROM channel_turn") == [("long",)]


async def test_a_claim_from_a_hint_takes_what_is_there_and_nothing_before(stores: Stores) -> None:
    await stores.create_all([new_task() for _ in range(10)])
    request = [Slot(new_token(), 1)] * 3
    claimed = await stores.claims.claim("c", REQUEST, new_token(), slots=request, lease=LEASE, start=4 * TURN)
    assert [item.run_order // TURN for item in claimed] == [4, 5, 6]
    assert await stores.claims.count_ready("c", REQUEST, 100, 4 * TURN) == 3
    assert await stores.claims.count_ready("c", REQUEST, 100, BEGINNING) == 7


async def test_a_released_or_lost_task_keeps_its_place_and_a_retried_one_gets_a_new_one(
    stores: Stores,
) -> None:
    [first, *_] = await stores.create_all([new_task() for _ in range(5)])
    assert isinstance(first, Task)
    for end in ("release", "lose"):
        [claimed] = await stores.claim()
        assert claimed.key.task_id == first.task_id, end
        if end == "release":
            await stores.claims.release([claimed.key])
        else:
            await stores.expire(first.task_id)
            await stores.claims.sweep(10)
    [claimed] = await stores.claim()
    await stores.claims.fail([Failure(claimed.key, "transient", "x")])
    await stores.execute("UPDATE task_deferred SET due_at = now() - interval '1 s'")
    [(_, place)] = await stores.claims.promote(10, stores.place)
    assert place == 5 * TURN
    # Found by its id, though its place stands nowhere else.
    await stores.execute("UPDATE task_outcome SET due_at = NULL")
    assert await stores.tasks.cancel_waiting(first.task_id, "t", "")
    assert await stores.rows("SELECT count(*) FROM task_ready WHERE moved") == [(0,)]


async def test_a_task_put_first_is_claimed_first(stores: Stores, operations: PostgresOperations) -> None:
    ids = [await stores.create() for _ in range(5)]
    later = await stores.create(delay=timedelta(hours=1))
    assert await operations.dispatch(ids[3], ME) == "c"
    assert await operations.dispatch(later, ME) == "c"
    assert [item.key.task_id for item in await stores.claim(3)] == [later, ids[3], ids[0]]
    assert await operations.dispatch(later, ME) is None
    assert await operations.dispatch(UUID(int=1), ME) is None
    rows = await stores.channels.audit(before=None, limit=5)
    assert [(row.action, row.subject) for row in rows] == [
        ("task.dispatch", str(later)),
        ("task.dispatch", str(ids[3])),
    ]


async def balance(stores: Stores, tenant: str) -> tuple[int, int]:
    [row] = await stores.rows("SELECT reserved, spent FROM quota WHERE tenant = $1", tenant)
    return row[0], row[1]


async def test_a_quota_is_exact_under_racing_creations(
    stores: Stores, operations: PostgresOperations
) -> None:
    await operations.save_tenant(Tenant(name="t", weight=100, quota=100), ME)
    answers = await asyncio.gather(
        *(stores.create_all([new_task(cost=7) for _ in range(3)]) for _ in range(10))
    )
    outcomes = Counter(isinstance(answer, Task) for batch in answers for answer in batch)
    assert outcomes[True] == 14
    assert await balance(stores, "t") == (98, 0)
    assert await stores.rows("SELECT count(*) FROM task") == [(14,)]
    refused = await stores.create_all([new_task(cost=5, idempotency_key="again"), new_task(cost=2)])
    assert refused[0] is Unstored.OVER_QUOTA
    assert await stores.rows("SELECT count(*) FROM task_key") == [(0,)]
    await operations.save_tenant(Tenant(name="t", weight=100, quota=200), ME)
    [stored] = await stores.create_all([new_task(cost=5, idempotency_key="again")])
    assert isinstance(stored, Task)


async def test_every_end_settles_or_refunds_once(stores: Stores, operations: PostgresOperations) -> None:
    async def one(**changes: Any) -> tuple[UUID, Any]:
        task_id = await stores.create(cost=10, **changes)
        [claimed] = await stores.claim()
        return task_id, claimed.key

    _, won = await one()
    await stores.claims.complete([Completion(won, "{}")])
    await stores.claims.complete([Completion(won, "{}")])
    failed, lost_key = await one()
    await stores.claims.fail([Failure(lost_key, "permanent", "x")])
    parked, _ = await one(max_attempts=1)
    await stores.expire(parked)
    await stores.claims.sweep(10)
    stopped, stopped_key = await one()
    await stores.tasks.cancel_running(stopped, "t", "")
    await stores.claims.release([stopped_key])
    waiting = await stores.create(cost=10)
    await stores.tasks.cancel_waiting(waiting, "t", "")
    assert await balance(stores, "t") == (0, 10)
    again, again_key = await one()
    await stores.claims.fail([Failure(again_key, "transient", "x")])
    assert await balance(stores, "t") == (10, 10)  # it waits for its next attempt
    assert await stores.retry(failed, "t") == "c"
    assert await balance(stores, "t") == (20, 10)
    await operations.save_tenant(Tenant(name="t", weight=100, quota=35), ME)
    assert await stores.retry(parked, "t") is Unstored.OVER_QUOTA
    entries = await operations.ledger("t", before=None, limit=100)
    assert Counter((entry.kind, entry.life) for entry in entries) == {
        ("reserve", 1): 6,
        ("reserve", 2): 1,
        ("settle", 1): 1,
        ("refund", 1): 4,
    }
    assert again


async def test_sums_always_equal_outcomes(stores: Stores) -> None:
    """Racing ends of every sort, by many writers, some of them stale: the ledger is what the outcomes say."""
    rng = random.Random(7)
    tenants = ["a", "b", "c"]
    await stores.create_all(
        [new_task(tenant=rng.choice(tenants), cost=rng.randint(0, 9), max_attempts=2) for _ in range(150)]
    )

    async def work() -> None:
        while claimed := await stores.claim(7):
            keys = [item.key for item in claimed]
            await asyncio.gather(
                stores.claims.complete([Completion(key, "{}") for key in keys[:4]]),
                stores.claims.fail([Failure(key, "permanent", "x") for key in keys[2:6]]),
                stores.claims.release(keys[5:]),
            )
            await stores.expire(keys[-1].task_id)
            await stores.claims.sweep(3)

    await asyncio.gather(*(work() for _ in range(5)))
    [differences] = await stores.rows(
        """
        WITH ended AS (
            SELECT t.tenant, t.id, coalesce(t.cost, 0) AS cost, o.outcome, o.terminal
            FROM task t JOIN LATERAL (
                SELECT outcome, terminal FROM task_outcome WHERE task_id = t.id ORDER BY step DESC LIMIT 1) o ON true
        )
        SELECT
            (SELECT count(*) FROM ended e WHERE NOT terminal),
            (SELECT count(*) FROM ended e WHERE cost > 0 AND 1 <> (
                SELECT count(*) FROM ledger_entry l WHERE l.task_id = e.id
                AND l.kind = CASE WHEN outcome = 'succeeded' THEN 'settle' ELSE 'refund' END AND l.amount = e.cost)),
            (SELECT count(*) FROM ended e WHERE 1 <> (
                SELECT count(*) FROM task_outcome o WHERE o.task_id = e.id AND o.terminal)),
            (SELECT count(*) FROM quota q WHERE reserved <> 0 OR spent <> (
                SELECT sum(cost) FROM ended e WHERE e.tenant = q.tenant AND outcome = 'succeeded'))
        """
    )
    assert differences == (0, 0, 0, 0)


async def test_routes_change_from_the_version_that_was_read(
    stores: Stores, operations: PostgresOperations
) -> None:
    assert await operations.save_route(Route("m", "c", 3), ME) is None
    first = await operations.save_route(Route("m", "c"), ME)
    assert first == Route("m", "c", 1)
    second = await operations.save_route(Route("m", "d", 1), ME)
    assert second == Route("m", "d", 2)
    assert await operations.save_route(Route("m", "e", 1), ME) is None
    assert await stores.channels.routes() == [Route("m", "d", 2)]
    assert await operations.delete_route("m", ME)
    assert not await operations.delete_route("m", ME)
    rows = await stores.channels.audit(before=None, limit=9)
    assert [row.action for row in rows] == ["route.delete", "route.save", "route.save"]


async def test_a_filter_finds_the_tenants_tasks_in_pages(
    stores: Stores, operations: PostgresOperations
) -> None:
    created = await stores.create_all([new_task() for _ in range(4)])
    mine = sorted(task.task_id for task in created if isinstance(task, Task))
    await stores.create_all([new_task(tenant="u"), new_task(kind="other"), new_task(channel="d")])
    wanted = TaskFilter(tenant="t", channel="c", kind="k")
    page = await operations.find(wanted, ended=False, after=None, limit=3)
    assert page == mine[:3]
    assert await operations.find(wanted, ended=False, after=page[-1], limit=3) == mine[3:]
    assert await operations.find(wanted, ended=True, after=None, limit=3) == []
    await stores.tasks.cancel_waiting(mine[1], "t", "")
    assert await operations.find(wanted, ended=True, after=None, limit=3) == [mine[1]]
    everything = TaskFilter(tenant="t")
    assert len(await operations.find(everything, ended=False, after=None, limit=9)) == 5
