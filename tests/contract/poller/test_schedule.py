"""The schedule's scripts on the real Valkey."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poller.domain.model import Completion, Next
from poller.domain.schedule import next_turn_ms, offset_ms
from poller.store import keys
from poller.store.redis import RedisFacts, RedisRoles, RedisSchedule
from servicekit.redis import Redis
from servicekit.settings import RedisSettings
from servicekit.values import SecretUrl
from tests.support.waiting import eventually

INTERVAL = 60_000
DOWNTIME = timedelta(seconds=30)


@pytest.fixture
async def server(redis_url: str) -> AsyncIterator[Redis]:
    one = Redis(RedisSettings(url=SecretUrl(redis_url)))
    yield one
    await one.stop()


def schedule_on(server: Redis, lease: timedelta = timedelta(seconds=90)) -> RedisSchedule:
    return RedisSchedule(server, claim_lease=lease, downtime=DOWNTIME)


async def now_ms(server: Redis) -> int:
    seconds, microseconds = await server.client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def make_due(server: Redis, *cards: str, since_ms: int = 1000) -> None:
    now = await now_ms(server)
    await server.client.zadd(keys.due("acme"), dict.fromkeys(cards, now - since_ms))


async def due_of(server: Redis, card: str) -> int | None:
    score = await server.client.zscore(keys.due("acme"), card)
    return None if score is None else int(score)


async def test_new_cards_get_the_turn_that_the_domain_computes(server: Redis) -> None:
    schedule = schedule_on(server)
    cards = [f"card-{index}" for index in range(500)]
    before = await now_ms(server)
    assert await schedule.add("acme", INTERVAL, cards) == 500
    for card in cards:
        due = await due_of(server, card)
        assert due is not None
        assert due % INTERVAL == offset_ms(card, INTERVAL)
        assert before < due <= before + INTERVAL + 1000
    assert await schedule.add("acme", INTERVAL, cards) == 0


async def test_hastening_moves_waiting_cards_once_and_never_a_claim(server: Redis) -> None:
    """Claimed, soon due and unknown cards are let alone; a hastened one counts as handed on now."""
    schedule = schedule_on(server)
    now = await now_ms(server)
    await server.client.zadd(
        keys.due("acme"), {"far": now + 1_000_000, "soon": now + 30_000, "held": now - 1000}
    )
    [claimed] = (await schedule.claim("acme", INTERVAL, 5)).cards
    assert await schedule.hasten("acme", ["far", "soon", "held", "unknown"]) == 1
    assert await due_of(server, "held") == claimed.lease_until_ms
    assert await due_of(server, "soon") == now + 30_000
    assert await due_of(server, "unknown") is None
    [hastened] = (await schedule.claim("acme", INTERVAL, 5)).cards
    assert hastened.card_id == "far"
    [noted, nothing] = await schedule.published("acme", ["far", "held"])
    assert noted is not None
    assert noted >= now
    assert nothing is None
    assert await schedule.hasten("acme", []) == 0


@given(st.text(min_size=1, max_size=40), st.integers(1, 10**10), st.integers(10**12, 2 * 10**12))
def test_a_turn_is_stable_and_ahead(card: str, interval: int, now: int) -> None:
    turn = next_turn_ms(card, now, interval)
    assert now < turn <= now + interval
    assert next_turn_ms(card, turn - 1, interval) == turn
    assert next_turn_ms(card, turn, interval) == turn + interval


async def test_only_due_cards_are_claimed_and_only_as_many_as_asked(server: Redis) -> None:
    schedule = schedule_on(server)
    await make_due(server, "a", "b", "c")
    await server.client.zadd(keys.due("acme"), {"later": await now_ms(server) + 50_000})
    first = await schedule.claim("acme", INTERVAL, 2)
    second = await schedule.claim("acme", INTERVAL, 10)
    third = await schedule.claim("acme", INTERVAL, 10)
    assert sorted(card.card_id for card in [*first.cards, *second.cards]) == ["a", "b", "c"]
    assert third.cards == []
    assert third.next_due_ms is not None
    assert third.next_due_ms > third.now_ms


async def test_two_pollers_never_hold_the_same_card(server: Redis, redis_url: str) -> None:
    other = Redis(RedisSettings(url=SecretUrl(redis_url)))
    cards = [f"card-{index}" for index in range(2000)]
    await make_due(server, *cards)

    async def claim_all(schedule: RedisSchedule) -> list[str]:
        mine: list[str] = []
        while claimed := (await schedule.claim("acme", INTERVAL, 7)).cards:
            mine += [card.card_id for card in claimed]
        return mine

    schedules = [schedule_on(one) for one in (server, other) for _ in range(4)]
    taken = await asyncio.gather(*(claim_all(schedule) for schedule in schedules))
    await other.stop()
    assert sorted(card for part in taken for card in part) == sorted(cards)


async def test_a_claim_of_a_dead_poller_comes_back_and_its_late_end_changes_nothing(server: Redis) -> None:
    schedule = schedule_on(server, timedelta(milliseconds=60))
    await make_due(server, "a")
    [dead] = (await schedule.claim("acme", INTERVAL, 10)).cards

    async def again() -> list[object]:
        return list((await schedule.claim("acme", INTERVAL, 10)).cards)

    [alive] = await eventually(again)
    assert await schedule.complete("acme", INTERVAL, [Completion(dead, Next.TURN)]) == [False]
    assert await due_of(server, "a") == alive.lease_until_ms
    assert await schedule.complete("acme", INTERVAL, [Completion(alive, Next.TURN, 0, 77)]) == [True]
    assert await schedule.published("acme", ["a", "b"]) == [77, None]


async def test_a_card_taken_off_while_claimed_stays_off(server: Redis) -> None:
    schedule = schedule_on(server)
    await make_due(server, "a", "b")
    claimed = (await schedule.claim("acme", INTERVAL, 10)).cards
    assert await schedule.keep_only("acme", {"b"}) == 1
    ended = await schedule.complete("acme", INTERVAL, [Completion(card, Next.TURN) for card in claimed])
    assert dict(zip([card.card_id for card in claimed], ended, strict=True)) == {"a": False, "b": True}
    assert await due_of(server, "a") is None


async def test_ends_of_claims(server: Redis) -> None:
    schedule = schedule_on(server)
    await make_due(server, "turn", "at", "in", "remove")
    claimed = {card.card_id: card for card in (await schedule.claim("acme", INTERVAL, 10)).cards}
    before = await now_ms(server)
    ends = [
        Completion(claimed["turn"], Next.TURN),
        Completion(claimed["at"], Next.AT, 12345),
        Completion(claimed["in"], Next.IN, 5000),
        Completion(claimed["remove"], Next.REMOVE),
    ]
    assert await schedule.complete("acme", INTERVAL, ends) == [True] * 4
    assert (await due_of(server, "turn") or 0) % INTERVAL == offset_ms("turn", INTERVAL)
    assert await due_of(server, "at") == 12345
    assert 5000 <= (await due_of(server, "in") or 0) - before < 7000
    assert await due_of(server, "remove") is None


async def test_200k_cards_that_fell_due_in_a_downtime_do_not_burst(server: Redis) -> None:
    schedule = schedule_on(server)
    interval = 3_600_000
    hours_ago = await now_ms(server) - 2 * interval
    for start in range(0, 200_000, 20_000):
        cards = {f"card-{start + index}": hours_ago + index for index in range(20_000)}
        await server.client.zadd(keys.due("acme"), cards)
    await server.client.hset(keys.state("acme"), "seen", hours_ago)
    realigned = claimed = 0
    while realigned < 200_000:
        answer = await schedule.claim("acme", interval, 100)
        realigned += answer.realigned
        claimed += len(answer.cards)
        assert answer.realigned
    now = await now_ms(server)
    # Spread evenly over the interval: in any tenth of it there is about a tenth of the cards.
    for tenth in range(10):
        low, high = now + tenth * interval // 10, now + (tenth + 1) * interval // 10
        count = await server.client.zcount(keys.due("acme"), low, high)
        assert 17_000 < count < 23_000
    assert claimed < 1000


async def test_a_short_pause_leaves_late_cards_due(server: Redis) -> None:
    schedule = schedule_on(server)
    await schedule.claim("acme", INTERVAL, 1)
    await make_due(server, "a", since_ms=20_000)
    assert [card.card_id for card in (await schedule.claim("acme", INTERVAL, 1)).cards] == ["a"]


async def test_a_resting_account_gives_nothing_and_a_shorter_rest_does_not_end_it(server: Redis) -> None:
    schedule = schedule_on(server)
    await make_due(server, "a")
    await schedule.rest("acme", timedelta(seconds=30))
    await schedule.rest("acme", timedelta(seconds=1))
    answer = await schedule.claim("acme", INTERVAL, 10)
    assert answer.cards == []
    assert answer.blocked_ms > 25_000


async def test_a_shortened_interval_moves_far_turns_closer(server: Redis) -> None:
    schedule = schedule_on(server, timedelta(seconds=1))
    await schedule.add("acme", 86_400_000, ["a", "b"])
    assert await schedule.add("acme", 2000, ["a", "b"]) == 2
    now = await now_ms(server)
    for card in ("a", "b"):
        assert (await due_of(server, card) or 0) <= now + 2000


async def test_counts(server: Redis) -> None:
    schedule = schedule_on(server)
    assert await schedule.counts("acme") == (0, 0, 0)
    await make_due(server, "a", "b", since_ms=5000)
    await server.client.zadd(keys.due("acme"), {"later": await now_ms(server) + 50_000})
    total, due, late_ms = await schedule.counts("acme")
    assert (total, due) == (3, 2)
    assert late_ms >= 5000


async def test_one_replica_leads_until_it_stops_asking(server: Redis) -> None:
    one, two = RedisRoles(server, "one"), RedisRoles(server, "two")
    assert await one.lead_backlog(timedelta(milliseconds=100))
    assert not await two.lead_backlog(timedelta(seconds=30))
    assert await one.lead_backlog(timedelta(milliseconds=100))
    await eventually(lambda: two.lead_backlog(timedelta(seconds=30)))
    assert not await one.lead_backlog(timedelta(seconds=30))


async def test_replicas_are_counted_and_the_pause_ends_by_itself(server: Redis) -> None:
    one, two = RedisRoles(server, "one"), RedisRoles(server, "two")
    assert await one.replica_count(timedelta(seconds=30)) == 1
    assert await two.replica_count(timedelta(seconds=30)) == 2
    await two.leave()
    assert await one.replica_count(timedelta(seconds=30)) == 1
    await one.pause("too much", timedelta(milliseconds=100))
    assert await two.pause_reason() == "too much"

    async def over() -> bool:
        return await two.pause_reason() == ""

    await eventually(over)


async def test_facts_are_read_as_ingest_service_writes_them(server: Redis) -> None:
    await server.client.hset(
        keys.card("a"), mapping={"account_id": "acme", "lifecycle": "active", "polling_enabled": "1"}
    )
    await server.client.hset(
        keys.card("b"), mapping={"account_id": "acme", "lifecycle": "retired", "polling_enabled": "0"}
    )
    found = await RedisFacts(server).read(["a", "b", "c"])
    assert set(found) == {"a", "b"}
    assert found["a"].is_polled_for("acme")
    assert not found["a"].is_polled_for("other")
    assert not found["b"].is_polled_for("acme")
