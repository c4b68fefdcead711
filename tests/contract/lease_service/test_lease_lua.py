"""Every script on a real engine: the rules that may never break, one by one."""

from itertools import pairwise

import pytest

from lease_service.domain.model import Outcome, PoolPolicies, Renewal, RenewItem
from lease_service.loops.audit_drain import NO_EVENT
from lease_service.store.keys import pool_keys
from lease_service.store.redis import RedisSlots
from servicekit.redis import Redis
from tests.support.lease import POOL, RedisClock, claim_of, open_pool, policies_of, tokens, weights
from tests.support.waiting import eventually

pytestmark = pytest.mark.parametrize("topology", ["single", "cluster"], indirect=True)


async def outcomes(leases: RedisSlots, policies: PoolPolicies, count: int, **claim: int) -> list[Outcome]:
    result = await leases.acquire(claim_of(*policies.scopes, **claim), tokens(count), policies)
    return [attempt.outcome for attempt in result.attempts]


async def test_grants_up_to_the_capacity_and_says_what_is_in_the_way(leases: RedisSlots) -> None:
    policies = policies_of(poll=3, stop_resume=2)
    await open_pool(leases, policies)
    result = await leases.acquire(claim_of("poll", "stop_resume", ttl_ms=4_000), tokens(3), policies)
    assert [attempt.outcome for attempt in result.attempts] == [
        Outcome.GRANTED,
        Outcome.GRANTED,
        Outcome.FULL,
    ]
    assert (result.limiting_scope, result.used, result.capacity, result.retry_after_ms) == (
        "stop_resume",
        2,
        2,
        4_000,
    )
    assert [attempt.remaining_ms for attempt in result.attempts] == [4_000, 4_000, 0]
    first, second, _ = (attempt.fence for attempt in result.attempts)
    assert 0 < first < second


async def test_a_batch_is_granted_as_far_as_there_is_room(leases: RedisSlots, server: Redis) -> None:
    policies = policies_of(poll=7)
    await open_pool(leases, policies)
    found = await outcomes(leases, policies, 100)
    assert found.count(Outcome.GRANTED) == 7
    assert found.count(Outcome.FULL) == 93
    assert await weights(server) == {"poll": 7}


async def test_weight_is_charged_in_every_scope_or_in_none(leases: RedisSlots, server: Redis) -> None:
    policies = policies_of(a=10, b=4)
    await open_pool(leases, policies)
    assert await outcomes(leases, policies, 2, weight=3) == [Outcome.GRANTED, Outcome.FULL]
    assert await weights(server) == {"a": 3, "b": 3}


async def test_wider_than_a_capacity_is_no_wait_but_an_error(leases: RedisSlots, server: Redis) -> None:
    policies = policies_of(a=10, b=4)
    await open_pool(leases, policies)
    assert await outcomes(leases, policies, 1, weight=5) == [Outcome.TOO_WIDE]
    assert await weights(server) == {}


async def test_capacity_zero_refuses(leases: RedisSlots) -> None:
    policies = policies_of(poll=0)
    await open_pool(leases, policies)
    assert await outcomes(leases, policies, 1) == [Outcome.FULL]


async def test_the_same_token_again_returns_the_same_lease(leases: RedisSlots, clock: RedisClock) -> None:
    policies, [token] = policies_of(poll=1), tokens(1)
    await open_pool(leases, policies)
    first = (await leases.acquire(claim_of(ttl_ms=5_000), [token], policies)).attempts[0]
    await clock.advance(1_000)
    again = (await leases.acquire(claim_of(ttl_ms=5_000), [token], policies)).attempts[0]
    assert again.outcome is Outcome.HELD
    assert (again.fence, again.remaining_ms, again.weight) == (first.fence, 4_000, 1)
    other = (await leases.acquire(claim_of(owner="other"), [token], policies)).attempts[0]
    assert other.outcome is Outcome.REUSED


async def test_renew_extends_and_shrinks_but_never_grows(
    leases: RedisSlots, server: Redis, clock: RedisClock
) -> None:
    policies, [token] = policies_of(poll=10), tokens(1)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(weight=5, ttl_ms=5_000), [token], policies)
    await clock.advance(3_000)
    [kept] = await leases.renew(POOL, [RenewItem(token)])
    assert (kept.outcome, kept.remaining_ms, kept.weight) == (Renewal.OK, 5_000, 5)
    [shrunk] = await leases.renew(POOL, [RenewItem(token, 9_000, 2)])
    assert (shrunk.remaining_ms, shrunk.weight) == (9_000, 2)
    [grown] = await leases.renew(POOL, [RenewItem(token, 0, 7)])
    assert grown.weight == 2
    assert await weights(server) == {"poll": 2}


async def test_renewal_ends_at_the_longest_life(leases: RedisSlots, clock: RedisClock) -> None:
    policies, [token] = policies_of(poll=1, lifetime=8_000), tokens(1)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(ttl_ms=5_000), [token], policies)
    await clock.advance(4_000)
    [result] = await leases.renew(POOL, [RenewItem(token)])
    assert (result.outcome, result.remaining_ms) == (Renewal.MAX_LIFETIME, 4_000)
    await clock.advance(4_000)
    [result] = await leases.renew(POOL, [RenewItem(token)])
    assert result.outcome is Renewal.LOST


async def test_fences_rise_over_releases_force_and_clock_steps(leases: RedisSlots, clock: RedisClock) -> None:
    policies = policies_of(poll=1)
    await open_pool(leases, policies)
    fences = []
    for step in (0, 5_000, -60_000, 0):
        await clock.advance(step)
        [token] = tokens(1)
        attempt = (await leases.acquire(claim_of(), [token], policies)).attempts[0]
        fences.append(attempt.fence)
        freed, fence = await leases.force_release(POOL, token, "by me: test")
        assert freed
        fences.append(fence)
    assert fences == sorted(set(fences))


async def test_pause_stops_new_grants_and_keeps_held_leases(leases: RedisSlots) -> None:
    policies, [token] = policies_of(poll=2), tokens(1)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(), [token], policies)
    paused = policies_of(poll=2, version=2, paused=True)
    await leases.push_policies(POOL, list(paused.scopes.values()), pool_is_new=False)
    assert await outcomes(leases, policies, 1) == [Outcome.PAUSED]
    assert (await leases.acquire(claim_of(), [token], policies)).attempts[0].outcome is Outcome.HELD
    assert (await leases.renew(POOL, [RenewItem(token)]))[0].outcome is Renewal.OK


async def test_a_stale_replica_cannot_undo_a_shrink(leases: RedisSlots, server: Redis) -> None:
    wide, narrow = policies_of(poll=10, version=1), policies_of(poll=1, version=2)
    await open_pool(leases, wide)
    assert await outcomes(leases, narrow, 3) == [Outcome.GRANTED, Outcome.FULL, Outcome.FULL]
    assert await outcomes(leases, wide, 3) == [Outcome.FULL] * 3
    await leases.push_policies(POOL, list(wide.scopes.values()), pool_is_new=False)
    assert await outcomes(leases, wide, 1) == [Outcome.FULL]
    assert await weights(server) == {"poll": 1}


async def test_a_fresh_policy_reaches_redis_with_the_next_acquire(leases: RedisSlots) -> None:
    await open_pool(leases, policies_of(poll=1))
    assert await outcomes(leases, policies_of(poll=3, version=2), 4) == [*[Outcome.GRANTED] * 3, Outcome.FULL]


async def test_a_shrink_drains(leases: RedisSlots) -> None:
    policies, held = policies_of(poll=3), tokens(3)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(), held, policies)
    narrow = policies_of(poll=1, version=2)
    for token in held[:2]:
        await leases.release(POOL, [token])
        assert await outcomes(leases, narrow, 1) == [Outcome.FULL]
    await leases.release(POOL, held[2:])
    assert await outcomes(leases, narrow, 1) == [Outcome.GRANTED]


async def test_at_most_32_expired_leases_are_reaped_per_call(leases: RedisSlots, clock: RedisClock) -> None:
    policies = policies_of(poll=100)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(ttl_ms=1_000), tokens(100), policies)
    await clock.advance(1_000)
    results = [await leases.reap(POOL) for _ in range(4)]
    assert [(result.reaped, result.more, result.held) for result in results] == [
        (32, True, 0),
        (32, True, 0),
        (32, True, 0),
        (4, False, 0),
    ]


async def test_an_acquire_that_has_to_reap_more_says_so(leases: RedisSlots, clock: RedisClock) -> None:
    policies = policies_of(poll=100)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(ttl_ms=1_000), tokens(100), policies)
    await clock.advance(1_000)
    result = await leases.acquire(claim_of(weight=90), tokens(1), policies)
    assert result.attempts[0].outcome is Outcome.FULL
    assert result.retry_after_ms == 0


async def test_a_server_that_lost_its_data_grants_nothing_until_old_leases_are_over(
    leases: RedisSlots, server: Redis, clock: RedisClock
) -> None:
    policies, [token] = policies_of(poll=1), tokens(1)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(ttl_ms=10_000), [token], policies)
    await server.client.flushall()
    await clock.advance(0)
    assert await outcomes(leases, policies, 1) == [Outcome.RELEARNING]
    assert (await leases.renew(POOL, [RenewItem(token)]))[0].outcome is Renewal.LOST
    state = await leases.explain(policies)
    assert state.relearning_ms == policies.longest_ttl_ms
    await leases.push_policies(POOL, list(policies.scopes.values()), pool_is_new=False)
    await leases.force_release(POOL, token, "by me: test")
    await clock.advance(policies.longest_ttl_ms - 1)
    assert await outcomes(leases, policies, 1) == [Outcome.RELEARNING]
    await clock.advance(1)
    assert await outcomes(leases, policies, 2) == [Outcome.GRANTED, Outcome.FULL]


async def test_force_release_does_not_end_relearning(leases: RedisSlots) -> None:
    policies = policies_of(poll=1)
    assert await leases.force_release(POOL, tokens(1)[0], "by me: test") == (False, 0)
    assert await outcomes(leases, policies, 1) == [Outcome.RELEARNING]


async def test_holders_are_listed_in_pages_soonest_to_expire_first(
    leases: RedisSlots, clock: RedisClock
) -> None:
    policies = policies_of(a=100, b=100)
    await open_pool(leases, policies)
    for ttl in (5_000, 9_000, 7_000):
        await leases.acquire(claim_of("a", "b", ttl_ms=ttl, weight=2), tokens(7), policies)
    await leases.acquire(claim_of("a", ttl_ms=1_000), tokens(3), policies)
    await clock.advance(1_000)
    seen, after = [], (0, "")
    while page := await leases.holders(POOL, after, 4):
        seen += page
        after = (page[-1].expires_ms, page[-1].token)
    assert [holder.remaining_ms for holder in seen] == [*[4_000] * 7, *[6_000] * 7, *[8_000] * 7]
    assert len({holder.token for holder in seen}) == 21
    assert (seen[0].owner, seen[0].job, seen[0].scopes, seen[0].weight) == ("owner", "job", ["a", "b"], 2)
    assert (seen[0].age_ms, seen[0].fence > 0) == (1_000, True)


async def test_explain_tells_scopes_apart(leases: RedisSlots, clock: RedisClock) -> None:
    policies = policies_of(a=5, b=2)
    await open_pool(leases, policies)
    await leases.acquire(claim_of("a", "b", ttl_ms=5_000), tokens(2), policies)
    await leases.acquire(claim_of("a", ttl_ms=3_000), tokens(1), policies)
    await clock.advance(500)
    state = await leases.explain(policies)
    found = [
        (scope.scope, scope.capacity, scope.used, scope.holder_count, scope.next_expiry_ms)
        for scope in state.scopes
    ]
    assert found == [("a", 5, 3, 3, 2_500), ("b", 2, 2, 2, 4_500)]


async def test_audit_tells_what_happened_and_is_forgotten_when_stored(
    leases: RedisSlots, server: Redis, clock: RedisClock
) -> None:
    policies, made = policies_of(poll=3), tokens(3)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(weight=1, ttl_ms=1_000), made, policies)
    await leases.release(POOL, made[:1])
    await leases.force_release(POOL, made[1], "by me: stuck")
    await clock.advance(1_000)
    await leases.reap(POOL)
    await leases.renew(POOL, [RenewItem(made[2])])
    events = await leases.read_audit(POOL, 100)
    assert [event.kind for event in events] == [*["grant"] * 3, "release", "force", "expire", "renew_lost"]
    assert [event.token for event in events[3:]] == [made[0], made[1], made[2], made[2]]
    assert (events[4].note, events[4].scopes, events[4].owner, events[4].weight) == (
        "by me: stuck",
        ("poll",),
        "owner",
        1,
    )
    assert await leases.pools_with_audit([POOL, "other"]) == [POOL]
    assert await leases.trim_audit(POOL, events[2].event_id) == 4
    assert await leases.trim_audit(POOL, events[-1].event_id) == 0

    async def gone() -> bool:
        await leases.trim_audit(POOL, NO_EVENT)
        return await server.client.exists(pool_keys(POOL)[6]) == 0

    assert await eventually(gone)


async def test_no_two_audit_events_share_an_id_however_fast_they_are_stored(real_leases: RedisSlots) -> None:
    """An emptied stream that was removed within a millisecond gave the next event an id that was stored before."""
    policies, seen = policies_of(poll=1), []
    await open_pool(real_leases, policies)
    for token in tokens(150):
        await real_leases.acquire(claim_of(weight=1), [token], policies)
        await real_leases.release(POOL, [token])
        events = await real_leases.read_audit(POOL, 10)
        seen += [(*map(int, event.event_id.split("-")),) for event in events]
        await real_leases.trim_audit(POOL, events[-1].event_id)
    assert len(seen) == 300
    assert all(earlier < later for earlier, later in pairwise(seen))


async def test_all_keys_of_a_pool_share_its_hash_tag_and_are_declared(
    leases: RedisSlots, server: Redis
) -> None:
    policies = policies_of(poll=1)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(), tokens(2), policies)
    await leases.release(POOL, tokens(1))
    written = {key.decode() for key in await server.client.keys("slots:*")}
    assert written <= {*pool_keys(POOL), *pool_keys("~probe")}
    assert all(key.startswith("slots:{gateway:acme}:") for key in pool_keys(POOL))


@pytest.mark.parametrize("name", ["a b", "ümlaut", 'quote"\\', "x" * 128])
async def test_owners_and_jobs_may_hold_any_text(leases: RedisSlots, name: str) -> None:
    policies = policies_of(poll=1)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(owner=name), tokens(1), policies)
    assert [holder.owner for holder in await leases.holders(POOL, (0, ""), 10)] == [name]
    assert (await leases.read_audit(POOL, 10))[0].owner == name
