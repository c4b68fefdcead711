from collections.abc import Mapping, Sequence
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicekit.clock import ManualClock
from task_api.domain.low_water import BEGINNING, FULL_SECONDS, LowWater
from task_api.domain.turns import PRIORITY_TURNS, TURN, Given, Pair, Turns


class Book:
    """What the tables hold."""

    def __init__(self) -> None:
        self.lasts: dict[Pair, int] = {}
        self.marks: dict[str, int] = {}
        self.shares: dict[str, int] = {}
        self.fail = False

    async def read(self, pairs: Sequence[Pair]) -> Mapping[Pair, int]:
        return {pair: self.lasts[pair] for pair in pairs if pair in self.lasts}

    async def add(self, given: Sequence[Given]) -> Mapping[Pair, int]:
        if self.fail:
            raise ConnectionError
        for item in given:
            self.lasts[item.pair] = max(item.last, self.lasts.get(item.pair, 0) + item.added)
        return {item.pair: self.lasts[item.pair] for item in given}

    async def move_marks(self, marks: Mapping[str, int]) -> Mapping[str, int]:
        for channel, mark in marks.items():
            self.marks[channel] = max(mark, self.marks.get(channel, 0))
        return dict(self.marks)

    async def weights(self) -> Mapping[str, int]:
        return self.shares

    async def drop(self) -> None: ...


class Queue:
    """A channel's queue in memory."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.waiting: list[tuple[int, int, str]] = []
        self.count = 0

    async def put(self, tenant: str, count: int, priority: int = 0) -> None:
        for place in await self.turns.place([(Pair("c", tenant), priority)] * count):
            self.waiting.append((place, self.count, tenant))
            self.count += 1

    def take(self, count: int = 1) -> list[str]:
        self.waiting.sort()
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        if taken:
            self.turns.reached("c", taken[-1][0])
        return [tenant for _, _, tenant in taken]


async def test_a_noisy_tenant_pushes_back_only_itself() -> None:
    queue = Queue(Turns(Book()))
    await queue.put("noisy", 100_000)
    queue.take(500)
    light = [f"light{number}" for number in range(99)]
    for tenant in light:
        await queue.put(tenant, 3)
    started = queue.take(400)
    # Each round of turns starts one task of everybody.
    for number in range(3):
        last_place = max(
            [place for place, tenant in enumerate(started) if tenant == name][number] for name in light
        )
        assert last_place < 100 * (number + 1) + 1
    assert started.count("noisy") == 400 - 3 * 99


async def test_an_idle_tenant_saves_nothing_up_and_owes_nothing() -> None:
    queue = Queue(Turns(Book()))
    await queue.put("a", 1)
    await queue.put("b", 1000)
    queue.take(901)
    await queue.put("a", 100)
    started = queue.take(100)
    assert abs(started.count("a") - started.count("b")) <= 1


@pytest.mark.parametrize(("weight", "share"), [(200, 2 / 3), (50, 1 / 3), (1000, 10 / 11)])
async def test_weights_are_shares(weight: int, share: float) -> None:
    book = Book()
    book.shares = {"heavy": weight}
    queue = Queue(Turns(book))
    await queue.put("heavy", 2000)
    await queue.put("ordinary", 2000)
    assert abs(queue.take(1000).count("heavy") / 1000 - share) < 0.01


async def test_a_priority_is_worth_some_turns_and_no_more() -> None:
    queue = Queue(Turns(Book()))
    await queue.put("t", PRIORITY_TURNS + 5)
    queue.waiting = [(place, number, "old") for place, number, _ in queue.waiting]
    await queue.put("t", 1, priority=1)
    started = queue.take(100)
    assert started.index("t") == 6  # those before its credit go first: a priority ages


async def test_what_two_processes_give_adds_up() -> None:
    book = Book()
    one, two = Turns(book), Turns(book)
    pair = Pair("c", "t")
    await one.place([(pair, 0)] * 5)
    await two.place([(pair, 0)] * 3)
    await one.sync()
    await two.sync()
    await one.place([(pair, 0)])
    await one.sync()
    assert book.lasts[pair] == 9 * TURN
    assert await two.place([(pair, 0)]) == [8 * TURN]  # learns of others' with its own next sync
    await two.sync()
    assert await two.place([(pair, 0)]) == [10 * TURN]


async def test_what_could_not_be_stored_is_stored_later_once() -> None:
    book = Book()
    turns = Turns(book)
    await turns.place([(Pair("c", "t"), 0)] * 4)
    book.fail = True
    with pytest.raises(ConnectionError):
        await turns.sync()
    book.fail = False
    await turns.sync()
    await turns.sync()
    assert book.lasts == {Pair("c", "t"): 4 * TURN}


async def test_a_process_that_starts_goes_on_where_others_are() -> None:
    book = Book()
    old = Turns(book)
    await old.place([(Pair("c", "t"), 0)] * 4)
    old.reached("c", 2 * TURN)
    await old.sync()
    new = Turns(book)
    assert await new.place([(Pair("c", "t"), 0), (Pair("c", "u"), 0)]) == [4 * TURN, 2 * TURN]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), min_size=1, max_size=40))
async def test_a_tenants_own_tasks_keep_their_order(puts: list[tuple[str, int]]) -> None:
    turns = Turns(Book())
    places: list[tuple[str, int]] = []
    for tenant, count in puts:
        given_places = await turns.place([(Pair("c", tenant), 0)] * count)
        places += [(tenant, place) for place in given_places]
        turns.reached("c", min(place for _, place in places))
    for _, own in groupby(sorted(places, key=lambda item: item[0]), key=lambda item: item[0]):
        mine = [place for _, place in own]
        assert mine == sorted(mine)
        assert len(set(mine)) == len(mine)


def test_a_hint_leads_past_what_was_claimed_and_is_forgotten_in_time() -> None:
    clock = ManualClock()
    low = LowWater(clock)
    looker = ("c", (("k", 1),))
    low.claimed(looker, BEGINNING, 70)
    assert low.start(looker) == 70
    low.claimed(looker, 70, 90)
    low.came("d", 5)
    assert low.start(looker) == 90
    low.came("c", 20)
    assert low.start(looker) == 20
    assert low.start(("c", (("other", 1),))) == BEGINNING
    clock.advance(FULL_SECONDS)
    assert low.start(looker) == BEGINNING
    low.claimed(looker, BEGINNING, 95)
    low.forget("c")
    assert low.start(looker) == BEGINNING
