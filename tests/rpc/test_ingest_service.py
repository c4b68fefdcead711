"""IngestService over a real connection: fields, codes, partial answers, pages, replay."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from devengines.nsqd import DevbrokerProcess
from ingest_service.app import build
from ingest_service.settings import Settings
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_server import GrpcServer
from servicekit.ids import uuid7
from servicekit.lifecycle import serve
from servicekit.postgres import Postgres
from servicekit.redis import Redis
from servicekit.settings import RedisSettings
from servicekit.values import SecretUrl
from sluicegate.ingest.v1 import ingest_pb2
from tests.support.ingest import opened
from tests.support.ingest_process import FakePeers, Topics, calling, fake_peers, listening, variables
from tests.support.waiting import eventually

ACCOUNT: dict[str, Any] = {
    "account_id": "acme",
    "gateway_kind": "generic_http",
    "gateway_url": "http://127.0.0.1:9",
    "reset_day": 1,
    "time_zone": "Asia/Shanghai",
    "poll_limit": 20,
    "stop_resume_limit": 10,
    "poll_interval_s": 60,
    "enabled": True,
}


@dataclass
class Service:
    """A whole ingest_service inside the test's process."""

    stub: Any
    peers: FakePeers
    topics: Topics
    postgres: Postgres
    redis: Redis

    async def save_fleet(self, cards: int = 3) -> None:
        await self.stub.SaveAccounts(_accounts())
        await self.stub.SaveCards(_cards(*(f"c{index}" for index in range(cards))))


@pytest.fixture
async def service(
    database: str, redis_url: str, devbroker_server: DevbrokerProcess, tmp_path: Path
) -> AsyncIterator[Service]:
    async with fake_peers() as (peers, peer_address), listening(devbroker_server) as topics:
        settings = Settings.from_environment(
            variables(dsn=database, redis_url=redis_url, broker=devbroker_server, peers=peer_address)
        )
        app = build(settings)
        server = next(part for part in app.components if isinstance(part, GrpcServer))
        stopping = asyncio.Event()
        task = asyncio.create_task(serve(app, stopping))
        await eventually(lambda: app.health.serving)
        redis = Redis(RedisSettings(url=SecretUrl(redis_url)))
        async with opened(database) as postgres, calling(server.address) as stub:
            yield Service(stub, peers, topics, postgres, redis)
        await redis.stop()
        stopping.set()
        await task


def _accounts(**changes: Any) -> ingest_pb2.SaveAccountsRequest:
    return ingest_pb2.SaveAccountsRequest(
        accounts=[ingest_pb2.Account(**{**ACCOUNT, **changes})], actor="test"
    )


def _cards(*card_ids: str, **changes: Any) -> ingest_pb2.SaveCardsRequest:
    fields: dict[str, Any] = {"account_id": "acme", "lifecycle": "active", "polling_enabled": True, **changes}
    return ingest_pb2.SaveCardsRequest(
        cards=[ingest_pb2.Card(card_id=card_id, **fields) for card_id in card_ids], actor="test"
    )


def _observation(card_id: str = "c0", at: datetime | None = None, **changes: Any) -> ingest_pb2.Observation:
    at = at or datetime.now(UTC)
    fields: dict[str, Any] = {"observation_id": str(uuid7(at)), "card_id": card_id, "observed_at": at}
    if "network" not in changes:
        fields["traffic"] = ingest_pb2.TrafficReading(total_bytes=100)
    return ingest_pb2.Observation(**{**fields, **changes})


def _apply(*observations: ingest_pb2.Observation) -> ingest_pb2.ApplyObservationsRequest:
    return ingest_pb2.ApplyObservationsRequest(observations=observations)


async def refused(call: Any, reason: Reason) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await call
    assert caught.value.reason is reason, caught.value
    return caught.value


async def test_an_account_is_stored_and_its_limits_become_policies(service: Service) -> None:
    answer = await service.stub.SaveAccounts(_accounts())
    assert answer.accounts[0].poll_limit == 20
    assert service.peers.policies == {("gateway:acme", "poll"): 20, ("gateway:acme", "stop_resume"): 10}
    listed = await service.stub.ListAccounts(ingest_pb2.ListAccountsRequest())
    assert [(item.account_id, item.poll_limit, item.stop_resume_limit) for item in listed.accounts] == [
        ("acme", 20, 10)
    ]


BAD_ACCOUNTS: list[tuple[dict[str, Any], str]] = [
    ({"time_zone": "Mars/Olympus"}, "time_zone"),
    ({"time_zone": "../../etc/passwd"}, "time_zone"),
    ({"time_zone": ""}, "time_zone"),
    ({"reset_day": 0}, "reset_day"),
    ({"reset_day": 32}, "reset_day"),
    ({"poll_limit": 0}, "poll_limit"),
    ({"gateway_url": "ftp://x"}, "gateway_url"),
    ({"gateway_url": "http://user:secret@host/"}, "gateway_url"),
    ({"account_id": "a b"}, "account_id"),
]


async def test_a_bad_account_is_refused_and_nothing_is_stored(service: Service) -> None:
    for changes, field in BAD_ACCOUNTS:
        error = await refused(service.stub.SaveAccounts(_accounts(**changes)), Reason.INVALID_FIELD)
        assert any(field in name for name in error.metadata), error.metadata
        assert "secret" not in str(error)
    assert await service.postgres.pool.fetchval("SELECT count(*) FROM account") == 0


async def test_limits_reach_lease_service_when_it_is_back(service: Service) -> None:
    service.peers.lease_away = True
    error = await refused(service.stub.SaveAccounts(_accounts()), Reason.DEPENDENCY_AWAY)
    assert "stored" in error.message
    listed = await service.stub.ListAccounts(ingest_pb2.ListAccountsRequest())
    assert listed.accounts[0].poll_limit == 20
    service.peers.lease_away = False
    await eventually(lambda: len(service.peers.policies) == 2)
    await eventually(lambda: _count(service, "account_policy_request", 0))


async def test_bad_cards_are_named_and_good_ones_kept(service: Service) -> None:
    await service.stub.SaveAccounts(_accounts())
    request = _cards("c0", "c1", "c0")
    request.cards.append(ingest_pb2.Card(card_id="c9", account_id="nobody", lifecycle="active"))
    request.cards.append(ingest_pb2.Card(card_id="c8", account_id="acme", lifecycle="lost"))
    answer = await service.stub.SaveCards(request)
    assert (answer.created_count, answer.updated_count) == (2, 0)
    assert [(item.index, item.card_id) for item in answer.refused] == [(2, "c0"), (3, "c9"), (4, "c8")]
    again = await service.stub.SaveCards(_cards("c0", "c1"))
    assert (again.created_count, again.updated_count) == (0, 2)
    assert await service.postgres.pool.fetchval("SELECT count(*) FROM card_audit") == 4


async def test_a_cards_facts_are_in_redis_before_a_change_is_answered(service: Service) -> None:
    await service.save_fleet(1)
    facts = await service.redis.client.hgetall("card:c0")
    assert (facts[b"account_id"], facts[b"lifecycle"], facts[b"polling_enabled"]) == (
        b"acme",
        b"active",
        b"1",
    )
    await service.stub.SaveCards(_cards("c0", polling_enabled=False))
    assert await service.redis.client.hget("card:c0", "polling_enabled") == b"0"
    await service.stub.ApplyObservations(
        _apply(_observation(network=ingest_pb2.StatusReading(status="online")))
    )
    facts = await service.redis.client.hgetall("card:c0")
    assert (facts[b"network_status"], facts[b"polling_enabled"], facts[b"version"]) == (b"online", b"0", b"3")
    await service.redis.client.delete("card:c0")
    await service.stub.GetCards(ingest_pb2.GetCardsRequest(card_ids=["c0"]))
    assert await service.redis.client.hget("card:c0", "network_status") == b"online"


async def test_cards_are_paged_by_id(service: Service) -> None:
    await service.save_fleet(5)
    await service.stub.SaveCards(_cards("c3", lifecycle="retired"))
    await service.stub.SaveCards(_cards("c1", polling_enabled=False))
    seen, token = [], ""
    while True:
        page = await service.stub.ListCards(
            ingest_pb2.ListCardsRequest(page_size=2, page_token=token, account_id="acme", pollable_only=True)
        )
        seen += [card.card_id for card in page.cards]
        token = page.next_page_token
        if not token:
            break
    assert seen == ["c0", "c2", "c4"]
    await service.stub.SaveAccounts(_accounts(enabled=False))
    page = await service.stub.ListCards(ingest_pb2.ListCardsRequest(pollable_only=True))
    assert not page.cards
    assert len((await service.stub.ListCards(ingest_pb2.ListCardsRequest())).cards) == 5
    got = await service.stub.GetCards(ingest_pb2.GetCardsRequest(card_ids=["c4", "nobody", "c0"]))
    assert [card.card_id for card in got.cards] == ["c0", "c4"]


async def test_results_come_in_order_of_the_request(service: Service) -> None:
    await service.save_fleet(2)
    at = datetime.now(UTC) - timedelta(minutes=5)
    first = _observation("c1", at)
    later = _observation("c0", at, network=ingest_pb2.StatusReading(status="online"))
    earlier = _observation(
        "c0", at - timedelta(minutes=1), network=ingest_pb2.StatusReading(status="offline")
    )
    old = _observation("c0", at - timedelta(days=20))
    await service.stub.ApplyObservations(_apply(later))
    answer = await service.stub.ApplyObservations(
        _apply(first, _observation("nobody", at), first, earlier, old)
    )
    names = [ingest_pb2.Outcome.Name(result.outcome) for result in answer.results]
    assert names == [f"OUTCOME_{name}" for name in ("APPLIED", "NOT_FOUND", "DUPLICATE", "STALE", "TOO_OLD")]
    assert [result.increment_bytes for result in answer.results] == [100, 0, 0, 0, 0]


def _bad_observations() -> list[ingest_pb2.Observation]:
    ahead = datetime.now(UTC) + timedelta(days=2)
    return [
        _observation(traffic=ingest_pb2.TrafficReading(total_bytes=-1)),
        _observation(traffic=ingest_pb2.TrafficReading()),
        _observation(network=ingest_pb2.StatusReading(status="fine")),
        _observation(observation_id="not-a-uuid"),
        _observation(observation_id=str(uuid7(datetime(2020, 1, 1, tzinfo=UTC)))),
        _observation(at=ahead),
        _observation(source="guess"),
    ]


async def test_an_observation_that_can_not_be_read_is_quarantined_and_the_others_applied(
    service: Service,
) -> None:
    await service.save_fleet(2)
    bad = _bad_observations()
    answer = await service.stub.ApplyObservations(_apply(*bad, _observation("c1")))
    assert [result.outcome for result in answer.results] == [
        *[ingest_pb2.OUTCOME_QUARANTINED] * len(bad),
        ingest_pb2.OUTCOME_APPLIED,
    ]
    page = await service.stub.ListQuarantine(ingest_pb2.ListQuarantineRequest())
    assert len(page.items) == len(bad)
    assert {json.loads(item.body)["card_id"] for item in page.items} == {"c0"}


async def test_quarantine_is_replayed_after_its_cause_is_fixed(service: Service) -> None:
    await service.save_fleet(3)
    await service.postgres.pool.execute(
        "ALTER TABLE usage_daily ADD CONSTRAINT poison CHECK (increment_bytes <> 13)"
    )
    poison = ingest_pb2.TrafficReading(total_bytes=13)
    await service.stub.ApplyObservations(_apply(_observation("c0", traffic=poison), _observation("c1")))
    await service.stub.ApplyObservations(_apply(_observation("c2", traffic=ingest_pb2.TrafficReading())))
    page = await service.stub.ListQuarantine(ingest_pb2.ListQuarantineRequest(page_size=1))
    assert page.items[0].sqlstate == ""
    rest = await service.stub.ListQuarantine(
        ingest_pb2.ListQuarantineRequest(page_token=page.next_page_token)
    )
    assert [item.sqlstate for item in rest.items] == ["23514"]
    ids = [item.quarantine_id for item in (*page.items, *rest.items)]
    request = ingest_pb2.ReplayRequest(quarantine_ids=ids, actor="someone")
    answer = await service.stub.Replay(request)
    assert sorted(answer.remaining_ids) == sorted(ids)
    await service.postgres.pool.execute("ALTER TABLE usage_daily DROP CONSTRAINT poison")
    answer = await service.stub.Replay(request)
    assert list(answer.remaining_ids) == [page.items[0].quarantine_id]
    assert (
        await service.postgres.pool.fetchval(
            "SELECT replayed_by FROM ingest_quarantine WHERE replayed_at > '-infinity'"
        )
        == "someone"
    )
    again = await service.stub.Replay(
        ingest_pb2.ReplayRequest(quarantine_ids=[rest.items[0].quarantine_id], actor="x")
    )
    assert not again.results
    unknown = ingest_pb2.ReplayRequest(quarantine_ids=[rest.items[0].quarantine_id, 999], actor="x")
    await refused(service.stub.Replay(unknown), Reason.NOT_FOUND)
    card = (await service.stub.GetCards(ingest_pb2.GetCardsRequest(card_ids=["c0"]))).cards[0]
    assert card.cycle_used_bytes == 13


async def test_submit_publishes_and_names_what_can_not_be_encoded(service: Service) -> None:
    await service.save_fleet(1)
    good = _observation()
    bad = _observation(network=ingest_pb2.StatusReading(status="fine"))
    answer = await service.stub.Submit(ingest_pb2.SubmitRequest(observations=[bad, good]))
    assert answer.accepted_count == 1
    assert [item.index for item in answer.refused] == [0]
    await eventually(lambda: good.observation_id in service.topics.collection)


async def test_explain_says_where_an_observation_is(service: Service) -> None:
    await service.save_fleet(1)
    item = _observation(network=ingest_pb2.StatusReading(status="online"))
    request = ingest_pb2.ExplainRequest(observation_id=item.observation_id)
    await refused(service.stub.Explain(request), Reason.NOT_FOUND)
    await service.stub.ApplyObservations(_apply(item))
    answer = await service.stub.Explain(request)
    assert (answer.card_id, answer.outcome, list(answer.events)) == ("c0", 1, ["network.changed"])
    assert (answer.collected, answer.collection_known) == (False, True)
    service.peers.collection_away = True
    assert not (await service.stub.Explain(request)).collection_known
    await refused(service.stub.Explain(ingest_pb2.ExplainRequest(observation_id="x")), Reason.INVALID_FIELD)


async def test_pages_and_actors_are_checked(service: Service) -> None:
    await refused(
        service.stub.ListQuarantine(ingest_pb2.ListQuarantineRequest(page_token="x")), Reason.INVALID_FIELD
    )
    await refused(
        service.stub.SaveCards(
            ingest_pb2.SaveCardsRequest(cards=[ingest_pb2.Card(card_id="c", account_id="a")])
        ),
        Reason.INVALID_FIELD,
    )


async def _count(service: Service, table: str, wanted: int) -> bool:
    return bool(await service.postgres.pool.fetchval(f"SELECT count(*) FROM {table}") == wanted)  # noqa: S608
