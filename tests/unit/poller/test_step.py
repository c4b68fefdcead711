"""One step over one card."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest

from poller.domain.model import Answer, GatewayFailure, Polled, StepResult
from poller.domain.step import Stepper
from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError
from servicekit.ids import uuid7_time
from tests.support.polling import account

CLOCK = ManualClock()


class FakeGateway:
    def __init__(self, kinds: Sequence[str] = ("traffic", "network", "realname"), **failures: str) -> None:
        self.kinds = frozenset(kinds)
        self.failures = failures
        self.asked: list[str] = []

    async def fetch(self, kind: str, card_id: str) -> Answer:
        self.asked.append(kind)
        if kind in self.failures:
            raise GatewayFailure(self.failures[kind], "no", raw="raw", latency_ms=9)
        reading: dict[str, int | str] = {"total_bytes": 7} if kind == "traffic" else {"status": "unknown"}
        return Answer(observed_at=CLOCK.now(), reading=reading, raw="{}", latency_ms=3)


class Span:
    traceparent = "trace"

    def note(self, polled: Polled) -> None:
        """Nothing is traced."""


class Tracing:
    @contextmanager
    def poll(self, account_id: str, card_id: str, kind: str) -> Iterator[Span]:
        yield Span()


class Delivery:
    def __init__(self, error: ServiceError | None = None) -> None:
        self.error = error
        self.given: list[Polled] = []
        self.kept: list[Polled] = []

    async def observations(self, items: Sequence[Polled]) -> None:
        if self.error:
            raise self.error
        self.given += items

    async def records(self, items: Sequence[Polled]) -> None:
        if self.error:
            raise self.error
        self.kept += items


def stepper(delivery: Delivery | None = None) -> Stepper:
    return Stepper(delivery or Delivery(), Tracing(), CLOCK)


async def test_every_kind_is_asked_in_order_and_ids_carry_their_instant() -> None:
    gateway = FakeGateway()
    CLOCK.advance(0.123456)
    result = await stepper().ask(account(), gateway, "card")
    assert gateway.asked == ["traffic", "network", "realname"]
    for item in result.polled:
        assert item.observed_at - uuid7_time(item.observation_id) < timedelta(milliseconds=1)
    assert {item.traceparent for item in result.polled} == {"trace"}
    assert len({item.observation_id for item in result.polled}) == 3
    assert result.published_ms == int(CLOCK.now().timestamp() * 1000)


async def test_only_what_the_gateway_knows_is_asked() -> None:
    gateway = FakeGateway(kinds=("traffic",))
    await stepper().ask(account(), gateway, "card")
    assert gateway.asked == ["traffic"]


@pytest.mark.parametrize("kind", ["throttled", "unreachable", "timeout", "refused"])
async def test_a_failure_of_the_gateway_itself_ends_the_asking(kind: str) -> None:
    gateway = FakeGateway(traffic=kind)
    result = await stepper().ask(account(), gateway, "card")
    assert gateway.asked == ["traffic"]
    assert [(item.outcome, item.error, item.raw) for item in result.others] == [("failed", kind, "raw")]


async def test_a_failure_of_one_question_leaves_the_others() -> None:
    delivery = Delivery()
    one = stepper(delivery)
    result = await one.ask(account(), FakeGateway(network="malformed"), "card")
    await one.deliver(result)
    assert [item.kind for item in delivery.given] == ["traffic", "realname"]
    assert [(item.kind, item.outcome) for item in delivery.kept] == [("network", "failed")]


async def test_what_nobody_takes_is_an_error() -> None:
    one = stepper(Delivery(ServiceError(Reason.DEPENDENCY_AWAY, "away")))
    result = await one.ask(account(), FakeGateway(), "card")
    with pytest.raises(ServiceError):
        await one.deliver(result)


async def test_a_step_without_answers_hands_on_nothing() -> None:
    delivery = Delivery(ServiceError(Reason.DEPENDENCY_AWAY, "away"))
    await stepper(delivery).deliver(StepResult())
    assert StepResult().published_ms == -1
