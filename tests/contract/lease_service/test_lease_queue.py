"""Waiting: who is next, who is refused at once, who is passed over, and what idle waiters cost."""

from collections import Counter
from collections.abc import Sequence

import pytest

from lease_service.domain.model import Attempt, Outcome, PoolPolicies, Renewal, RenewItem
from lease_service.store.keys import pool_keys
from lease_service.store.redis import RedisSlots
from servicekit.redis import Redis
from tests.support.lease import (
    POOL,
    Listener,
    RedisClock,
    claim_of,
    open_pool,
    policies_of,
    tokens,
    waiting,
    weights,
    with_rules,
)

pytestmark = pytest.mark.usefixtures("listener")


class Queue:
    """A pool of one scope, and what was asked of it."""

    def __init__(self, leases: RedisSlots, policies: PoolPolicies) -> None:
        self.leases = leases
        self.policies = policies
        self.tenant_of: dict[str, str] = {}

    async def set(self, capacity: int) -> None:
        """Change the capacity and let it reach Redis."""
        version = self.policies.scopes["poll"].version + 1
        rules = {"shares": self.policies.scopes["poll"].shares}
        self.policies = with_rules(policies_of(poll=capacity, version=version), **rules)
        await self.leases.push_policies(POOL, list(self.policies.scopes.values()), pool_is_new=False)

    async def take(self, count: int, *, weight: int = 1) -> list[str]:
        """Acquire without waiting."""
        made = tokens(count)
        result = await self.leases.acquire(claim_of(weight=weight, ttl_ms=60_000), made, self.policies)
        assert all(attempt.outcome is Outcome.GRANTED for attempt in result.attempts)
        return made

    async def wait(
        self,
        tenant: str = "default",
        count: int = 1,
        *,
        priority: int = 0,
        weight: int = 1,
        wait_ms: int = 600_000,
    ) -> list[str]:
        """Let that many wait, or be granted."""
        made = tokens(count)
        terms = waiting(tenant, priority=priority, wait_ms=wait_ms)
        for start in range(0, count, 500):
            chunk = made[start : start + 500]
            await self.leases.acquire(claim_of(weight=weight, ttl_ms=60_000), chunk, self.policies, terms)
        self.tenant_of |= dict.fromkeys(made, tenant)
        return made

    async def settle(self) -> None:
        """Dispatch until there is nothing more to do."""
        while (await self.leases.dispatch(POOL)).more:
            pass

    async def confirm(self, token: str, *, weight: int = 1) -> Attempt:
        """Do what a replica does that was woken."""
        claim = claim_of(weight=weight, ttl_ms=60_000)
        return (await self.leases.acquire(claim, [token], self.policies, waiting())).attempts[0]

    async def granted(self) -> list[str]:
        """Return who holds a lease, in the order of the grants."""
        holders = []
        after = (0, "")
        while page := await self.leases.holders(POOL, after, 1_000):
            holders += page
            after = (page[-1].expires_ms, page[-1].token)
        return [holder.token for holder in sorted(holders, key=lambda holder: holder.fence)]


@pytest.fixture
async def queue(leases: RedisSlots) -> Queue:
    policies = policies_of(poll=0)
    await open_pool(leases, policies)
    return Queue(leases, policies)


async def served(queue: Queue, count: int) -> list[str]:
    """Give one slot to one waiter after the other; returns whom."""
    order: list[str] = []
    await queue.set(1)
    while len(order) < count:
        [token] = await queue.granted()
        order.append(token)
        await queue.leases.release(POOL, [token])
    return order


async def test_one_backlog_of_5000_and_49_tenants_with_8_share_200_slots_4_each(queue: Queue) -> None:
    await queue.wait("hoarder", 5_000)
    for number in range(49):
        await queue.wait(f"tenant{number}", 8)
    await queue.set(200)
    await queue.settle()
    shares = Counter(queue.tenant_of[token] for token in await queue.granted())
    assert len(shares) == 50
    assert set(shares.values()) == {4}


async def test_weights_of_tenants_are_respected_within_5_percent(queue: Queue) -> None:
    queue.policies = with_rules(queue.policies, shares={"gold": 5, "silver": 2})
    for tenant in ("bronze", "silver", "gold"):
        await queue.wait(tenant, 400)
    shares = Counter(queue.tenant_of[token] for token in await served(queue, 400))
    for tenant, part in (("gold", 250), ("silver", 100), ("bronze", 50)):
        assert shares[tenant] == pytest.approx(part, rel=0.05)


async def test_weight_of_requests_counts_as_use(queue: Queue) -> None:
    await queue.set(100)
    [held] = await queue.take(1, weight=100)
    heavy = await queue.wait("heavy", 50, weight=4)
    light = await queue.wait("light", 200)
    await queue.leases.release(POOL, [held])
    await queue.settle()
    holders = await queue.granted()
    assert sum(token in heavy for token in holders) * 4 == pytest.approx(50, abs=4)
    assert sum(token in light for token in holders) == pytest.approx(50, abs=4)


async def test_first_come_first_served_inside_a_tenant(queue: Queue) -> None:
    made = await queue.wait(count=20)
    assert await served(queue, 20) == made


async def test_a_tenant_that_waits_and_gives_up_again_and_again_loses_no_share(queue: Queue) -> None:
    await queue.wait("patient", 100)
    for _ in range(20):
        await queue.leases.release(POOL, await queue.wait("hasty", 10))
    await queue.wait("hasty", 100)
    shares = Counter(queue.tenant_of[token] for token in await served(queue, 40))
    assert shares == {"patient": 20, "hasty": 20}


async def test_a_tenant_with_one_request_at_a_time_is_served_in_turn_with_a_backlog(queue: Queue) -> None:
    await queue.wait("backlog", 100)
    await queue.wait("single")
    await queue.set(1)
    order = []
    for _ in range(20):
        [token] = await queue.granted()
        order.append(queue.tenant_of[token])
        if order[-1] == "single":
            await queue.wait("single")
        await queue.leases.release(POOL, [token])
    assert Counter(order) == {"backlog": 10, "single": 10}


async def test_higher_classes_go_first_and_lower_ones_get_every_eighth_grant(queue: Queue) -> None:
    low = await queue.wait(count=30, priority=-5)
    high = await queue.wait(count=70, priority=5)
    middle = await queue.wait(count=30)
    order = await served(queue, 80)
    assert [place for place, token in enumerate(order, 1) if token in low] == list(range(8, 81, 8))
    assert [token for token in order if token in high] == high
    assert order[-1] in low
    assert not set(order[:70]) & set(middle)


async def test_backlog_caps_answer_at_once(queue: Queue, clock: RedisClock) -> None:
    queue.policies = with_rules(queue.policies, max_waiting=5, max_waiting_per_tenant=3)

    async def outcome(tenant: str, wait_ms: int = 600_000) -> Outcome:
        terms = waiting(tenant, wait_ms=wait_ms)
        result = await queue.leases.acquire(claim_of(), tokens(1), queue.policies, terms)
        return result.attempts[0].outcome

    assert [await outcome("a") for _ in range(4)] == [*[Outcome.WAITING] * 3, Outcome.BACKLOG_FULL]
    assert [await outcome("b", 1_000) for _ in range(3)] == [*[Outcome.WAITING] * 2, Outcome.BACKLOG_FULL]
    await clock.advance(1_000)
    await queue.settle()
    assert await outcome("b") is Outcome.WAITING


async def test_a_free_slot_is_granted_at_once_but_not_past_an_eligible_waiter(queue: Queue) -> None:
    await queue.set(1)
    [first] = await queue.wait()
    assert await queue.granted() == [first]
    [second] = await queue.wait()
    await queue.leases.release(POOL, [first])
    result = await queue.leases.acquire(claim_of(), tokens(1), queue.policies)
    assert result.attempts[0].outcome is Outcome.FULL
    assert await queue.granted() == [second]


async def test_one_release_wakes_one_of_10000_and_idle_waiters_cost_nothing(
    queue: Queue, server: Redis, listener: Listener
) -> None:
    await queue.set(1)
    [held] = await queue.take(1)
    made = await queue.wait(count=10_000)

    async def commands() -> dict[str, int]:
        stats = await server.client.info("commandstats")
        return {name: entry["calls"] for name, entry in stats.items() if name != "cmdstat_info"}

    before = await commands()
    assert await listener.heard() == []
    assert await commands() == before
    await queue.leases.release(POOL, [held])
    after = await commands()
    assert after["cmdstat_publish"] - before.get("cmdstat_publish", 0) == 1
    assert await listener.heard() == [made[0]]


@pytest.mark.parametrize(
    "event", ["release", "expiry", "shrunk weight", "growth", "resume", "force", "cancel of a wide one"]
)
async def test_work_conserving_no_free_slot_while_an_eligible_waiter_sits(
    queue: Queue, clock: RedisClock, event: str
) -> None:
    # oban 1019, inngest 4345
    await queue.set(4)
    [held] = await queue.take(1, weight=3)
    [other] = await queue.take(1)
    made: list[str] = []
    match event:
        case "release":
            made = await queue.wait(count=3)
            await queue.leases.release(POOL, [held])
        case "expiry":
            made = await queue.wait(count=3)
            await queue.leases.renew(POOL, [RenewItem(other, 3_600_000)])
            await clock.advance(60_000)
            await queue.leases.reap(POOL)
        case "shrunk weight":
            made = await queue.wait(count=2)
            await queue.leases.renew(POOL, [RenewItem(held, 0, 1)])
        case "growth":
            made = await queue.wait(count=2)
            await queue.set(6)
        case "resume":
            await queue.leases.release(POOL, [held])
            paused = policies_of(poll=4, version=90, paused=True)
            await queue.leases.push_policies(POOL, list(paused.scopes.values()), pool_is_new=False)
            made = await queue.wait(count=3)
            assert await queue.granted() == [other]
            resumed = policies_of(poll=4, version=91)
            await queue.leases.push_policies(POOL, list(resumed.scopes.values()), pool_is_new=False)
        case "force":
            made = await queue.wait(count=3)
            await queue.leases.force_release(POOL, held, "by me: test")
        case _:
            [wide] = await queue.wait(weight=4)
            await queue.leases.release(POOL, [held])
            await clock.advance(5_000)
            made = await queue.wait(count=3)
            assert await queue.granted() == [other]
            await queue.leases.release(POOL, [wide])
    assert set(made) <= set(await queue.granted())


async def test_waiters_of_a_full_scope_do_not_hold_up_those_of_another(leases: RedisSlots) -> None:
    policies = policies_of(poll=1, stop_resume=1)
    await open_pool(leases, policies)
    await leases.acquire(claim_of("poll"), tokens(1), policies)
    blocked = [tokens(300) for _ in range(3)]
    for made in blocked:
        await leases.acquire(claim_of("poll", "stop_resume"), made, policies, waiting())
    [held, last] = tokens(2)
    await leases.acquire(claim_of("stop_resume"), [held], policies)
    await leases.acquire(claim_of("stop_resume"), [last], policies, waiting("late"))
    await leases.release(POOL, [held])
    assert last in {holder.token for holder in await leases.holders(POOL, (0, ""), 10)}


async def test_a_wide_request_is_passed_for_5_seconds_and_then_reserves(
    queue: Queue, clock: RedisClock
) -> None:
    await queue.set(4)
    held = await queue.take(4)
    [wide] = await queue.wait("wide", weight=4)
    narrow = await queue.wait("narrow", 100)
    await queue.leases.release(POOL, held[:1])
    passed = 1
    while len(await queue.granted()) == 4:
        passing = next(token for token in await queue.granted() if token in narrow)
        await queue.confirm(passing)
        await clock.advance(500)
        await queue.leases.release(POOL, [passing])
        passed += 1
    assert passed == pytest.approx(11, abs=1)
    assert wide not in await queue.granted()
    for token in held[1:]:
        await queue.leases.release(POOL, [token])
    assert await queue.granted() == [wide]


async def test_a_reservation_is_for_the_limiting_scope_alone(leases: RedisSlots, clock: RedisClock) -> None:
    policies = policies_of(a=4, b=10)
    await open_pool(leases, policies)
    held, [wide] = tokens(4), tokens(1)
    await leases.acquire(claim_of("a", ttl_ms=60_000), held, policies)
    await leases.acquire(claim_of("a", "b", weight=4), [wide], policies, waiting())
    await leases.release(POOL, held[:1])
    await clock.advance(5_000)
    in_a = await leases.acquire(claim_of("a"), tokens(1), policies)
    assert (in_a.attempts[0].outcome, in_a.limiting_scope) == (Outcome.FULL, "a")
    in_b = await leases.acquire(claim_of("b"), tokens(8), policies)
    assert all(attempt.held for attempt in in_b.attempts)


async def test_wide_requests_of_a_low_class_are_not_starved(queue: Queue, clock: RedisClock) -> None:
    await queue.set(3)
    held = await queue.take(3)
    [wide] = await queue.wait("wide", weight=3, priority=-10)
    for _ in range(60):
        await queue.wait("narrow", 2, priority=10)
        await queue.leases.release(POOL, held[:1])
        held = [token for token in await queue.granted() if token != wide]
        for token in held:
            await queue.confirm(token)
        await clock.advance(500)
        if wide in await queue.granted():
            break
    assert wide in await queue.granted()


async def test_dead_waiters_do_not_block_the_queue(
    queue: Queue, server: Redis, leases: RedisSlots, clock: RedisClock
) -> None:
    # redisson 3004, 3730: nobody listens for the first thousand, and the deadline of the next ones is over.
    await queue.set(1)
    [held] = await queue.take(1)
    dead = RedisSlots(server)
    await dead.acquire(claim_of(), tokens(200), queue.policies, waiting())
    await queue.wait(count=40, wait_ms=500)
    [live] = await queue.wait()
    await clock.advance(500)
    await leases.release(POOL, [held])
    await queue.settle()
    assert await queue.granted() == [live]


async def test_a_grant_that_is_not_confirmed_in_3_seconds_goes_to_the_next(
    queue: Queue, server: Redis, clock: RedisClock
) -> None:
    # A replica that hangs: it is connected, and answers nothing.
    hung = RedisSlots(server)
    async with Listener(server, hung):
        await queue.set(1)
        [held] = await queue.take(1)
        lost = tokens(50)
        await hung.acquire(claim_of(), lost, queue.policies, waiting())
        [live] = await queue.wait()
        await queue.leases.release(POOL, [held])
        assert await queue.granted() == [lost[0]]
        await clock.advance(2_999)
        await queue.leases.reap(POOL)
        assert await queue.granted() == [lost[0]]
        await clock.advance(1)
        await queue.leases.reap(POOL)
        assert await queue.granted() == [live]
        # It comes back: it may wait again, at its old place, and counts as alive.
        attempt = (await hung.acquire(claim_of(), lost[:1], queue.policies, waiting(place=1))).attempts[0]
        assert (attempt.outcome, attempt.fence) == (Outcome.WAITING, 1)
        [later] = await queue.wait()
        await queue.confirm(live)
        await queue.leases.release(POOL, [live])
        assert await queue.granted() == [lost[0]]
        await hung.release(POOL, lost[:1])
        assert await queue.granted() == [later]


async def test_confirming_gives_the_whole_ttl_and_is_idempotent(queue: Queue, clock: RedisClock) -> None:
    await queue.set(1)
    [held] = await queue.take(1)
    [token] = await queue.wait()
    await queue.leases.release(POOL, [held])
    assert [holder.remaining_ms for holder in await queue.leases.holders(POOL, (0, ""), 1)] == [3_000]
    await clock.advance(1_000)
    first = await queue.confirm(token)
    assert (first.outcome, first.remaining_ms) == (Outcome.GRANTED, 60_000)
    await clock.advance(1_000)
    again = await queue.confirm(token)
    assert (again.outcome, again.fence, again.remaining_ms) == (Outcome.HELD, first.fence, 59_000)


async def test_a_late_grant_after_a_cancel_is_impossible(queue: Queue, server: Redis) -> None:
    # redisson 4109: the waiter leaves; a grant that came first is given back, one that would come later finds nobody.
    await queue.set(1)
    [held] = await queue.take(1)
    [left, raced] = await queue.wait(count=2)
    await queue.leases.release(POOL, [left])
    await queue.leases.release(POOL, [held])
    assert await queue.granted() == [raced]
    await queue.leases.release(POOL, [raced])
    assert await weights(server) == {}
    for token in (left, raced):
        assert (await queue.confirm(token)).outcome is Outcome.SPENT


async def test_a_lost_wake_up_is_made_good_by_asking_again(queue: Queue, listener: Listener) -> None:
    # redisson 5762: the message may be lost; whoever asks again for its token finds the grant.
    await queue.set(1)
    [held] = await queue.take(1)
    [token] = await queue.wait()
    assert (await queue.confirm(token)).outcome is Outcome.WAITING
    await queue.leases.release(POOL, [held])
    await listener.heard()
    assert (await queue.confirm(token)).outcome is Outcome.GRANTED


async def test_capacity_is_never_given_by_position(queue: Queue) -> None:
    # hatchet 4778: three or four ran at limit 2.
    await queue.set(2)
    for _ in range(30):
        await queue.wait(count=3)
        holders: Sequence[str] = await queue.granted()
        assert len(holders) == 2
        await queue.leases.release(POOL, holders[:1])


async def test_a_large_growth_is_dispatched_in_bounded_steps(queue: Queue) -> None:
    made = await queue.wait(count=300)
    await queue.set(300)
    assert len(await queue.granted()) == 64
    result = await queue.leases.dispatch(POOL)
    assert (result.more, result.held) == (True, 128)
    await queue.settle()
    assert await queue.granted() == made


async def test_dispatch_says_when_to_look_again(queue: Queue, clock: RedisClock) -> None:
    result = await queue.leases.dispatch(POOL)
    assert (result.next_ms, result.waiting) == (0, 0)
    await queue.set(1)
    await queue.take(1)
    await queue.wait(wait_ms=70_000)
    await clock.advance(1_000)
    result = await queue.leases.dispatch(POOL)
    assert (result.next_ms, result.waiting, result.more) == (59_000, 1, False)


async def test_no_key_of_the_queue_outlives_it(queue: Queue, server: Redis) -> None:
    made = await queue.wait("a", 5) + await queue.wait("b", 5, priority=1)
    for key in pool_keys(POOL)[8:14]:
        assert 655_000 < await server.client.pttl(key) <= 660_000, key
    await queue.set(1)
    for token in made:
        await queue.leases.release(POOL, [token])
        for key in pool_keys(POOL)[8:]:
            assert await server.client.pttl(key) != -1, key
    assert await server.client.exists(*pool_keys(POOL)[8:]) == 0


async def test_a_waiting_token_is_its_owners(queue: Queue) -> None:
    [token] = await queue.wait()
    claim = claim_of(owner="other")
    result = await queue.leases.acquire(claim, [token], queue.policies, waiting())
    assert result.attempts[0].outcome is Outcome.REUSED
    assert (await queue.leases.renew(POOL, [RenewItem(token)]))[0].outcome is Renewal.LOST


async def test_a_request_wider_than_its_scope_does_not_wait(queue: Queue) -> None:
    await queue.set(2)
    result = await queue.leases.acquire(claim_of(weight=3), tokens(1), queue.policies, waiting())
    assert result.attempts[0].outcome is Outcome.TOO_WIDE


async def test_waiting_outlasts_a_loss_of_data(
    queue: Queue, server: Redis, clock: RedisClock, leases: RedisSlots
) -> None:
    await queue.set(1)
    await server.client.flushall()
    await clock.advance(0)
    [token] = await queue.wait()
    assert await queue.granted() == []
    result = await leases.dispatch(POOL, 60_000)
    assert result.next_ms == 60_000
    await clock.advance(60_000)
    await leases.dispatch(POOL, 60_000)
    assert await queue.granted() == [token]
