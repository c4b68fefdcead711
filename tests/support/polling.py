"""What poller tests share: accounts, a stand-in for ingest_service, and a whole poller."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from gateways.simulator.fleet import DemoAccount
from poller.domain.model import Account
from poller.settings import Settings
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.settings import ServiceSettings
from sluicegate.collection.v1 import collection_pb2, collection_pb2_grpc
from sluicegate.ingest.v1 import ingest_pb2, ingest_pb2_grpc


def account(account_id: str = "acme", **fields: Any) -> Account:
    """Make an account."""
    values: dict[str, Any] = {
        "account_id": account_id,
        "gateway_kind": "generic_http",
        "gateway_url": "http://127.0.0.1:1",
        "credential_name": "",
        "reset_day": 1,
        "time_zone": "UTC",
        "poll_limit": 4,
        "poll_interval": timedelta(seconds=60),
        "enabled": True,
    }
    return Account(**(values | fields))


class FakeIngest(ingest_pb2_grpc.IngestServiceServicer, collection_pb2_grpc.CollectionServiceServicer):
    """Stands in for ingest_service and collection_writer: remembers what it was given; away on demand."""

    def __init__(self) -> None:
        self.accounts: dict[str, ingest_pb2.Account] = {}
        self.cards: dict[str, ingest_pb2.Card] = {}
        self.applied: dict[str, ingest_pb2.Observation] = {}
        self.apply_sizes: list[int] = []
        self.records: dict[str, collection_pb2.Record] = {}
        self.away = False

    def add_account(self, demo: DemoAccount, **fields: Any) -> None:
        """Know an account of the simulator's fleet."""
        values: dict[str, Any] = {
            "account_id": demo.account_id,
            "gateway_kind": demo.gateway_kind,
            "gateway_url": demo.gateway_url,
            "reset_day": demo.reset_day,
            "time_zone": demo.time_zone,
            "poll_limit": demo.poll_limit,
            "stop_resume_limit": demo.stop_resume_limit,
            "poll_interval_s": 1,
            "enabled": True,
        }
        self.accounts[demo.account_id] = ingest_pb2.Account(**(values | fields))

    def add_card(self, card_id: str, account_id: str, **fields: Any) -> None:
        """Know a card."""
        values: dict[str, Any] = {"lifecycle": "active", "polling_enabled": True}
        self.cards[card_id] = ingest_pb2.Card(card_id=card_id, account_id=account_id, **(values | fields))

    def kinds_applied(self, card_id: str) -> list[str]:
        """Return the kinds of what was applied to a card, in order of arrival."""
        return [item.WhichOneof("reading") or "" for item in self.applied.values() if item.card_id == card_id]

    async def ListAccounts(self, request: Any, context: Any) -> ingest_pb2.ListAccountsResponse:  # noqa: N802
        self._check()
        return ingest_pb2.ListAccountsResponse(accounts=self.accounts.values())

    async def ListCards(self, request: Any, context: Any) -> ingest_pb2.ListCardsResponse:  # noqa: N802
        self._check()
        found = [
            card
            for card_id, card in sorted(self.cards.items())
            if card_id > request.page_token
            and card.account_id == request.account_id
            and (not request.pollable_only or (card.polling_enabled and card.lifecycle != "retired"))
        ]
        size = min(request.page_size or 100, 10)  # small pages, so that there are several
        token = found[size - 1].card_id if len(found) > size else ""
        return ingest_pb2.ListCardsResponse(cards=found[:size], next_page_token=token)

    async def GetCards(self, request: Any, context: Any) -> ingest_pb2.GetCardsResponse:  # noqa: N802
        self._check()
        return ingest_pb2.GetCardsResponse(
            cards=[self.cards[card_id] for card_id in request.card_ids if card_id in self.cards]
        )

    async def ApplyObservations(  # noqa: N802
        self, request: Any, context: Any
    ) -> ingest_pb2.ApplyObservationsResponse:
        self._check()
        self.apply_sizes.append(len(request.observations))
        response = ingest_pb2.ApplyObservationsResponse()
        for item in request.observations:
            known = item.observation_id in self.applied
            self.applied[item.observation_id] = item
            outcome = ingest_pb2.OUTCOME_DUPLICATE if known else ingest_pb2.OUTCOME_APPLIED
            response.results.add(observation_id=item.observation_id, outcome=outcome)
        return response

    async def WriteRecords(  # noqa: N802
        self, request: Any, context: Any
    ) -> collection_pb2.WriteRecordsResponse:
        self._check()
        for item in request.records:
            self.records[item.observation_id] = item
        return collection_pb2.WriteRecordsResponse(stored_count=len(request.records))

    def _check(self) -> None:
        if self.away:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "away for the test")


@asynccontextmanager
async def serving(fake: FakeIngest) -> AsyncIterator[str]:
    """Serve the stand-in on a free port; gives its address."""
    server = GrpcServer(
        ServiceSettings.from_environment({}),
        [
            (ingest_pb2_grpc.add_IngestServiceServicer_to_server, fake),
            (collection_pb2_grpc.add_CollectionServiceServicer_to_server, fake),
        ],
        Health(),
    )
    await server.start()
    try:
        yield server.address
    finally:
        await server.drain()
        await server.stop()


def poller_settings(
    *, database: str, redis_url: str, nsq: Sequence[str], ingest: str, lease: str, **variables: str
) -> Settings:
    """Make settings with quick loops; `ingest` serves as ingest_service and as collection_writer."""
    return Settings.from_environment(
        {
            "POLLER_GRPC__PORT": "0",
            "POLLER_METRICS_PORT": "0",
            "POLLER_POSTGRES__DSN": database,
            "POLLER_REDIS__URL": redis_url,
            "POLLER_NSQ__NSQD_TCP": nsq[0],
            "POLLER_NSQ__NSQD_HTTP": nsq[1],
            "POLLER_PEERS__INGEST_SERVICE": ingest,
            "POLLER_PEERS__COLLECTION_WRITER": ingest,
            "POLLER_PEERS__LEASE_SERVICE": lease,
            "POLLER_SYNC__ACCOUNTS_EVERY": "200ms",
            "POLLER_SYNC__CARDS_EVERY": "200ms",
            **{f"POLLER_{name.upper()}": value for name, value in variables.items()},
        }
    )
