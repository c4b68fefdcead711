"""Learning mode: what the scripts do after the server has become another one, in the test's time."""

import pytest

import lease_service.store.redis as store
from lease_service.domain.model import Outcome, PoolPolicies, Renewal, RenewItem
from lease_service.domain.tickets import Ticket, Tickets
from lease_service.store.keys import PROBE_POOL, pool_keys
from lease_service.store.redis import RedisSlots
from servicekit.redis import Redis
from tests.support.lease import (
    POOL,
    RedisClock,
    claim_of,
    load_timed_script,
    open_pool,
    policies_of,
    tokens,
    weights,
)

LEARNS_MS = 60_000
KEY = b"k" * 32


class Server:
    """Turns the engine into another server, by the identity that scripts are told."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def becomes(self, identity: str) -> None:
        wire = await self._redis.wire(pool_keys(POOL)[0])
        wire.facts = identity

    async def loses(self, token: str, scope: str = "poll", weight: int = 1) -> None:
        """Forget a lease, as a replica has that was not told of it yet."""
        held, records, used = pool_keys(POOL)[:3]
        await self._redis.client.zrem(held, token)
        await self._redis.client.hdel(records, token)
        await self._redis.client.hincrby(used, scope, -weight)


@pytest.fixture
async def failing(server: Redis, leases: RedisSlots) -> Server:
    failing = Server(server)
    await failing.becomes("run1 rep1 1")
    return failing


@pytest.fixture
async def leases(server: Redis, clock: RedisClock, monkeypatch: pytest.MonkeyPatch) -> RedisSlots:
    monkeypatch.setattr(store, "load_script", load_timed_script)
    slots = RedisSlots(server, tickets=Tickets(KEY))
    await slots.start()
    return slots


async def take(leases: RedisSlots, policies: PoolPolicies, ttl_ms: int = 10_000) -> RenewItem:
    [token] = tokens(1)
    attempt = (await leases.acquire(claim_of(ttl_ms=ttl_ms), [token], policies)).attempts[0]
    assert attempt.outcome is Outcome.GRANTED
    return RenewItem(token, ticket=attempt.ticket)


async def outcome(leases: RedisSlots, policies: PoolPolicies) -> Outcome:
    return (await leases.acquire(claim_of(), tokens(1), policies)).attempts[0].outcome


@pytest.mark.parametrize(
    "identity",
    ["run2 rep1 1", "run2 rep2 0", "run1 rep2 0"],
    ids=["restarted", "another machine", "demoted and promoted"],
)
async def test_another_server_grants_nothing_until_the_longest_ttl_has_passed(
    leases: RedisSlots, failing: Server, clock: RedisClock, identity: str
) -> None:
    policies = policies_of(poll=5)
    await open_pool(leases, policies)
    await take(leases, policies)
    await failing.becomes(identity)
    refused = await leases.acquire(claim_of(), tokens(1), policies)
    assert refused.attempts[0].outcome is Outcome.RELEARNING
    assert refused.retry_after_ms == LEARNS_MS
    await clock.advance(LEARNS_MS - 1)
    assert await outcome(leases, policies) is Outcome.RELEARNING
    await clock.advance(1)
    assert await outcome(leases, policies) is Outcome.GRANTED


async def test_a_new_replication_id_alone_means_nothing_on_a_server_that_was_never_promoted(
    leases: RedisSlots, failing: Server
) -> None:
    # The first replica has come, or the last one has been gone for an hour.
    policies = policies_of(poll=5)
    await open_pool(leases, policies)
    await take(leases, policies)
    await failing.becomes("run1 rep2 1")
    assert await outcome(leases, policies) is Outcome.GRANTED


async def test_a_live_lease_comes_back_with_its_ticket_and_lifts_the_fence(
    leases: RedisSlots, failing: Server, server: Redis, clock: RedisClock
) -> None:
    policies = policies_of(poll=2)
    await open_pool(leases, policies)
    known, lost = await take(leases, policies), await take(leases, policies)
    before = (await leases.explain(policies)).fence
    await failing.loses(lost.token)
    await server.client.set(pool_keys(POOL)[5], 1)  # the fence of the replica is behind
    await failing.becomes("run2 rep2 0")
    await clock.advance(2_000)
    results = await leases.renew(POOL, [known, lost])
    assert [(result.outcome, result.remaining_ms, result.weight) for result in results] == [
        (Renewal.OK, 10_000, 1)
    ] * 2
    assert all(result.ticket for result in results)
    assert await weights(server) == {"poll": 2}
    assert (await leases.explain(policies)).fence >= before
    holders = await leases.holders(POOL, (0, ""), 10)
    assert {holder.token for holder in holders} == {known.token, lost.token}
    assert {(holder.age_ms, holder.owner) for holder in holders} == {(2_000, "owner")}
    assert [event.kind for event in await leases.read_audit(POOL, 10)][-1] == "restore"


async def test_a_ticket_revives_nothing_that_has_expired(
    leases: RedisSlots, failing: Server, clock: RedisClock
) -> None:
    policies = policies_of(poll=2)
    await open_pool(leases, policies)
    item = await take(leases, policies, ttl_ms=10_000)
    await failing.loses(item.token)
    await failing.becomes("run2 rep2 0")
    await clock.advance(10_000)
    assert (await leases.renew(POOL, [item]))[0].outcome is Renewal.LOST


async def test_a_ticket_revives_nothing_that_was_released_or_taken_away(
    leases: RedisSlots, failing: Server
) -> None:
    policies = policies_of(poll=2)
    await open_pool(leases, policies)
    released, taken = await take(leases, policies), await take(leases, policies)
    await leases.release(POOL, [released.token])
    await leases.force_release(POOL, taken.token, "by me: test")
    await failing.becomes("run2 rep2 0")
    assert await outcome(leases, policies) is Outcome.RELEARNING
    results = await leases.renew(POOL, [released, taken])
    assert [result.outcome for result in results] == [Renewal.LOST, Renewal.LOST]


async def test_a_ticket_revives_nothing_while_the_server_is_the_same(
    leases: RedisSlots, failing: Server
) -> None:
    policies = policies_of(poll=2)
    await open_pool(leases, policies)
    item = await take(leases, policies)
    await failing.loses(item.token)
    assert (await leases.renew(POOL, [item]))[0].outcome is Renewal.LOST


async def test_only_tickets_signed_here_for_this_token_and_pool_count(
    leases: RedisSlots, failing: Server
) -> None:
    policies = policies_of(poll=3)
    await open_pool(leases, policies)
    items = [await take(leases, policies) for _ in range(3)]
    for item in items:
        await failing.loses(item.token)
    await failing.becomes("run2 rep2 0")
    first, second, third = items
    other = Tickets(b"o" * 32).sign(POOL, third.token, Ticket(2**45, b"x"))
    shown = [
        RenewItem(first.token),
        RenewItem(second.token, ticket=first.ticket),
        RenewItem(third.token, ticket=other),
    ]
    assert [result.outcome for result in await leases.renew(POOL, shown)] == [Renewal.LOST] * 3
    [result] = await leases.renew(POOL, [first])
    assert result.outcome is Renewal.OK


async def test_an_emptied_server_gets_every_live_lease_back_and_no_more(
    leases: RedisSlots, failing: Server, server: Redis, clock: RedisClock
) -> None:
    policies = policies_of(poll=3)
    await open_pool(leases, policies)
    items = [await take(leases, policies) for _ in range(3)]
    fences = [holder.fence for holder in await leases.holders(POOL, (0, ""), 10)]
    await server.client.flushall()
    await clock.advance(1_000)
    results = await leases.renew(POOL, items)
    assert [result.outcome for result in results] == [Renewal.OK] * 3
    assert await weights(server) == {"poll": 3}
    assert await outcome(leases, policies) is Outcome.RELEARNING
    for _ in range(12):
        await clock.advance(5_000)
        renewed = await leases.renew(POOL, [RenewItem(item.token) for item in items])
        assert {result.outcome for result in renewed} == {Renewal.OK}
    assert await outcome(leases, policies) is Outcome.FULL
    await leases.release(POOL, [items[0].token])
    last = (await leases.acquire(claim_of(), tokens(1), policies)).attempts[0]
    assert last.outcome is Outcome.GRANTED
    assert last.fence > max(fences)


async def test_a_restored_lease_keeps_its_shrunk_weight_and_its_longest_life(
    leases: RedisSlots, failing: Server, server: Redis, clock: RedisClock
) -> None:
    policies, [token] = policies_of(poll=9, lifetime=15_000), tokens(1)
    await open_pool(leases, policies)
    await leases.acquire(claim_of(weight=5), [token], policies)
    await clock.advance(3_000)
    [shrunk] = await leases.renew(POOL, [RenewItem(token, weight=2)])
    await failing.loses(token, weight=2)
    await failing.becomes("run2 rep2 0")
    await clock.advance(3_000)
    [result] = await leases.renew(POOL, [RenewItem(token, ticket=shrunk.ticket)])
    assert (result.outcome, result.remaining_ms, result.weight) == (Renewal.MAX_LIFETIME, 9_000, 2)
    assert await weights(server) == {"poll": 2}


async def test_the_clock_of_the_new_server_may_be_behind(
    leases: RedisSlots, failing: Server, clock: RedisClock
) -> None:
    policies = policies_of(poll=1)
    await open_pool(leases, policies)
    await take(leases, policies)
    await failing.becomes("run2 rep2 0")
    assert await outcome(leases, policies) is Outcome.RELEARNING
    await clock.advance(-3_600_000)
    refused = await leases.acquire(claim_of(), tokens(1), policies)
    assert refused.attempts[0].outcome is Outcome.RELEARNING
    assert refused.retry_after_ms == LEARNS_MS
    await clock.advance(LEARNS_MS)
    assert await outcome(leases, policies) is Outcome.FULL


async def test_a_second_failover_starts_again(leases: RedisSlots, failing: Server, clock: RedisClock) -> None:
    policies = policies_of(poll=5)
    await open_pool(leases, policies)
    await failing.becomes("run2 rep2 0")
    assert await outcome(leases, policies) is Outcome.RELEARNING
    await clock.advance(LEARNS_MS - 1)
    await failing.becomes("run3 rep3 0")
    assert (await leases.acquire(claim_of(), tokens(1), policies)).retry_after_ms == LEARNS_MS


async def test_a_longer_ttl_does_not_start_to_relearn(leases: RedisSlots, clock: RedisClock) -> None:
    policies = policies_of(poll=5)
    await open_pool(leases, policies)
    await clock.advance(1_000)
    result = await leases.acquire(claim_of(ttl_ms=3_600_000), tokens(1), policies)
    assert result.attempts[0].outcome is Outcome.GRANTED


async def test_the_probe_leaves_one_short_lived_key(leases: RedisSlots, server: Redis) -> None:
    await leases.health_check()
    names = [key.decode() for key in await server.client.keys(f"slots:*{PROBE_POOL}*")]
    assert names == [pool_keys(PROBE_POOL)[7]]
    assert 0 < await server.client.pttl(names[0]) <= 10_000
