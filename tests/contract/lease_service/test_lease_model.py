"""All operations in any order against a plain-Python oracle, on the real engine, in the test's time."""

import asyncio
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

token_lists = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=4, unique=True)
scope_sets = st.lists(st.sampled_from(SCOPES), min_size=1, max_size=3, unique=True)
ttls = st.sampled_from([500, 1_000, 5_000, 40_000])
waits = st.builds(
    Wait,
    wait_ms=st.sampled_from([2_000, 20_000, 120_000]),
    tenant=st.sampled_from(["gold", "plain", "other"]),
    priority=st.sampled_from([0, 0, 5, -5]),
)
RULES = {"shares": {"gold": 3}, "max_waiting": 7, "max_waiting_per_tenant": 4}


class SlotMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.oracle = Oracle()
        self.fence = 0
        self.fences: set[int] = set()
        self.versions: list[PoolPolicies] = []

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.listener.__aexit__())
        self.run(self.server.stop())
        self.runner.close()

    @initialize(capacities=st.tuples(*[st.integers(1, 5)] * 3))
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
        tokens=token_lists,
        scopes=scope_sets,
        shape=st.tuples(st.integers(1, 4), ttls, st.sampled_from(["x", "y"])),
        stale=st.integers(0, 2),
        wait=st.one_of(st.none(), waits),
    )
    def acquire(
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

    @rule(tokens=token_lists, ttl=st.sampled_from([0, 0, 700, 20_000]), weight=st.integers(0, 4))
    def renew(self, tokens: list[str], ttl: int, weight: int) -> None:
        results = self.run(self.leases.renew(POOL, [RenewItem(token, ttl, weight) for token in tokens]))
        for token, result in zip(tokens, results, strict=True):
            assert (result.outcome, result.remaining_ms, result.weight) == self.oracle.renew(
                token, ttl, weight
            )
        self.oracle.settle(dispatched=self.oracle.shrunk)

    @rule(tokens=token_lists)
    def release(self, tokens: list[str]) -> None:
        results = self.run(self.leases.release(POOL, tokens))
        assert [(result.freed, result.late) for result in results] == [
            self.oracle.release(token) for token in tokens
        ]
        self.oracle.settle()

    @rule(token=st.sampled_from(TOKENS))
    def force_release(self, token: str) -> None:
        freed, fence = self.run(self.leases.force_release(POOL, token, "test"))
        waited = token in self.oracle.queue.waiting
        was_live, _ = self.oracle.release(token)
        self.oracle.spent[token] = self.oracle.now + 30_000
        self.oracle.settle()
        assert freed == (was_live or waited)
        assert fence > self.fence
        self.fence = fence

    @rule(step=st.sampled_from([1, 499, 500, 1_000, 10_000, 29_999, 30_000, 90_000]))
    def let_time_pass(self, step: int) -> None:
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
