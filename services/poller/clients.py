"""What poller asks of others: gateways, ingest_service and collection_writer."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any

import aiohttp
from pydantic import SecretStr

from gateways.adapter import GatewayAccount, GatewayAdapter, GatewayError
from gateways.registry import Gateways, UnknownGatewayKindError
from poller.domain.model import Account, Answer, Applied, CardFacts, GatewayFailure, ListedCard, Polled
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.settings import AuthSettings
from sluicegate.collection.v1 import collection_pb2, collection_pb2_grpc
from sluicegate.ingest.v1 import ingest_pb2, ingest_pb2_grpc
from sluicegate_client.messages import CollectionMessage

_IDEMPOTENT = ("ListAccounts", "ListCards", "GetCards", "ApplyObservations")
_OUTCOMES: Mapping[int, str] = {
    ingest_pb2.OUTCOME_APPLIED: "applied",
    ingest_pb2.OUTCOME_DUPLICATE: "duplicate",
    ingest_pb2.OUTCOME_STALE: "stale",
    ingest_pb2.OUTCOME_NOT_FOUND: "not_found",
    ingest_pb2.OUTCOME_TOO_OLD: "too_old",
    ingest_pb2.OUTCOME_QUARANTINED: "quarantined",
}


class GatewayPool:
    """The adapters of all accounts over one HTTP session. A Component.

    Args:
        credentials: secrets by the names that accounts use.
        clock: handed to the adapters.
        timeout: longest gateway call.
        connections: most connections of the session.
    """

    name = "gateways"

    def __init__(
        self, credentials: Mapping[str, SecretStr], clock: Clock, *, timeout: timedelta, connections: int
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._timeout = timeout
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._gateways: Gateways | None = None

    async def start(self) -> None:
        """Open the session."""
        connector = aiohttp.TCPConnector(limit=self._connections)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )
        self._gateways = Gateways(self._session, self._clock, self._timeout)

    async def drain(self) -> None:
        """Do nothing: who asks drains before this."""

    async def stop(self) -> None:
        """Close the session."""
        session, self._session, self._gateways = self._session, None, None
        if session is not None:
            await session.close()

    def gateway(self, account: Account) -> "AccountGateway":
        """Return an account's gateway.

        Raises:
            ServiceError: WRONG_STATE when its kind has no adapter or its credential is missing or unreadable.
        """
        if self._gateways is None:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "the gateway session is not open")
        secret = self._credentials.get(account.credential_name, SecretStr(""))
        if account.credential_name and account.credential_name not in self._credentials:
            raise ServiceError(
                Reason.WRONG_STATE,
                f"account {account.account_id} wants the credential {account.credential_name}, which is not in "
                "POLLER_CREDENTIALS",
            )
        try:
            adapter = self._gateways.adapter(
                GatewayAccount(
                    account_id=account.account_id,
                    kind=account.gateway_kind,
                    base_url=account.gateway_url,
                    credentials=secret,
                    reset_day=account.reset_day,
                    time_zone=account.time_zone,
                )
            )
        except UnknownGatewayKindError as error:
            raise ServiceError(Reason.WRONG_STATE, str(error)) from error
        except GatewayError as error:
            raise ServiceError(
                Reason.WRONG_STATE, f"account {account.account_id}: {error.message}"
            ) from error
        return AccountGateway(adapter)


class AccountGateway:
    """One account's gateway in the words of this service."""

    def __init__(self, adapter: GatewayAdapter) -> None:
        self._adapter = adapter

    @property
    def kinds(self) -> frozenset[str]:
        """What it can be asked."""
        return frozenset(self._adapter.kinds)

    async def fetch(self, kind: Any, card_id: str) -> Answer:
        """Ask for one fact. Raises GatewayFailure."""
        try:
            answer = await self._adapter.fetch(kind, card_id)
        except GatewayError as error:
            raise GatewayFailure(
                error.failure.value,
                error.message,
                retry_after=error.retry_after,
                raw=error.raw,
                latency_ms=error.latency_ms,
            ) from None
        return Answer(
            observed_at=answer.observed_at,
            reading=answer.reading,
            raw=answer.raw,
            latency_ms=answer.latency_ms,
        )


class IngestClient:
    """Calls ingest_service. A Component.

    Args:
        target: its address.
        auth: how to sign in.
        page_size: most rows of one list call.
    """

    name = "ingest_client"

    def __init__(self, target: str, auth: AuthSettings, page_size: int) -> None:
        self._channel = Channel(target, auth=auth, name="ingest_service", idempotent=_IDEMPOTENT)
        self._stub: Any = ingest_pb2_grpc.IngestServiceStub(self._channel.raw)
        self._page_size = page_size

    async def start(self) -> None:
        """Connect with the first call."""

    async def drain(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Close the connection."""
        await self._channel.stop()

    async def accounts(self) -> list[Account]:
        """List all accounts. Raises ServiceError."""
        found: list[Account] = []
        token = ""
        while True:
            answer = await self._stub.ListAccounts(
                ingest_pb2.ListAccountsRequest(page_size=self._page_size, page_token=token)
            )
            found += [_account(account) for account in answer.accounts]
            token = answer.next_page_token
            if not token:
                return found

    async def card_pages(self, account_id: str) -> AsyncIterator[list[ListedCard]]:
        """Page through an account's cards that are to be polled. Raises ServiceError."""
        token = ""
        while True:
            answer = await self._stub.ListCards(
                ingest_pb2.ListCardsRequest(
                    account_id=account_id, page_size=self._page_size, page_token=token, pollable_only=True
                )
            )
            yield [
                ListedCard(
                    card.card_id,
                    card.observed_at.ToDatetime(UTC) if card.HasField("observed_at") else None,
                )
                for card in answer.cards
            ]
            token = answer.next_page_token
            if not token:
                return

    async def facts(self, card_ids: Sequence[str]) -> dict[str, CardFacts]:
        """Read facts of cards that Redis does not have; unknown cards are left out. Raises ServiceError."""
        answer = await self._stub.GetCards(ingest_pb2.GetCardsRequest(card_ids=card_ids))
        return {
            card.card_id: CardFacts(
                card_id=card.card_id,
                account_id=card.account_id,
                lifecycle=card.lifecycle,
                polling_enabled=card.polling_enabled,
            )
            for card in answer.cards
        }

    async def apply(self, items: Sequence[Polled]) -> list[Applied]:
        """Apply at most 200 observations now, one result each, in order. Raises ServiceError."""
        request = ingest_pb2.ApplyObservationsRequest(observations=[_observation(item) for item in items])
        answer = await self._stub.ApplyObservations(request)
        return [
            Applied(_OUTCOMES.get(result.outcome, "unknown"), result.message) for result in answer.results
        ]


class CollectionClient:
    """Calls collection_writer. A Component.

    Args:
        target: its address.
        auth: how to sign in.
    """

    name = "collection_client"

    def __init__(self, target: str, auth: AuthSettings) -> None:
        self._channel = Channel(target, auth=auth, name="collection_writer", idempotent=("WriteRecords",))
        self._stub: Any = collection_pb2_grpc.CollectionServiceStub(self._channel.raw)

    async def start(self) -> None:
        """Connect with the first call."""

    async def drain(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Close the connection."""
        await self._channel.stop()

    async def write(self, messages: Sequence[CollectionMessage]) -> None:
        """Store records of failures and empty answers now. Raises ServiceError."""
        records = [
            collection_pb2.Record(
                observation_id=str(message.observation_id),
                observed_at=message.observed_at,
                card_id=message.card_id,
                account_id=message.account_id,
                kind=message.kind,
                outcome=message.outcome,
                raw=message.raw,
                error=message.error or "",
                latency_ms=message.latency_ms,
                traceparent=message.traceparent,
            )
            for message in messages
        ]
        await self._stub.WriteRecords(collection_pb2.WriteRecordsRequest(records=records))


def _account(account: ingest_pb2.Account) -> Account:
    return Account(
        account_id=account.account_id,
        gateway_kind=account.gateway_kind,
        gateway_url=account.gateway_url,
        credential_name=account.credential_name,
        reset_day=account.reset_day,
        time_zone=account.time_zone,
        poll_limit=account.poll_limit,
        poll_interval=timedelta(seconds=account.poll_interval_s),
        enabled=account.enabled,
    )


def _observation(item: Polled) -> ingest_pb2.Observation:
    observation = ingest_pb2.Observation(
        observation_id=str(item.observation_id),
        card_id=item.card_id,
        account_id=item.account_id,
        observed_at=item.observed_at,
        raw=item.raw,
        traceparent=item.traceparent,
        source="poll",
        latency_ms=item.latency_ms,
    )
    reading: Any = item.reading or {}
    if item.kind == "traffic":
        observation.traffic.CopyFrom(ingest_pb2.TrafficReading(**reading))
    elif item.kind == "network":
        observation.network.CopyFrom(ingest_pb2.StatusReading(**reading))
    else:
        observation.realname.CopyFrom(ingest_pb2.StatusReading(**reading))
    return observation
