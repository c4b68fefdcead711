import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_api.domain.signals import Signals
from task_api.domain.streams import (
    BEGINNING,
    TERMINAL_SEQ,
    Cursor,
    Event,
    Hub,
    LastEvent,
    ReplayKey,
    parse_cursor,
)
from tests.support.waiting import eventually

TASK = UUID(int=1)


class Log:
    """Events in memory; a test adds them with or without a wake."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.terminal = False
        self.reads = 0
        self.signals: Signals[UUID] = Signals()
        self.failures = 0

    def add(self, epoch: int, seq: int, kind: str = "text", *, wake: bool = True) -> None:
        self.events.append(Event(Cursor(epoch, seq), kind, f"{epoch}.{seq}"))
        self.terminal = kind == "end"
        if wake:
            self.signals.notify([TASK])

    async def read(self, task_id: UUID, after: Cursor, limit: int) -> Sequence[Event]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise ConnectionError
        found = [event for event in self.events if event.cursor > after][:limit]
        return [Event(event.cursor, event.kind, event.data) for event in found]

    async def last(self, task_id: UUID, tenant: str) -> LastEvent | None:
        await asyncio.sleep(0)
        return LastEvent(self.events[-1].cursor if self.events else BEGINNING, self.terminal)


def hub_on(log: Log, safety_seconds: float = 60) -> Hub:
    return Hub(log, signals=log.signals, safety_seconds=safety_seconds)


def shown(event: Event) -> str:
    return ("!" if event.restarts else "") + (event.data if event.kind == "text" else "$")


async def collect(hub: Hub, log: Log, after: Cursor = BEGINNING) -> list[str]:
    last = await hub.last(TASK, "t")
    assert last is not None
    seen: list[str] = []
    async with hub.follow(TASK, "t", last, after) as reader:
        while not reader.ended:
            seen += [shown(event) for event in await reader.pull(5)]
    return seen


async def test_history_and_live_events_meet_without_a_gap() -> None:
    log = Log()
    hub = hub_on(log)
    for seq in range(1, 1200):
        log.add(1, seq)
    reading = asyncio.create_task(collect(hub, log))
    for seq in range(1200, 3000):
        log.add(1, seq)
        if seq % 50 == 0:
            await asyncio.sleep(0)
    log.add(1, TERMINAL_SEQ, "end")
    assert await reading == [*(f"1.{seq}" for seq in range(1, 3000)), "$"]


async def test_a_reader_behind_the_ring_loads_again() -> None:
    log = Log()
    hub = hub_on(log)
    log.add(1, 1)
    last = await hub.last(TASK, "t")
    assert last is not None
    async with hub.follow(TASK, "t", last, BEGINNING) as slow:
        assert [event.data for event in await slow.pull(5)] == ["1.1"]
        for seq in range(2, 3500):
            log.add(1, seq)
        tail = hub._tails[TASK]
        await eventually(lambda: tail.floor > Cursor(1, 1000))
        seen = []
        while slow.cursor < Cursor(1, 3499):
            seen += [event.data for event in await slow.pull(5)]
        assert seen == [f"1.{seq}" for seq in range(2, 3500)]


async def test_a_new_attempt_is_announced_and_old_ends_are_skipped() -> None:
    log = Log()
    log.add(1, 1)
    log.add(1, TERMINAL_SEQ, "end")
    log.add(3, 1)
    log.add(3, TERMINAL_SEQ, "end")
    assert await collect(hub_on(log), log) == ["1.1", "!3.1", "$"]
    assert await collect(hub_on(log), log, Cursor(1, 1)) == ["!3.1", "$"]
    assert await collect(hub_on(log), log, Cursor(3, 1)) == ["$"]


async def test_an_end_that_is_no_longer_true_is_not_told() -> None:
    log = Log()
    log.add(1, 1)
    log.add(1, TERMINAL_SEQ, "end")
    log.terminal = False  # it waits to run again
    reading = asyncio.create_task(collect(hub_on(log), log))
    await eventually(lambda: log.reads >= 2)
    log.add(3, 1)
    log.add(3, TERMINAL_SEQ, "end")
    assert await reading == ["1.1", "!3.1", "$"]


async def test_lost_wakes_and_failed_reads_only_cost_time() -> None:
    log = Log()
    reading = asyncio.create_task(collect(hub_on(log, safety_seconds=0.05), log))
    await eventually(lambda: log.reads >= 1)
    log.failures = 2
    log.add(1, 1, wake=False)
    log.add(1, TERMINAL_SEQ, "end", wake=False)
    assert await asyncio.wait_for(reading, 10) == ["1.1", "$"]


async def test_closing_sends_readers_away_at_once_and_tails_end_with_them() -> None:
    log = Log()
    hub = hub_on(log)
    last = await hub.last(TASK, "t")
    assert last is not None
    async with hub.follow(TASK, "t", last, BEGINNING) as reader:
        waiting = asyncio.create_task(reader.pull(3600))
        await asyncio.sleep(0)
        hub.close()
        assert await asyncio.wait_for(waiting, 5) == []
    assert hub.tail_count == 0


async def test_a_reader_that_never_starts_leaves_nothing() -> None:
    """stemdeck#513: a place was leaked when the stream never started."""
    hub = hub_on(Log())
    hub.follow(TASK, "t", LastEvent(BEGINNING, terminal=False), BEGINNING)
    assert hub.tail_count == 0


@given(st.integers(0, 999_999_999), st.integers(0, TERMINAL_SEQ))
def test_cursors_are_read_as_they_are_written(epoch: int, seq: int) -> None:
    assert parse_cursor(str(Cursor(epoch, seq))) == Cursor(epoch, seq)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.",
        ".1",
        "1.2.3",
        "a.b",
        "-1.2",
        "+1.2",
        "1 .2",
        "01.2",
        "1.02",
        "1.9007199254740992",
        "1.2\n",
        "\u0661.\u0662",
        "9" * 99,
    ],
)
def test_anything_else_is_no_cursor(text: str) -> None:
    assert parse_cursor(text) is None


async def test_readers_who_come_together_share_the_reads_of_the_past_and_the_question_of_the_end() -> None:
    log = Log()
    for seq in range(1, 1200):
        log.add(1, seq)
    log.add(1, TERMINAL_SEQ, "end")
    hub, asked = hub_on(log), 0
    inner = log.last

    async def counted(task_id: UUID, tenant: str) -> LastEvent | None:
        nonlocal asked
        asked += 1
        return await inner(task_id, tenant)

    log.last = counted  # type: ignore[method-assign]
    seen = await asyncio.gather(*(collect(hub, log) for _ in range(40)))
    assert seen == [[*(f"1.{seq}" for seq in range(1, 1200)), "$"]] * 40
    assert log.reads <= 6, "a page is read once for all"
    assert asked <= 40 + 6, "once per reader at its door, and once per page"


async def test_a_page_from_before_the_ring_began_is_read_again_and_the_past_may_be_forgotten() -> None:
    log = Log()
    hub = hub_on(log)
    key = ReplayKey("t", "", TASK, BEGINNING)
    replay = await hub.replay(key)
    assert replay is not None
    assert (replay.last.cursor, list(replay.events)) == (BEGINNING, [])
    log.add(1, 1)
    log.add(1, TERMINAL_SEQ, "end")
    assert await hub.replay(key) is replay, "it is shared for a moment"
    assert await collect(hub, log) == ["1.1", "$"]
    hub.forget(TASK)
    fresh = await hub.replay(key)
    assert fresh is not None
    assert len(fresh.events) == 2
