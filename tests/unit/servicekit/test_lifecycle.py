import asyncio
from datetime import timedelta
from typing import Any

import pytest

from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError
from servicekit.health import Health
from servicekit.lifecycle import App, StartFailed, serve
from tests.support.waiting import eventually


class Part:
    def __init__(self, name: str, steps: list[str], failures: list[Exception] | None = None) -> None:
        self.name = name
        self.steps = steps
        self.failures = failures or []
        self.holds = asyncio.Event()
        self.holds.set()
        self.stop_failure: Exception | None = None

    async def start(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.steps.append(f"start {self.name}")

    async def drain(self) -> None:
        self.steps.append(f"drain {self.name}")
        await self.holds.wait()

    async def stop(self) -> None:
        self.steps.append(f"stop {self.name}")
        if self.stop_failure is not None:
            raise self.stop_failure


class Spy(Health):
    def __init__(self, steps: list[str]) -> None:
        super().__init__(clock=ManualClock())
        self.steps = steps

    async def start(self) -> None:
        await super().start()
        self.steps.append("health on")

    async def turn_off(self) -> None:
        await super().turn_off()
        self.steps.append("health off")


def an_app(steps: list[str], *parts: Part, **options: Any) -> App:
    return App(name="test", components=parts, health=Spy(steps), **options)


async def stopped(app: App) -> None:
    stopping = asyncio.Event()
    running = asyncio.create_task(serve(app, stopping))
    await eventually(lambda: app.health.snapshot().ready or running.done())
    stopping.set()
    await asyncio.wait_for(running, 10)


async def test_everything_starts_in_order_and_ends_in_reverse() -> None:
    steps: list[str] = []
    await stopped(an_app(steps, Part("a", steps), Part("b", steps)))
    assert steps == [
        "start a",
        "start b",
        "health on",
        "health off",
        "drain b",
        "drain a",
        "stop b",
        "stop a",
    ]


async def test_what_has_started_is_stopped_when_another_cannot_start() -> None:
    steps: list[str] = []
    failure = ServiceError(Reason.WRONG_STATE, "port 7101 on 127.0.0.1 is taken")
    app = an_app(steps, Part("a", steps), Part("b", steps, [failure]), Part("c", steps))
    with pytest.raises(StartFailed, match=r"^b: port 7101 on 127\.0\.0\.1 is taken$"):
        await serve(app, asyncio.Event())
    assert steps == ["start a", "stop a"]


async def test_a_dependency_that_comes_late_is_waited_for() -> None:
    steps: list[str] = []
    away: list[Exception] = [ServiceError(Reason.DEPENDENCY_AWAY, "away"), ConnectionRefusedError(111, "no")]
    await stopped(an_app(steps, Part("a", steps, away)))
    assert steps[0] == "start a"


async def test_waiting_for_a_dependency_is_bounded() -> None:
    steps: list[str] = []
    away: list[Exception] = [ServiceError(Reason.DEPENDENCY_AWAY, "PostgreSQL does not answer")] * 100
    app = an_app(steps, Part("a", steps, away), start_timeout=timedelta(seconds=0.3))
    with pytest.raises(StartFailed, match="PostgreSQL does not answer"):
        await serve(app, asyncio.Event())


async def test_a_stop_while_waiting_for_a_dependency_is_prompt() -> None:
    steps: list[str] = []
    away: list[Exception] = [ServiceError(Reason.DEPENDENCY_AWAY, "away")] * 100
    stopping = asyncio.Event()
    running = asyncio.create_task(serve(an_app(steps, Part("a", steps), Part("b", steps, away)), stopping))
    await eventually(lambda: "start a" in steps)
    stopping.set()
    await asyncio.wait_for(running, 10)
    assert steps == ["start a", "stop a"]


async def test_the_drain_budget_is_hard() -> None:
    steps: list[str] = []
    slow = Part("slow", steps)
    slow.holds.clear()
    await stopped(an_app(steps, Part("a", steps), slow, drain_timeout=timedelta(seconds=0.05)))
    assert steps[-3:] == ["drain slow", "stop slow", "stop a"]


async def test_a_component_that_fails_to_stop_does_not_keep_the_others() -> None:
    steps: list[str] = []
    bad = Part("bad", steps)
    bad.stop_failure = RuntimeError("a bug")
    await stopped(an_app(steps, Part("a", steps), bad))
    assert steps[-2:] == ["stop bad", "stop a"]


async def test_a_bug_at_start_is_not_dressed_up() -> None:
    steps: list[str] = []
    with pytest.raises(KeyError):
        await serve(an_app(steps, Part("a", steps, [KeyError("bug")])), asyncio.Event())


async def test_health_is_off_until_ready_and_polls_for_real() -> None:
    clock = ManualClock()
    health = Health(clock=clock)
    answers: list[bool | Exception] = [True, ConnectionRefusedError(), False, True]

    async def check() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    health.add_check("redis", check)
    assert not health.serving
    await health.check_now()
    assert not health.serving, "works, but is not ready"
    answers.insert(0, True)
    await health.start()
    seen = [health.serving]
    for _ in range(3):
        await clock.run_for(2)
        seen.append(health.serving)
    assert seen == [True, False, False, True]
    await health.turn_off()
    assert not health.serving
    await health.stop()


async def test_a_check_that_hangs_counts_as_away() -> None:
    health = Health(timeout=timedelta(seconds=0.01))

    async def hang() -> None:
        await asyncio.Event().wait()

    health.add_check("postgres", hang)
    snapshot = await health.check_now()
    assert snapshot.checks["postgres"].ok is False
