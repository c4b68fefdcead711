"""Lanes and the applier: batching, collapsing, holding, and what every failure becomes. No database."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import date, datetime
from typing import Any

import pytest

from ingest_service.domain.applying import Applier, Deferred, FailureKind, StoreError
from ingest_service.domain.deciding import Window
from ingest_service.domain.lanes import MOST_PER_BATCH, Lanes
from ingest_service.domain.observations import Observation, Outcome, Result
from ingest_service.domain.state import Changes
from servicekit.errors import Reason, ServiceError
from tests.support.ingest import NOW, FixedClock, observation

Fail = Callable[[Sequence[Observation]], StoreError | None]


class FakeStore:
    """Applies in memory; a test says when it fails."""

    def __init__(self) -> None:
        self.applied: set[Any] = set()
        self.batches: list[int] = []
        self.days: list[date] = []
        self.fail: Fail = lambda _batch: None
        self.open = asyncio.Event()
        self.open.set()

    async def apply(self, observations: Sequence[Observation], *, now: datetime, window: Window) -> Changes:
        await self.open.wait()
        self.batches.append(len(observations))
        if (error := self.fail(observations)) is not None:
            raise error
        changes = Changes()
        for item in observations:
            again = item.observation_id in self.applied
            outcome = Outcome.DUPLICATE if again else Outcome.APPLIED
            changes.results.append(
                Result(
                    observation=item, outcome=outcome, account_id="acme", increment_bytes=0 if again else 1
                )
            )
        self.applied.update(item.observation_id for item in observations)
        return changes

    async def create_partition(self, day: date) -> None:
        self.days.append(day)


class FakeAfter:
    def __init__(self) -> None:
        self.handed_on: list[Any] = []
        self.away = 0

    async def run(self, changes: Changes, *, started_at: datetime) -> None:
        if self.away:
            self.away -= 1
            raise ServiceError(Reason.DEPENDENCY_AWAY, "nobody takes the records")
        self.handed_on += [result.observation.observation_id for result in changes.results]


class FakeGate:
    def __init__(self) -> None:
        self.trips: list[BaseException] = []
        self.closed = asyncio.Event()
        self.closed.set()

    async def trip(self, error: BaseException) -> None:
        self.trips.append(error)

    async def wait_closed(self) -> None:
        await self.closed.wait()

    @property
    def is_open(self) -> bool:
        return not self.closed.is_set()


class Bench:
    def __init__(self, count: int = 1) -> None:
        self.store, self.after, self.gate = FakeStore(), FakeAfter(), FakeGate()
        applier = Applier(self.store, self.after, clock=FixedClock(), window=Window())
        self.lanes = Lanes(
            applier, self.gate, count=count, most_waiting=1000, scope=lambda _lane, _batch: nullcontext()
        )


@pytest.fixture
async def bench() -> Any:
    made = Bench()
    await made.lanes.start()
    yield made
    await made.lanes.stop()


def failing(kind: FailureKind, times: int = 1_000_000, *, card_id: str = "") -> Fail:
    left = [times]

    def fail(batch: Sequence[Observation]) -> StoreError | None:
        if (card_id and all(item.card_id != card_id for item in batch)) or left[0] <= 0:
            return None
        left[0] -= 1
        return StoreError(kind, "made up", sqlstate="XX000")

    return fail


async def test_a_lane_takes_what_is_in_hand_and_at_most_200(bench: Bench) -> None:
    bench.store.open.clear()
    calls = [asyncio.ensure_future(bench.lanes.apply(observation(NOW), hold=True)) for _ in range(450)]
    await asyncio.sleep(0)
    bench.store.open.set()
    await asyncio.gather(*calls)
    assert sum(bench.store.batches) == 450
    assert max(bench.store.batches) == MOST_PER_BATCH
    assert bench.lanes.unanswered == 0


async def test_a_single_observation_does_not_linger(bench: Bench) -> None:
    answer = await bench.lanes.apply(observation(NOW), hold=True)
    assert isinstance(answer, Result)
    assert bench.store.batches == [1]


async def test_equal_ids_in_hand_are_collapsed_and_one_is_applied(bench: Bench) -> None:
    bench.store.open.clear()
    item = observation(NOW)
    blocker = asyncio.ensure_future(bench.lanes.apply(observation(NOW), hold=True))
    await asyncio.sleep(0)
    calls = [asyncio.ensure_future(bench.lanes.apply(item, hold=True)) for _ in range(3)]
    await asyncio.sleep(0)
    bench.store.open.set()
    answers = await asyncio.gather(blocker, *calls)
    outcomes = [answer.outcome for answer in answers[1:] if isinstance(answer, Result)]
    assert outcomes == [Outcome.APPLIED, Outcome.DUPLICATE, Outcome.DUPLICATE]
    assert [answer.increment_bytes for answer in answers[1:] if isinstance(answer, Result)] == [1, 0, 0]


async def test_one_card_always_uses_one_lane() -> None:
    made = Bench(count=4)
    made.store.open.clear()
    await made.lanes.start()
    calls = [asyncio.ensure_future(made.lanes.apply(observation(NOW, "c7"), hold=True)) for _ in range(50)]
    await asyncio.sleep(0)
    made.store.open.set()
    await asyncio.gather(*calls)
    assert made.store.batches == [50]
    await made.lanes.stop()


async def test_while_the_database_is_away_patient_work_is_held_and_impatient_refused(bench: Bench) -> None:
    bench.store.fail = failing(FailureKind.AWAY, 1)
    bench.gate.closed.clear()
    patient = asyncio.ensure_future(bench.lanes.apply(observation(NOW), hold=True))
    await asyncio.sleep(0.01)
    with pytest.raises(ServiceError) as caught:
        await bench.lanes.apply(observation(NOW), hold=False)
    assert caught.value.reason is Reason.DEPENDENCY_AWAY
    assert not patient.done()
    assert len(bench.gate.trips) == 1
    bench.gate.closed.set()
    answer = await patient
    assert isinstance(answer, Result)
    assert answer.outcome is Outcome.APPLIED


async def test_records_that_nobody_takes_are_handed_on_again_until_somebody_does(bench: Bench) -> None:
    """As after a crash between commit and FIN: the repeat is a duplicate, and its record goes out."""
    bench.after.away = 2
    item = observation(NOW)
    answer = await bench.lanes.apply(item, hold=True)
    assert isinstance(answer, Result)
    assert answer.outcome is Outcome.DUPLICATE
    assert bench.after.handed_on == [item.observation_id]
    assert len(bench.gate.trips) == 2


async def test_serialization_failures_are_retried_at_once_three_times(bench: Bench) -> None:
    bench.store.fail = failing(FailureKind.RETRY_NOW, 3)
    answer = await bench.lanes.apply(observation(NOW), hold=True)
    assert isinstance(answer, Result)
    bench.store.fail = failing(FailureKind.RETRY_NOW)
    assert isinstance(await bench.lanes.apply(observation(NOW), hold=True), Deferred)
    assert len(bench.store.batches) == 4 + 4


@pytest.mark.parametrize(
    ("kind", "answer_type"), [(FailureKind.RETRY_LATER, Deferred), (FailureKind.UNKNOWN, Deferred)]
)
async def test_failures_that_last_are_deferred(bench: Bench, kind: FailureKind, answer_type: type) -> None:
    bench.store.fail = failing(kind)
    assert isinstance(await bench.lanes.apply(observation(NOW), hold=True), answer_type)


async def test_a_slow_batch_is_halved_down_to_the_slow_card(bench: Bench) -> None:
    bench.store.fail = failing(FailureKind.RETRY_LATER, card_id="c3")
    bench.store.open.clear()
    calls = [asyncio.ensure_future(bench.lanes.apply(observation(NOW, f"c{n}"), hold=True)) for n in range(8)]
    await asyncio.sleep(0)
    bench.store.open.set()
    answers = await asyncio.gather(*calls)
    assert [isinstance(answer, Deferred) for answer in answers] == [n == 3 for n in range(8)]


async def test_a_missing_partition_is_created_once_and_then_quarantined(bench: Bench) -> None:
    bench.store.fail = failing(FailureKind.NO_PARTITION, 1)
    answer = await bench.lanes.apply(observation(NOW), hold=True)
    assert isinstance(answer, Result)
    assert (answer.outcome, bench.store.days) == (Outcome.APPLIED, [NOW.date()])
    bench.store.fail = failing(FailureKind.NO_PARTITION)
    answer = await bench.lanes.apply(observation(NOW), hold=True)
    assert isinstance(answer, Result)
    assert answer.outcome is Outcome.QUARANTINED


async def test_draining_finishes_what_is_held_and_refuses_more(bench: Bench) -> None:
    bench.store.open.clear()
    held = asyncio.ensure_future(bench.lanes.apply(observation(NOW), hold=True))
    await asyncio.sleep(0)
    draining = asyncio.ensure_future(bench.lanes.drain())
    await asyncio.sleep(0)
    with pytest.raises(ServiceError):
        await bench.lanes.apply(observation(NOW), hold=True)
    assert not draining.done()
    bench.store.open.set()
    await draining
    assert held.done()


async def test_too_much_waiting_is_refused(bench: Bench) -> None:
    bench.store.open.clear()
    calls = [asyncio.ensure_future(bench.lanes.apply(observation(NOW), hold=True)) for _ in range(1000)]
    await asyncio.sleep(0)
    with pytest.raises(ServiceError) as caught:
        await bench.lanes.apply(observation(NOW), hold=False)
    assert caught.value.reason is Reason.BACKLOG_FULL
    bench.store.open.set()
    await asyncio.gather(*calls)


async def test_an_abandoned_caller_costs_nobody_else(bench: Bench) -> None:
    bench.store.open.clear()
    first = asyncio.ensure_future(bench.lanes.apply(observation(NOW), hold=True))
    second = asyncio.ensure_future(bench.lanes.apply(observation(NOW), hold=False))
    await asyncio.sleep(0)
    second.cancel()
    bench.store.open.set()
    assert isinstance(await first, Result)
    assert bench.lanes.unanswered == 0


async def test_a_bug_costs_its_batch_and_never_the_lane(bench: Bench) -> None:
    def bug(_batch: Sequence[Observation]) -> StoreError | None:
        raise KeyError("bug")

    bench.store.fail = bug
    with pytest.raises(KeyError):
        await bench.lanes.apply(observation(NOW), hold=True)
    bench.store.fail = lambda _batch: None
    assert isinstance(await bench.lanes.apply(observation(NOW), hold=True), Result)
