"""All operations in any order against a plain-Python oracle, on the real engine, in the test's time."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import lease_service.store.redis as store
from lease_service.domain.model import PoolPolicies, RenewItem, Wait
from lease_service.store.keys import pool_keys
from lease_service.store.redis import RedisSlots
from servicekit.redis import Redis
from servicekit.settings import RedisSettings
from servicekit.values import SecretUrl
from tests.support.lease import (
    POOL,
    Listener,
    RedisClock,
    SocketValkey,
    claim_of,
    load_timed_script,
    open_pool,
    policies_of,
    weights,
    with_rules,
)
from tests.support.lease_oracle import Oracle

SCOPES = ("a", "b", "c")
TOKENS = [f"{number:032x}" for number in range(12)]

picks = st.integers(0, 59)
"""Each stands for a token: small ones for a few that may be anything by now, others for fresh or live ones."""
pick_lists = st.lists(picks, min_size=1, max_size=4, unique=True)
scope_sets = st.lists(st.sampled_from(SCOPES), min_size=1, max_size=3, unique=True)
ttls = st.sampled_from([500, 1_000, 5_000, 40_000])
waits = st.builds(
    Wait,
    wait_ms=st.sampled_from([2_000, 20_000, 120_000]),
    tenant=st.sampled_from(["gold", "plain", "other"]),
    priority=st.sampled_from([0, 0, 5, -5]),
)
RULES = {"shares": {"gold": 3}, "max_waiting": 14, "max_waiting_per_tenant": 8}


class SlotMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.oracle = Oracle()
        self.fence = 0
        self.fences: set[int] = set()
        self.versions: list[PoolPolicies] = []
        self.made = len(TOKENS)

    def fresh(self, chosen: list[int]) -> list[str]:
        """Return tokens to acquire."""
        found = []
        for pick in chosen:
            self.made += 1
            found.append(TOKENS[pick] if pick < len(TOKENS) else f"{self.made:032x}")
        return found

    def live(self, chosen: list[int]) -> list[str]:
        """Return tokens to do something with."""
        known = sorted(self.oracle.held.keys() | self.oracle.queue.waiting.keys()) or TOKENS
        found = (TOKENS[pick] if pick < len(TOKENS) // 2 else known[pick % len(known)] for pick in chosen)
        return list(dict.fromkeys(found))

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.listener.__aexit__())
        self.run(self.server.stop())
        self.runner.close()

    @initialize(capacities=st.tuples(*[st.integers(1, 4)] * 3))
    def begin(self, capacities: tuple[int, ...]) -> None:
        async def prepare() -> None:
            self.server = Redis(RedisSettings(url=SecretUrl(self.url)))
            await self.server.client.flushdb()
            self.clock = RedisClock(self.server)
            await self.clock.advance(0)
            self.leases = RedisSlots(self.server)
            self.versions.append(
                with_rules(policies_of(version=1, **dict(zip(SCOPES, capacities, strict=True))), **RULES)
            )
            self.listener = Listener(self.server, self.leases)
            await self.listener.__aenter__()
            await open_pool(self.leases, self.versions[0])

        self.run(prepare())
        self.oracle.now = self.clock.now_ms
        self.oracle.learn(self.versions[0], SCOPES)

    @rule(
        chosen=pick_lists,
        scopes=scope_sets,
        shape=st.tuples(st.integers(1, 4), ttls, st.sampled_from(["x", "y"])),
        stale=st.integers(0, 2),
        wait=st.one_of(st.none(), waits),
    )
    def acquire(
        self, chosen: list[int], scopes: list[str], shape: tuple[int, int, str], stale: int, wait: Wait | None
    ) -> None:
        self.ask(self.fresh(chosen), scopes, shape, stale, wait)

    @rule(
        requests=st.lists(
            st.tuples(
                st.sampled_from([["a"], ["a"], ["b"], ["a", "b"]]), st.sampled_from([1, 1, 1, 2, 3]), waits
            ),
            min_size=1,
            max_size=6,
        )
    )
    def contend(self, requests: list[tuple[list[str], int, Wait]]) -> None:
        for scopes, weight, wait in requests:
            self.ask(self.fresh([59]), scopes, (weight, 40_000, "x"), 0, wait)

    @rule(count=st.integers(1, 3), confirm=st.booleans())
    def move_on(self, count: int, confirm: bool) -> None:  # noqa: FBT001
        """Let grants be confirmed and the oldest holders leave, as they do most of the time."""
        if confirm:
            self.confirm()
        for token in list(self.oracle.held)[:count]:
            self.give_back([token])

    def confirm(self) -> None:
        """Do what replicas do that are told of grants."""
        for token in [token for token, lease in self.oracle.held.items() if lease.pushed]:
            if token in self.oracle.live():
                lease = self.oracle.held[token]
                self.ask([token], list(lease.scopes), (lease.weight, lease.ttl, lease.owner), 0, None)

    def ask(
        self, tokens: list[str], scopes: list[str], shape: tuple[int, int, str], stale: int, wait: Wait | None
    ) -> None:
        weight, ttl, owner = shape
        policies = self.versions[max(0, len(self.versions) - 1 - stale)]
        claim = claim_of(*scopes, weight=weight, ttl_ms=ttl, owner=owner)
        pushed = {token for token, lease in self.oracle.held.items() if lease.pushed}
        expected = self.oracle.acquire(claim, tokens, policies, wait)
        result = self.run(self.leases.acquire(claim, tokens, policies, wait))
        assert [attempt.outcome for attempt in result.attempts] == expected
        for attempt in result.attempts:
            if attempt.held:
                held = self.oracle.held[attempt.token]
                assert attempt.remaining_ms == held.expires - self.oracle.now
                assert attempt.weight == held.weight
                if attempt.token in pushed and held.fence == 0:
                    assert attempt.fence not in self.fences
                    held.fence = attempt.fence
                elif held.fence == 0:
                    assert attempt.fence > self.fence
                    self.fence = held.fence = attempt.fence
                assert attempt.fence == held.fence
                self.fences.add(attempt.fence)

    @rule(chosen=pick_lists, ttl=st.sampled_from([0, 0, 700, 20_000]), weight=st.integers(0, 4))
    def renew(self, chosen: list[int], ttl: int, weight: int) -> None:
        tokens = self.live(chosen)
        results = self.run(self.leases.renew(POOL, [RenewItem(token, ttl, weight) for token in tokens]))
        for token, result in zip(tokens, results, strict=True):
            assert (result.outcome, result.remaining_ms, result.weight) == self.oracle.renew(
                token, ttl, weight
            )
        self.oracle.settle(dispatched=self.oracle.shrunk)

    @rule(chosen=pick_lists)
    def release(self, chosen: list[int]) -> None:
        self.give_back(self.live(chosen))

    def give_back(self, tokens: list[str]) -> None:
        results = self.run(self.leases.release(POOL, tokens))
        assert [(result.freed, result.late) for result in results] == [
            self.oracle.release(token) for token in tokens
        ]
        self.oracle.settle()

    @rule(pick=picks)
    def force_release(self, pick: int) -> None:
        [token] = self.live([pick])
        freed, fence = self.run(self.leases.force_release(POOL, token, "test"))
        waited = token in self.oracle.queue.waiting
        was_live, _ = self.oracle.release(token)
        self.oracle.spent[token] = self.oracle.now + 30_000
        self.oracle.settle()
        assert freed == (was_live or waited)
        assert fence > self.fence
        self.fence = fence

    @rule(
        step=st.sampled_from([1, 499, 1_000, 2_000, 3_000, 5_000, 5_000, 10_000, 29_999, 30_000, 90_000]),
        confirm=st.sampled_from([True, True, False]),
    )
    def let_time_pass(self, step: int, confirm: bool) -> None:  # noqa: FBT001
        if confirm:
            self.confirm()
        self.run(self.clock.advance(step))
        self.oracle.now = self.clock.now_ms

    @precondition(lambda self: len(self.versions) < 20)
    @rule(
        capacities=st.tuples(*[st.integers(0, 5)] * 3),
        paused=st.booleans(),
        lifetime=st.sampled_from([0, 0, 2_000, 60_000]),
        push=st.booleans(),
    )
    def change_policy(self, capacities: tuple[int, ...], paused: bool, lifetime: int, push: bool) -> None:  # noqa: FBT001
        changed = with_rules(
            policies_of(
                version=len(self.versions) + 1,
                paused=paused,
                lifetime=lifetime,
                **dict(zip(SCOPES, capacities, strict=True)),
            ),
            **RULES,
        )
        self.versions.append(changed)
        if push:
            self.run(self.leases.push_policies(POOL, list(changed.scopes.values()), pool_is_new=False))
            self.oracle.learn(changed, SCOPES)
            self.oracle.settle()

    @rule()
    def reap(self) -> None:
        reaped = self.oracle.reap()
        self.oracle.settle()
        result = self.run(self.leases.reap(POOL))
        assert (result.reaped, result.more, result.held) == (reaped, False, len(self.oracle.held))

    @rule()
    def lose_scripts(self) -> None:
        self.run(self.server.client.script_flush())

    @rule()
    def look_inside(self) -> None:
        self.oracle.settle(dispatched=self.oracle.reap() > 0)
        state = self.run(self.leases.explain(self.versions[-1]))
        assert {scope.scope: scope.used for scope in state.scopes} == {
            scope: self.oracle.used(scope) for scope in SCOPES
        }
        waiting = self.oracle.queue.waiting.values()
        assert {scope.scope: scope.waiting_count for scope in state.scopes} == {
            scope: sum(scope in waiter.shape[2] for waiter in waiting) for scope in SCOPES
        }
        holders = self.run(self.leases.holders(POOL, (0, ""), 100))
        assert {holder.token: holder.expires_ms for holder in holders} == {
            token: lease.expires for token, lease in self.oracle.live().items()
        }

    @invariant()
    def used_is_the_sum_of_weights(self) -> None:
        if not self.versions:
            return
        expected = {scope: used for scope in SCOPES if (used := self.oracle.used(scope))}
        assert self.run(weights(self.server)) == expected
        assert self.run(self.leases.recount(POOL, 1_000)) == 0

    @invariant()
    def the_same_tokens_hold_and_wait(self) -> None:
        if not self.versions:
            return
        held = self.run(self.server.client.hkeys(pool_keys(POOL)[1]))
        assert {token.decode() for token in held} == set(self.oracle.held)
        waiting = self.run(self.leases.waiters(POOL))
        assert {request.waiter.token: (request.tag, request.cost) for request in waiting} == {
            waiter.token: (self.oracle.queue.tags[waiter.tenant], waiter.cost)
            for waiter in self.oracle.queue.waiting.values()
        }
        for key in pool_keys(POOL)[8:]:
            assert self.run(self.server.client.pttl(key)) != -1, key


@pytest.fixture
def machine(lease_valkey: SocketValkey, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[SlotMachine]]:
    monkeypatch.setattr(store, "load_script", load_timed_script)
    monkeypatch.setattr(SlotMachine, "url", lease_valkey.url)
    return SlotMachine


@pytest.mark.timeout(600)
def test_every_operation_agrees_with_the_oracle(machine: type[SlotMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.timeout(600)
def test_a_queue_that_is_never_empty_agrees_with_the_oracle(machine: type[SlotMachine], seed: int) -> None:
    """Reservations and the turns of lower classes need many grants in a row, with time between them."""
    choose = random.Random(seed)
    model = machine()
    model.begin(capacities=(3, 3, 3))

    def request() -> tuple[list[str], int, Wait]:
        wait = Wait(
            wait_ms=choose.choice([20_000, 120_000, 600_000]),
            tenant=choose.choice(["gold", "plain", "other"]),
            priority=choose.choice([0, 5, -5]),
        )
        return choose.choice([["a"], ["a"], ["b"], ["a", "b"]]), choose.choice([1, 1, 2, 3]), wait

    try:
        for _ in range(150):
            model.contend(requests=[request() for _ in range(choose.randint(0, 3))])
            model.move_on(count=choose.randint(0, 2), confirm=True)
            if choose.random() < 0.7:
                model.let_time_pass(step=choose.choice([1, 500, 1_500, 2_900]), confirm=True)
            if choose.random() < 0.05:
                capacities = tuple(choose.randint(1, 4) for _ in SCOPES)
                model.change_policy(capacities=capacities, paused=False, lifetime=0, push=True)
            model.used_is_the_sum_of_weights()
            model.the_same_tokens_hold_and_wait()
    finally:
        model.teardown()
