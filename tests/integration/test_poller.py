"""poller with the gateway simulator, a real Valkey, a real lease service and the development broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from devengines.nsqd import DevbrokerProcess
from lease_service.settings import Settings as LeaseSettings
from poller.app import build
from poller.store import keys
from servicekit.clock import SystemClock
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.nsq import Consumer, Message, NsqAdmin
from servicekit.settings import NsqSettings
from sluicegate.lease.v1 import lease_pb2, lease_pb2_grpc
from sluicegate.poller.v1 import poller_pb2 as wire
from sluicegate.poller.v1 import poller_pb2_grpc
from sluicegate_client.messages import CARD_COLLECTION, CARD_INGEST, CollectionMessage, ObservationMessage
from tests.support.gateways import RunningSimulator, running_simulator
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.polling import FakeIngest, poller_settings, serving
from tests.support.running import running
from tests.support.waiting import eventually

KINDS = {"traffic", "network", "realname"}


@dataclass
class World:
    """Everything around a poller."""

    simulator: RunningSimulator
    ingest: FakeIngest
    nsq: NsqSettings
    collected: list[CollectionMessage]
    observed: list[ObservationMessage]
    settings: dict[str, Any]

    @asynccontextmanager
    async def poller(self, **variables: str) -> AsyncIterator[Any]:
        """Run a poller; gives its stub."""
        settings = poller_settings(**self.settings, **variables)
        async with running(build(settings)) as address:
            channel = Channel(address, name="poller")
            yield poller_pb2_grpc.PollerServiceStub(channel.raw)
            await channel.stop()

    def add(self, account_id: str, cards: int, **fields: Any) -> list[str]:
        """Make ingest know an account and its first cards."""
        self.ingest.add_account(self.simulator.accounts[account_id], **fields)
        chosen = self.simulator.cards_of(account_id)[:cards]
        for card_id in chosen:
            self.ingest.add_card(card_id, account_id)
        return chosen


@pytest.fixture
def lease_service_settings(database: str, redis_url: str) -> LeaseSettings:
    return lease_settings(database, redis_url)


@pytest.fixture
async def world(
    database: str,
    redis_url: str,
    lease_service_settings: LeaseSettings,
    devbroker_server: DevbrokerProcess,
) -> AsyncIterator[World]:
    nsq = NsqSettings(nsqd_tcp=devbroker_server.tcp_address, nsqd_http=devbroker_server.http_address)
    admin = NsqAdmin(nsq)
    for topic, channel in ((CARD_INGEST, "ingest_service"), (CARD_COLLECTION, "collection_writer")):
        if topic in await admin.stats():
            await admin.delete_topic(topic)
        await admin.create(topic, channel)
    async with AsyncExitStack() as stack:
        simulator = await stack.enter_async_context(running_simulator(cards=400))
        ingest = FakeIngest()
        ingest_address = await stack.enter_async_context(serving(ingest))
        lease = await stack.enter_async_context(running_lease_service(lease_service_settings))
        await set_policies(lease, simulator)
        yield World(
            simulator,
            ingest,
            nsq,
            [],
            [],
            {
                "database": database,
                "redis_url": redis_url,
                "nsq": (nsq.nsqd_tcp, nsq.nsqd_http),
                "ingest": ingest_address,
                "lease": lease,
            },
        )


async def set_policies(address: str, simulator: RunningSimulator) -> None:
    channel = Channel(address, name="lease_service")
    stub: Any = lease_pb2_grpc.LeaseServiceStub(channel.raw)
    for demo in simulator.accounts.values():
        await stub.SetPolicy(
            lease_pb2.SetPolicyRequest(
                pool=f"gateway:{demo.account_id}", scope="poll", capacity=demo.poll_limit, actor="test"
            )
        )
    await channel.stop()


@asynccontextmanager
async def consuming(world: World) -> AsyncIterator[None]:
    """Take what is published into the world's lists."""

    async def observed(message: Message) -> None:
        world.observed.append(ObservationMessage.decode(message.body))
        await message.finish()

    async def collected(message: Message) -> None:
        world.collected.append(CollectionMessage.decode(message.body))
        await message.finish()

    consumers = [
        Consumer(world.nsq, CARD_INGEST, "ingest_service", observed, 100, clock=SystemClock()),
        Consumer(world.nsq, CARD_COLLECTION, "collection_writer", collected, 100, clock=SystemClock()),
    ]
    for consumer in consumers:
        await consumer.start()
    try:
        yield
    finally:
        for consumer in consumers:
            await consumer.drain()
            await consumer.stop()


async def set_mode(stub: Any, mode: int) -> None:
    await stub.SetMode(wire.SetModeRequest(mode=mode, actor="test", reason="because"))


async def test_every_card_is_polled_for_every_kind_and_applied_in_batches(world: World) -> None:
    cards = [*world.add("harbor", 60), *world.add("fjord", 30)]
    async with world.poller():
        await eventually(
            lambda: all(set(world.ingest.kinds_applied(card)) == KINDS for card in cards[:60]), within=30
        )
        await eventually(lambda: all(world.ingest.kinds_applied(card) for card in cards), within=30)
    assert max(world.ingest.apply_sizes) <= 200
    assert all(item.source == "poll" and item.account_id for item in world.ingest.applied.values())


async def test_async_mode_publishes_and_failures_become_collection_records(world: World) -> None:
    cards = world.add("harbor", 20)
    async with consuming(world), world.poller() as stub:
        await set_mode(stub, wire.INGEST_MODE_ASYNC)
        await eventually(lambda: {item.card_id for item in world.observed} == set(cards), within=30)
        await world.simulator.faults(account_id="harbor", error_rate=1.0)
        await eventually(lambda: any(item.outcome == "failed" for item in world.collected), within=30)
        await world.simulator.faults(account_id="harbor", error_rate=0.0, empty_rate=1.0)
        await eventually(lambda: any(item.outcome == "empty" for item in world.collected), within=30)
        answer = await stub.GetMode(wire.GetModeRequest())
    assert (answer.mode, answer.actor) == (wire.INGEST_MODE_ASYNC, "test")
    failed = next(item for item in world.collected if item.outcome == "failed")
    assert failed.error == "server_error"
    assert all(item.published_at is not None for item in world.observed)


async def test_without_a_broker_everything_goes_by_rpc_and_switching_back_works(
    world: World, tmp_path: Path
) -> None:
    """The broker dies and comes back, and the mode is switched both ways while polling goes on."""
    cards = world.add("harbor", 10)
    broker = DevbrokerProcess(tmp_path / "own")
    await asyncio.to_thread(broker.start)
    world.settings["nsq"] = (broker.tcp_address, broker.http_address)
    world.nsq = NsqSettings(nsqd_tcp=broker.tcp_address, nsqd_http=broker.http_address)
    try:
        async with consuming(world), world.poller() as stub:
            await set_mode(stub, wire.INGEST_MODE_ASYNC)
            await eventually(lambda: {item.card_id for item in world.observed} == set(cards), within=30)
            await asyncio.to_thread(broker.kill)
            world.ingest.applied.clear()
            await eventually(lambda: all(world.ingest.kinds_applied(card) for card in cards), within=30)
            await world.simulator.faults(account_id="harbor", empty_rate=1.0)
            await eventually(lambda: world.ingest.records, within=30)
            assert {item.outcome for item in world.ingest.records.values()} == {"empty"}
            backlog = await stub.GetBacklog(wire.GetBacklogRequest())
            assert not backlog.broker_known
            await world.simulator.faults(account_id="harbor", empty_rate=0.0)
            await asyncio.to_thread(broker.start)
            world.observed.clear()
            await eventually(lambda: {item.card_id for item in world.observed} == set(cards), within=30)
            answer = await stub.SetMode(wire.SetModeRequest(mode=wire.INGEST_MODE_SYNC, actor="test"))
            assert answer.previous == wire.INGEST_MODE_ASYNC
            world.ingest.applied.clear()
            await eventually(lambda: all(world.ingest.kinds_applied(card) for card in cards), within=30)
    finally:
        await asyncio.to_thread(broker.stop)


async def test_limits_are_never_exceeded_as_the_gateway_sees_it_with_two_pollers(world: World) -> None:
    world.add("harbor", 150)
    world.add("mesa", 60)
    await world.simulator.faults(latency_ms=20.0)
    async with world.poller(), world.poller():
        await eventually(lambda: len(world.ingest.applied) > 900, within=60)
    for account_id in ("harbor", "mesa"):
        lane = (await world.simulator.stats(account_id))["lanes"]["poll"]
        assert lane["over_limit"] == 0
        assert 0 < lane["max_in_flight"] <= lane["limit"]


async def test_throttled_accounts_rest_as_long_as_they_are_asked_to(world: World) -> None:
    world.add("harbor", 30)
    await world.simulator.faults(account_id="harbor", throttle_rate=1.0, retry_after_seconds=2)
    async with world.poller() as stub:

        async def resting() -> bool:
            answer = await stub.GetStatus(wire.GetStatusRequest())
            return any("pause" in account.blocked_reason for account in answer.accounts)

        await eventually(resting, within=20)
        await world.simulator.faults(account_id="harbor", throttle_rate=0.0)
        await eventually(lambda: len(world.ingest.applied) > 30, within=30)
    throttled = (await world.simulator.stats("harbor"))["failures"]["429"]
    assert throttled <= 3 * 30


async def test_a_gateway_that_is_down_is_asked_less_and_less_and_comes_back(world: World) -> None:
    cards = world.add("harbor", 30)
    await world.simulator.faults(account_id="harbor", outage=True)
    async with consuming(world), world.poller() as stub:

        async def resting() -> bool:
            answer = await stub.GetStatus(wire.GetStatusRequest())
            return any("does not work" in account.blocked_reason for account in answer.accounts)

        await eventually(resting, within=20)
        await world.simulator.faults(account_id="harbor", outage=False)
        await eventually(lambda: all(world.ingest.kinds_applied(card) for card in cards), within=60)
        await eventually(lambda: world.collected, within=10)
    assert {item.error for item in world.collected} == {"server_error"}


async def test_ingest_away_in_sync_mode_means_the_step_is_made_again(world: World, redis_url: str) -> None:
    cards = world.add("harbor", 10)
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        for card in cards:  # as ingest_service leaves them there
            facts = {"account_id": "harbor", "lifecycle": "active", "polling_enabled": "1"}
            await client.hset(keys.card(card), mapping=facts)
    async with world.poller(step__retry_after="200ms") as stub:
        await eventually(lambda: all(world.ingest.kinds_applied(card) for card in cards), within=30)
        world.ingest.away = True
        world.ingest.applied.clear()

        async def failures() -> int:
            answer = await stub.GetStatus(wire.GetStatusRequest())
            return sum(account.failure_count for account in answer.accounts)

        await eventually(failures, within=20)
        assert not world.ingest.applied
        world.ingest.away = False
        await eventually(lambda: all(world.ingest.kinds_applied(card) for card in cards), within=30)


async def test_cards_that_are_switched_off_are_asked_no_more(world: World, redis_url: str) -> None:
    on, off = world.add("harbor", 2)
    world.ingest.add_card(off, "harbor", polling_enabled=False)
    async with world.poller() as stub:
        await eventually(lambda: len(world.ingest.kinds_applied(on)) > 6, within=30)
        assert world.ingest.kinds_applied(off) == []
        world.ingest.add_card(on, "harbor", lifecycle="retired")

        async def scheduled() -> int:
            answer = await stub.GetStatus(wire.GetStatusRequest())
            return sum(account.card_count for account in answer.accounts)

        async def nothing_scheduled() -> bool:
            return await scheduled() == 0

        await eventually(nothing_scheduled, within=20)


async def test_a_manual_poll_is_applied_before_it_answers(world: World) -> None:
    [card] = world.add("harbor", 1, poll_interval_s=86_400)
    async with world.poller() as stub:
        await set_mode(stub, wire.INGEST_MODE_ASYNC)

        async def known() -> bool:
            return bool((await stub.GetStatus(wire.GetStatusRequest())).accounts)

        await eventually(known)
        answer = await stub.PollCard(wire.PollCardRequest(card_id=card))
        assert {step.kind for step in answer.steps} == KINDS
        assert {step.outcome for step in answer.steps} == {"applied"}
        assert {step.observation_id for step in answer.steps} == set(world.ingest.applied)
        await world.simulator.faults(account_id="harbor", error_rate=1.0)
        answer = await stub.PollCard(wire.PollCardRequest(card_id=card))
        assert {step.outcome for step in answer.steps} == {"failed"}
        with pytest.raises(ServiceError) as caught:
            await stub.PollCard(wire.PollCardRequest(card_id="nobody"))
        assert caught.value.reason is Reason.NOT_FOUND
        backlog = await stub.GetBacklog(wire.GetBacklogRequest())
        assert backlog.broker_known
        assert not backlog.paused
