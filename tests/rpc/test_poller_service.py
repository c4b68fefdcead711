"""PollerService over gRPC: codes, audit, and what is said while others are away."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from poller.app import build
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from sluicegate.ingest.v1 import ingest_pb2
from sluicegate.poller.v1 import poller_pb2 as wire
from sluicegate.poller.v1 import poller_pb2_grpc
from tests.support.polling import FakeIngest, poller_settings, serving
from tests.support.running import running
from tests.support.waiting import eventually

NOWHERE = ("127.0.0.1:1", "127.0.0.1:1")


@pytest.fixture
async def ingest() -> FakeIngest:
    fake = FakeIngest()
    fake.accounts["acme"] = ingest_pb2.Account(
        account_id="acme",
        gateway_kind="generic_http",
        gateway_url="http://127.0.0.1:1",
        credential_name="acme_key",
        reset_day=1,
        time_zone="UTC",
        poll_limit=2,
        poll_interval_s=3600,
        enabled=True,
    )
    fake.add_card("card-1", "acme")
    fake.add_card("card-2", "elsewhere")
    fake.add_card("card-3", "acme", lifecycle="retired")
    return fake


@pytest.fixture
async def stub(database: str, redis_url: str, ingest: FakeIngest) -> AsyncIterator[Any]:
    """A poller without broker, lease service and credentials."""
    async with serving(ingest) as address:
        settings = poller_settings(
            database=database,
            redis_url=redis_url,
            nsq=NOWHERE,
            ingest=address,
            lease="127.0.0.1:1",
            step__manual_wait="200ms",
        )
        async with running(build(settings)) as poller:
            channel = Channel(poller, name="poller")
            one: Any = poller_pb2_grpc.PollerServiceStub(channel.raw)

            async def scheduled() -> bool:
                answer = await one.GetStatus(wire.GetStatusRequest())
                return [item.card_count for item in answer.accounts] == [1]

            await eventually(scheduled)
            yield one
            await channel.stop()


async def error_of(call: Any) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await call
    return caught.value


async def test_the_mode_is_sync_until_it_is_set_and_every_change_is_audited(stub: Any, database: str) -> None:
    assert (await stub.GetMode(wire.GetModeRequest())).mode == wire.INGEST_MODE_SYNC
    for mode, previous in (
        (wire.INGEST_MODE_ASYNC, wire.INGEST_MODE_SYNC),
        (wire.INGEST_MODE_ASYNC, wire.INGEST_MODE_ASYNC),
        (wire.INGEST_MODE_SYNC, wire.INGEST_MODE_ASYNC),
    ):
        answer = await stub.SetMode(wire.SetModeRequest(mode=mode, actor="ann", reason="trial"))
        assert (answer.mode, answer.previous) == (mode, previous)
    stored = await stub.GetMode(wire.GetModeRequest())
    assert (stored.mode, stored.actor) == (wire.INGEST_MODE_SYNC, "ann")
    connection = await asyncpg.connect(database)
    audit = await connection.fetch("SELECT previous, value, actor, reason FROM poll_audit ORDER BY audit_id")
    await connection.close()
    assert [tuple(row) for row in audit] == [
        ("sync", "async", "ann", "trial"),
        ("async", "async", "ann", "trial"),
        ("async", "sync", "ann", "trial"),
    ]


async def test_a_mode_without_name_or_actor_is_refused(stub: Any) -> None:
    for request in (wire.SetModeRequest(actor="ann"), wire.SetModeRequest(mode=wire.INGEST_MODE_SYNC)):
        assert (await error_of(stub.SetMode(request))).reason is Reason.INVALID_FIELD


async def test_manual_polls_that_can_not_be_made_say_why(stub: Any, ingest: FakeIngest) -> None:
    async def reason(card_id: str) -> tuple[Reason, str]:
        error = await error_of(stub.PollCard(wire.PollCardRequest(card_id=card_id)))
        return error.reason, error.message

    assert (await reason("unknown"))[0] is Reason.NOT_FOUND
    assert (await reason("card-2"))[0] is Reason.WRONG_STATE
    assert (await reason("card-3"))[0] is Reason.WRONG_STATE
    found, message = await reason("card-1")
    assert found is Reason.WRONG_STATE
    assert "acme_key" in message
    ingest.accounts["acme"].credential_name = ""

    async def no_slot() -> bool:
        return (await reason("card-1"))[0] is Reason.SLOT_UNAVAILABLE

    await eventually(no_slot)
    ingest.away = True
    assert (await reason("card-1"))[0] is Reason.DEPENDENCY_AWAY


async def test_an_unknown_backlog_is_not_zero(stub: Any) -> None:
    answer = await stub.GetBacklog(wire.GetBacklogRequest())
    assert not answer.broker_known
    assert not answer.topics


async def test_the_status_says_why_nothing_is_polled(stub: Any) -> None:
    async def told() -> bool:
        [account] = (await stub.GetStatus(wire.GetStatusRequest())).accounts
        return account.held_slots == 0 and account.blocked_reason.startswith("no slots")

    await eventually(told)
