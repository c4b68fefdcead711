"""The rules of polling without any engine."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from pydantic import ValidationError

from poller.domain.backlog import BacklogLimits, ChannelBacklog, judge
from poller.domain.facts import FactReader
from poller.domain.mode import ModeCache
from poller.domain.model import CardFacts, GatewayFailure, Mode, StepResult
from poller.domain.resting import Resting
from poller.settings import Settings
from servicekit.clock import ManualClock
from servicekit.errors import Reason, ServiceError


def failed(kind: str, retry_after: timedelta | None = None) -> StepResult:
    return StepResult(failures=[GatewayFailure(kind, "no", retry_after=retry_after)])


def test_a_throttled_account_rests_as_long_as_it_is_asked_to() -> None:
    resting = Resting(ManualClock())
    assert resting.after(failed("throttled", timedelta(seconds=7))) == timedelta(seconds=7)
    assert resting.after(failed("throttled")) == timedelta(seconds=5)
    assert resting.now


def test_a_broken_gateway_is_left_alone_longer_and_longer() -> None:
    clock = ManualClock()
    resting = Resting(clock)
    assert [resting.after(failed("unreachable")) for _ in range(4)] == [None] * 4
    rests = []
    for _ in range(8):
        rest = resting.after(failed("timeout"))
        assert rest is not None
        assert resting.after(failed("timeout")) is None, "a step under way says nothing new"
        rests.append(rest.total_seconds())
        clock.advance(rest.total_seconds())
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    assert resting.after(StepResult()) is None
    assert resting.after(failed("server_error")) is None
    assert resting.reason == ""


def test_an_unknown_card_says_nothing_about_the_gateway() -> None:
    resting = Resting(ManualClock())
    assert [resting.after(failed("not_found")) for _ in range(20)] == [None] * 20


async def test_the_mode_is_cached_for_5_s_and_survives_a_store_that_is_away() -> None:
    clock = ManualClock()
    stored: list[Mode | Exception] = [Mode.ASYNC]
    reads = []
    failures: list[Exception] = []

    async def read() -> Mode:
        reads.append(clock.monotonic())
        if isinstance(stored[0], Exception):
            raise stored[0]
        return stored[0]

    cache = ModeCache(read, clock, failures.append)
    assert [await cache.get() for _ in range(3)] == [Mode.ASYNC] * 3
    stored[0] = OSError("away")
    clock.advance(4.9)
    assert await cache.get() is Mode.ASYNC
    assert len(reads) == 1
    clock.advance(0.2)
    assert [await cache.get() for _ in range(3)] == [Mode.ASYNC] * 3
    assert (len(reads), len(failures)) == (2, 1)
    stored[0] = Mode.SYNC
    clock.advance(5.1)
    assert await cache.get() is Mode.SYNC
    cache.put(Mode.ASYNC)
    assert await cache.get() is Mode.ASYNC


async def test_the_mode_is_sync_while_it_was_never_read() -> None:
    async def read() -> Mode:
        raise OSError("away")

    assert await ModeCache(read, ManualClock(), lambda _: None).get() is Mode.SYNC


def waiting(topic: str, channel: str, depth: int) -> ChannelBacklog:
    return ChannelBacklog(topic=topic, channel=channel, depth=depth, in_flight=1, deferred=1)


@pytest.mark.parametrize(
    ("depth", "alert", "pause"),
    [(10, False, False), (240, True, False), (300, True, None), (499, True, True), (900, True, True)],
)
def test_the_backlog_is_judged_by_its_deepest_topic(*, depth: int, alert: bool, pause: bool | None) -> None:
    verdict = judge([waiting("a", "x", depth), waiting("b", "x", 5)], BacklogLimits(200, 500))
    assert (verdict.topic, verdict.deepest, verdict.alert, verdict.pause) == ("a", depth + 2, alert, pause)


class Cache:
    async def read(self, card_ids: Sequence[str]) -> dict[str, CardFacts]:
        return {card_id: facts(card_id) for card_id in card_ids if card_id.startswith("cached")}


class Owner:
    def __init__(self, error: ServiceError | None = None) -> None:
        self.error = error

    async def facts(self, card_ids: Sequence[str]) -> dict[str, CardFacts]:
        if self.error:
            raise self.error
        return {card_id: facts(card_id) for card_id in card_ids if card_id != "unknown"}


def facts(card_id: str) -> CardFacts:
    return CardFacts(card_id=card_id, account_id="acme", lifecycle="active", polling_enabled=True)


async def test_facts_come_from_the_cache_and_else_from_their_owner() -> None:
    read = await FactReader(Cache(), Owner(), lambda _: None).read(["cached", "other", "unknown"])
    assert set(read.found) == {"cached", "other"}
    assert read.undecided == set()


async def test_cards_whose_facts_can_not_be_had_are_undecided() -> None:
    told: list[ServiceError] = []
    owner = Owner(ServiceError(Reason.DEPENDENCY_AWAY, "away"))
    read = await FactReader(Cache(), owner, told.append).read(["cached", "other"])
    assert set(read.found) == {"cached"}
    assert read.undecided == {"other"}
    assert len(told) == 1


def test_a_step_has_to_end_before_its_claim() -> None:
    with pytest.raises(ValidationError, match="step_timeout"):
        Settings.from_environment({"POLLER_STEP__STEP_TIMEOUT": "2m"})


def test_credentials_are_read_and_never_shown() -> None:
    settings = Settings.from_environment({"POLLER_CREDENTIALS": '{"acme": "canary-secret"}'})
    assert settings.credentials["acme"].get_secret_value() == "canary-secret"
    assert "canary" not in settings.model_dump_json()
