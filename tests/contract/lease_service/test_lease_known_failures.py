"""What goes wrong in other systems, and must not here; each test is named after what was seen."""

import asyncio

import pytest

from lease_service.domain.model import Outcome, Renewal, RenewItem
from lease_service.store.keys import pool_keys
from lease_service.store.redis import RedisSlots
from servicekit.errors import Reason, ServiceError
from servicekit.redis import Redis
from tests.support.lease import (
    POOL,
    RedisClock,
    SocketValkey,
    claim_of,
    connected,
    open_pool,
    policies_of,
    socket_valkey,
    tokens,
    weights,
)
from tests.support.waiting import eventually


async def granted(leases: RedisSlots, count: int = 1, *, capacity: int = 1, ttl_ms: int = 1_000) -> list[str]:
    policies, made = policies_of(poll=capacity), tokens(count)
    await open_pool(leases, policies)
    result = await leases.acquire(claim_of(ttl_ms=ttl_ms), made, policies)
    assert all(attempt.outcome is Outcome.GRANTED for attempt in result.attempts)
    return made


async def test_renew_on_an_expired_lease_does_not_reacquire_it(leases: RedisSlots, clock: RedisClock) -> None:
    # redis-semaphore 175, aioredlock, Prefect's lease storage. The reaper has not been here yet, and capacity is free.
    [token] = await granted(leases)
    await clock.advance(1_000)
    [result] = await leases.renew(POOL, [RenewItem(token)])
    assert (result.outcome, result.remaining_ms, result.weight) == (Renewal.LOST, 0, 0)
    assert await leases.holders(POOL, (0, ""), 10) == []


async def test_release_after_expiry_does_not_report_success(
    leases: RedisSlots, server: Redis, clock: RedisClock
) -> None:
    # redisson 4086
    [token] = await granted(leases)
    await clock.advance(1_000)
    [result] = await leases.release(POOL, [token])
    assert (result.freed, result.late) == (False, True)
    assert await weights(server) == {}
    [again] = await leases.release(POOL, [token])
    assert (again.freed, again.late) == (False, False)


async def test_a_short_lease_does_not_purge_a_longer_one(leases: RedisSlots, clock: RedisClock) -> None:
    # docket 223, node redis-semaphore
    [long] = await granted(leases, capacity=3, ttl_ms=600_000)
    policies = policies_of(poll=3)
    await leases.acquire(claim_of(ttl_ms=1_000), tokens(2), policies)
    await clock.advance(2_000)
    await leases.acquire(claim_of(ttl_ms=1_000), tokens(1), policies)
    assert (await leases.renew(POOL, [RenewItem(long)]))[0].outcome is Renewal.OK


async def test_a_stable_owner_name_does_not_renew_its_successors_lease(
    leases: RedisSlots, clock: RedisClock
) -> None:
    # aegra PR 547: the owner is the same after a restart, the token is not.
    [before] = await granted(leases)
    await clock.advance(1_000)
    [after] = tokens(1)
    await leases.acquire(claim_of(), [after], policies_of(poll=1))
    results = await leases.renew(POOL, [RenewItem(before), RenewItem(after)])
    assert [result.outcome for result in results] == [Renewal.LOST, Renewal.OK]


async def test_a_dead_token_in_a_batch_release_does_not_keep_the_others_held(
    leases: RedisSlots, server: Redis
) -> None:
    # redisson 6343
    made = await granted(leases, 3, capacity=3)
    await leases.release(POOL, made[:1])
    results = await leases.release(POOL, [made[0], *tokens(1), *made[1:]])
    assert [result.freed for result in results] == [False, False, True, True]
    assert await weights(server) == {}


async def test_a_retry_after_a_lost_reply_does_not_acquire_twice(leases: RedisSlots, server: Redis) -> None:
    # redis-py 261, redis-rb 668
    [token] = await granted(leases, capacity=5)
    again = await leases.acquire(claim_of(), [token], policies_of(poll=5))
    assert again.attempts[0].outcome is Outcome.HELD
    assert await weights(server) == {"poll": 1}


async def test_a_release_that_overtakes_its_acquire_wins(
    leases: RedisSlots, server: Redis, clock: RedisClock
) -> None:
    # redis-py 3847, redisson 4109: the caller gave up, its acquire arrives afterwards.
    policies, [token] = policies_of(poll=1), tokens(1)
    await open_pool(leases, policies)
    assert not (await leases.release(POOL, [token]))[0].freed
    late = await leases.acquire(claim_of(), [token], policies)
    assert late.attempts[0].outcome is Outcome.SPENT
    assert await weights(server) == {}
    await clock.advance(30_000)
    assert (await leases.acquire(claim_of(), [token], policies)).attempts[0].outcome is Outcome.GRANTED


async def test_an_expired_token_stays_spent_whether_it_is_reaped_or_not(
    leases: RedisSlots, clock: RedisClock
) -> None:
    made = await granted(leases, 2, capacity=2)
    await clock.advance(1_000)
    await leases.reap(POOL)
    result = await leases.acquire(claim_of(), made, policies_of(poll=2))
    assert [attempt.outcome for attempt in result.attempts] == [Outcome.SPENT, Outcome.SPENT]


async def test_a_drifted_counter_does_not_wedge_admission(leases: RedisSlots, server: Redis) -> None:
    # prefect 17415, 21794: an empty pool with a counter left heals with the next acquire...
    policies = policies_of(poll=2, stop_resume=2)
    await open_pool(leases, policies)
    used_key = pool_keys(POOL)[2]
    await server.client.hset(used_key, mapping={"poll": 2, "stop_resume": 7})
    result = await leases.acquire(claim_of("poll", "stop_resume"), tokens(1), policies)
    assert result.attempts[0].outcome is Outcome.GRANTED
    # ... and a pool with leases with the reaper's recount.
    await server.client.hset(used_key, mapping={"poll": 2, "ghost": 1})
    await server.client.hdel(used_key, "stop_resume")
    assert await leases.recount(POOL, 100) == 3
    assert await weights(server) == {"poll": 1, "stop_resume": 1}
    assert await leases.recount(POOL, 100) == 0
    assert await leases.recount(POOL, 0) == -1


async def test_a_record_without_its_expiry_is_dropped_by_a_recount(leases: RedisSlots, server: Redis) -> None:
    made = await granted(leases, 2, capacity=2)
    await server.client.zrem(pool_keys(POOL)[0], made[0])
    assert await leases.recount(POOL, 100) > 0
    assert await weights(server) == {"poll": 1}
    result = await leases.acquire(claim_of(), tokens(2), policies_of(poll=2))
    assert [attempt.outcome for attempt in result.attempts] == [Outcome.GRANTED, Outcome.FULL]


async def test_an_expiry_without_its_record_is_reaped(
    leases: RedisSlots, server: Redis, clock: RedisClock
) -> None:
    made = await granted(leases)
    await server.client.hdel(pool_keys(POOL)[1], made[0])
    assert (await leases.renew(POOL, [RenewItem(made[0])]))[0].outcome is Renewal.LOST
    assert (await leases.acquire(claim_of(), made, policies_of(poll=1))).attempts[0].outcome is Outcome.SPENT
    await clock.advance(1_000)
    assert (await leases.reap(POOL)).reaped == 1
    await leases.recount(POOL, 100)
    assert await weights(server) == {}


async def test_flushed_scripts_are_loaded_again_and_run_once(leases: RedisSlots, server: Redis) -> None:
    # groupmq 16: NOSCRIPT for hours while PING is green
    policies = policies_of(poll=50)
    await open_pool(leases, policies)
    for _ in range(3):
        await server.client.script_flush()
        claims = [leases.acquire(claim_of(), tokens(1), policies) for _ in range(10)]
        results = await asyncio.gather(*claims, leases.renew(POOL, [RenewItem(token) for token in tokens(2)]))
        assert len(results) == 11
    assert await weights(server) == {"poll": 30}
    await server.client.script_flush()
    assert await leases.health_check()


async def test_host_clock_skew_neither_expires_nor_revives(
    real_leases: RedisSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    # occurrent 659: only the server's clock counts.
    [token] = await granted(real_leases, ttl_ms=60_000)
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert (await real_leases.renew(POOL, [RenewItem(token)]))[0].outcome is Renewal.OK


async def test_capacity_is_counted_not_ranked(leases: RedisSlots, clock: RedisClock) -> None:
    # hatchet 4778: three or four ran at limit 2 because places were given by position.
    policies = policies_of(poll=2)
    await open_pool(leases, policies)
    made = tokens(40)
    live: set[str] = set()
    for index, token in enumerate(made):
        await clock.advance(-37 if index % 5 == 0 else 11)
        attempt = (await leases.acquire(claim_of(ttl_ms=60_000), [token], policies)).attempts[0]
        live |= {token} if attempt.held else set()
        assert len(live) <= 2
        if index % 3 == 0 and live:
            await leases.release(POOL, [live.pop()])


async def test_a_server_that_may_evict_is_refused_at_the_start_and_while_running() -> None:
    # bullmq 2215
    with socket_valkey() as engine:
        async with connected(engine.url) as server:
            leases = RedisSlots(server)
            await leases.start()
            policies = policies_of(poll=1)
            await open_pool(leases, policies)
            await server.client.config_set("maxmemory-policy", "allkeys-lru")
            with pytest.raises(ServiceError, match="set maxmemory-policy to noeviction") as refused:
                await RedisSlots(server).start()
            assert refused.value.reason is Reason.WRONG_STATE
            assert not await leases.health_check()
            with pytest.raises(ServiceError, match="may evict") as paused:
                await leases.acquire(claim_of(), tokens(1), policies)
            assert paused.value.reason is Reason.DEPENDENCY_AWAY
            await server.client.config_set("maxmemory-policy", "noeviction")
            assert await leases.health_check()
            assert (await leases.acquire(claim_of(), tokens(1), policies)).attempts[0].held


async def test_a_hung_server_ends_calls_in_time_and_a_cancelled_acquire_leaks_nothing(
    lease_valkey: SocketValkey,
) -> None:
    async with connected(lease_valkey.url) as server:
        leases = RedisSlots(server)
        await leases.start()
        policies, [token] = policies_of(poll=1), tokens(1)
        await open_pool(leases, policies)
        lease_valkey.suspend()
        try:
            with pytest.raises(Exception, match="imeout"):
                await leases.acquire(claim_of(), [token], policies)
        finally:
            lease_valkey.proceed()
        await eventually(leases.health_check)
        await leases.release(POOL, [token])
        assert await weights(server) == {}
        assert (await leases.acquire(claim_of(), tokens(1), policies)).attempts[0].held


async def test_lease_preserves_longest_ttl(lease_valkey: SocketValkey) -> None:
    # Mixed ttls, capacity, refused renewal of an expired lease, idempotent release, in real time on a private socket.
    async with connected(lease_valkey.url) as server:
        leases = RedisSlots(server)
        await leases.start()
        policies, [short, long, refused] = policies_of(poll=2), tokens(3)
        await open_pool(leases, policies)
        await leases.acquire(claim_of(ttl_ms=600_000), [long], policies)
        await leases.acquire(claim_of(ttl_ms=100), [short], policies)
        assert (await leases.acquire(claim_of(ttl_ms=50), [refused], policies)).attempts[
            0
        ].outcome is Outcome.FULL
        for key in pool_keys(POOL)[:4]:
            assert 655_000 < await server.client.pttl(key) <= 660_000, key

        async def short_is_over() -> bool:
            return len(await leases.holders(POOL, (0, ""), 10)) == 1

        await eventually(short_is_over)
        results = await leases.renew(POOL, [RenewItem(short), RenewItem(long, ttl_ms=1_000)])
        assert [result.outcome for result in results] == [Renewal.LOST, Renewal.OK]
        assert [(result.freed) for result in await leases.release(POOL, [short, long, long])] == [
            False,
            True,
            False,
        ]
        for key in [key for key in pool_keys(POOL) if key.endswith((":h", ":l", ":u", ":x", ":p"))]:
            left = await server.client.pttl(key)
            assert left == -2 or 0 < left <= 660_000, key
        assert await server.client.pttl(pool_keys(POOL)[5]) == -1
