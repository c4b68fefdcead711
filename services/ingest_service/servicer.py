"""The gRPC edge of ingest_service."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from ingest_service.clients import CollectionClient
from ingest_service.consumer import note, observation_of
from ingest_service.domain.administration import Accounts, Cards
from ingest_service.domain.applying import Deferred
from ingest_service.domain.explaining import Whereabouts
from ingest_service.domain.fleet import Account, Card
from ingest_service.domain.lanes import Lanes
from ingest_service.domain.observations import Outcome, Result
from ingest_service.domain.settling import Settler
from ingest_service.publisher import Outgoing
from ingest_service.store.postgres_fleet import PostgresFleetStore
from ingest_service.store.postgres_parking import ParkingStore
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError, invalid_field
from servicekit.ids import uuid7_time
from servicekit.telemetry import inject
from sluicegate.ingest.v1 import ingest_pb2, ingest_pb2_grpc
from sluicegate_client.messages import ObservationMessage

_DEFAULT_PAGE = 100
_SETTLED = {ingest_pb2.OUTCOME_APPLIED, ingest_pb2.OUTCOME_DUPLICATE, ingest_pb2.OUTCOME_STALE}
_MAX_BIGINT = 2**63 - 1


class IngestServicer(ingest_pb2_grpc.IngestServiceServicer):
    """Serves IngestService: reads fields, calls, and writes fields."""

    def __init__(
        self,
        *,
        lanes: Lanes,
        settler: Settler,
        accounts: Accounts,
        cards: Cards,
        fleet: PostgresFleetStore,
        parking: ParkingStore,
        outgoing: Outgoing,
        collection: CollectionClient,
        clock: Clock,
    ) -> None:
        self._lanes = lanes
        self._settler = settler
        self._accounts = accounts
        self._cards = cards
        self._fleet = fleet
        self._parking = parking
        self._outgoing = outgoing
        self._collection = collection
        self._clock = clock

    async def SaveAccounts(  # noqa: N802
        self, request: ingest_pb2.SaveAccountsRequest, context: Any
    ) -> ingest_pb2.SaveAccountsResponse:
        """Create or change accounts."""
        del context
        accounts = [_account(account) for account in request.accounts]
        saved = await self._accounts.save(accounts, actor=request.actor)
        return ingest_pb2.SaveAccountsResponse(accounts=[_shown_account(account) for account in saved])

    async def ListAccounts(  # noqa: N802
        self, request: ingest_pb2.ListAccountsRequest, context: Any
    ) -> ingest_pb2.ListAccountsResponse:
        """Page through accounts."""
        del context
        size = request.page_size or _DEFAULT_PAGE
        found = await self._accounts.list(after=request.page_token, limit=size + 1)
        return ingest_pb2.ListAccountsResponse(
            accounts=[_shown_account(account) for account in found[:size]],
            next_page_token=found[size - 1].account_id if len(found) > size else "",
        )

    async def SaveCards(  # noqa: N802
        self, request: ingest_pb2.SaveCardsRequest, context: Any
    ) -> ingest_pb2.SaveCardsResponse:
        """Create or change cards."""
        del context
        saved = await self._cards.save([_card(card) for card in request.cards], actor=request.actor)
        refused = [
            ingest_pb2.RefusedCard(index=item.index, card_id=item.card_id, message=item.message)
            for item in saved.refused
        ]
        return ingest_pb2.SaveCardsResponse(
            created_count=saved.created_count, updated_count=saved.updated_count, refused=refused
        )

    async def GetCards(  # noqa: N802
        self, request: ingest_pb2.GetCardsRequest, context: Any
    ) -> ingest_pb2.GetCardsResponse:
        """Read cards by id."""
        del context
        found = await self._cards.get(list(request.card_ids))
        return ingest_pb2.GetCardsResponse(cards=[_shown_card(card) for card in found])

    async def ListCards(  # noqa: N802
        self, request: ingest_pb2.ListCardsRequest, context: Any
    ) -> ingest_pb2.ListCardsResponse:
        """Page through cards."""
        del context
        size = request.page_size or _DEFAULT_PAGE
        found = await self._fleet.list_cards(
            account_id=request.account_id,
            after=request.page_token,
            limit=size + 1,
            pollable_only=request.pollable_only,
        )
        return ingest_pb2.ListCardsResponse(
            cards=[_shown_card(card) for card in found[:size]],
            next_page_token=found[size - 1].card_id if len(found) > size else "",
        )

    async def ApplyObservations(  # noqa: N802
        self, request: ingest_pb2.ApplyObservationsRequest, context: Any
    ) -> ingest_pb2.ApplyObservationsResponse:
        """Apply observations now."""
        del context
        results = await asyncio.gather(*(self._apply(item) for item in request.observations))
        return ingest_pb2.ApplyObservationsResponse(results=results)

    async def Submit(  # noqa: N802
        self, request: ingest_pb2.SubmitRequest, context: Any
    ) -> ingest_pb2.SubmitResponse:
        """Publish observations to be applied later."""
        del context
        now = self._clock.now()
        good: list[ObservationMessage] = []
        refused: list[ingest_pb2.RefusedObservation] = []
        for index, item in enumerate(request.observations):
            try:
                good.append(replace(_message(item), published_at=now))
            except ServiceError as error:
                named = ingest_pb2.RefusedObservation(index=index, observation_id=item.observation_id)
                named.message = error.message
                refused.append(named)
        await self._outgoing.publish_observations(good)
        return ingest_pb2.SubmitResponse(accepted_count=len(good), refused=refused)

    async def Explain(  # noqa: N802
        self, request: ingest_pb2.ExplainRequest, context: Any
    ) -> ingest_pb2.ExplainResponse:
        """Say where one observation is."""
        del context
        observation_id = _observation_id(request.observation_id)
        collected_at, known = await self._collected(observation_id)
        found = await self._parking.explain(observation_id)
        found = replace(found, collected_at=collected_at, collection_known=known)
        if not found.is_known:
            raise ServiceError(Reason.NOT_FOUND, f"nothing is known of observation {observation_id}")
        return _explained(observation_id, found)

    async def ListQuarantine(  # noqa: N802
        self, request: ingest_pb2.ListQuarantineRequest, context: Any
    ) -> ingest_pb2.ListQuarantineResponse:
        """Page through the quarantine."""
        del context
        size = request.page_size or _DEFAULT_PAGE
        before = _quarantine_token(request.page_token)
        rows = await self._parking.list_quarantine(before=before, limit=size + 1)
        return ingest_pb2.ListQuarantineResponse(
            items=[_quarantined_item(row) for row in rows[:size]],
            next_page_token=str(rows[size - 1]["quarantine_id"]) if len(rows) > size else "",
        )

    async def Replay(  # noqa: N802
        self, request: ingest_pb2.ReplayRequest, context: Any
    ) -> ingest_pb2.ReplayResponse:
        """Apply quarantined rows again."""
        del context
        bodies = await self._parking.quarantined_bodies(list(request.quarantine_ids))
        replayed = await asyncio.gather(*(self._replay(item, body) for item, body in bodies.items()))
        done = [item for item, result in replayed if result.outcome in _SETTLED]
        await self._parking.mark_replayed(done, actor=request.actor, now=self._clock.now())
        return ingest_pb2.ReplayResponse(
            results=[result for _, result in replayed],
            remaining_ids=sorted(set(bodies) - set(done)),
        )

    async def _apply(self, item: ingest_pb2.Observation) -> ingest_pb2.ApplyResult:
        """Apply one observation; a bad one is kept in the quarantine, as on the broker's path."""
        try:
            message = _message(item)
        except ServiceError as error:
            await self._settler.quarantine(_as_sent(item), reason=error.message, card_id=item.card_id)
            return ingest_pb2.ApplyResult(
                observation_id=item.observation_id,
                outcome=ingest_pb2.OUTCOME_QUARANTINED,
                message=error.message,
            )
        return await self._apply_message(message)

    async def _apply_message(self, message: ObservationMessage) -> ingest_pb2.ApplyResult:
        answer = await self._lanes.apply(observation_of(message), hold=False)
        note(answer)
        if isinstance(answer, Deferred):
            raise ServiceError(
                Reason.DEPENDENCY_AWAY, "the database could not apply it now; nothing was changed, try again"
            )
        if answer.outcome is Outcome.QUARANTINED:
            await self._settler.settle(answer, message.encode())
        return _apply_result(answer)

    async def _replay(self, quarantine_id: int, body: bytes) -> tuple[int, ingest_pb2.ApplyResult]:
        try:
            message = ObservationMessage.decode(body)
        except ServiceError as error:
            return quarantine_id, ingest_pb2.ApplyResult(
                outcome=ingest_pb2.OUTCOME_QUARANTINED, message=error.message
            )
        answer = await self._lanes.apply(observation_of(message), hold=False)
        if isinstance(answer, Deferred):
            return quarantine_id, ingest_pb2.ApplyResult(
                observation_id=str(message.observation_id),
                outcome=ingest_pb2.OUTCOME_QUARANTINED,
                message=answer.error.message,
            )
        await self._settler.settle(answer, body)
        return quarantine_id, _apply_result(answer)

    async def _collected(self, observation_id: UUID) -> tuple[datetime | None, bool]:
        try:
            return await self._collection.stored_at(str(observation_id)), True
        except ServiceError:
            return None, False


def _message(item: ingest_pb2.Observation) -> ObservationMessage:
    """Read an observation; raises ServiceError INVALID_FIELD."""
    try:
        observed_at = item.observed_at.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise invalid_field("observed_at", "is no instant of the calendar") from None
    return ObservationMessage(
        observation_id=_observation_id(item.observation_id),
        card_id=item.card_id,
        account_id=item.account_id,
        kind=item.WhichOneof("reading") or "",
        observed_at=observed_at,
        reading=_reading(item),
        raw=item.raw,
        source=item.source or "rpc",
        traceparent=item.traceparent or inject(),
        latency_ms=item.latency_ms,
    )


def _reading(item: ingest_pb2.Observation) -> dict[str, int | str]:
    kind = item.WhichOneof("reading")
    if kind == "traffic":
        form = item.traffic.WhichOneof("form")
        return {form: getattr(item.traffic, form)} if form else {}
    return {"status": getattr(item, kind).status} if kind else {}


def _as_sent(item: ingest_pb2.Observation) -> bytes:
    """Write an observation that can't be read the way the broker would have carried it, for the quarantine."""
    return json.dumps(
        {
            "schema_version": "1.0",
            "observation_id": item.observation_id,
            "card_id": item.card_id,
            "account_id": item.account_id,
            "kind": item.WhichOneof("reading"),
            "observed_at": item.observed_at.ToJsonString(),
            "reading": _reading(item),
            "raw": item.raw,
            "source": item.source or "rpc",
            "traceparent": item.traceparent,
            "latency_ms": item.latency_ms,
        }
    ).encode()


def _observation_id(text: str) -> UUID:
    try:
        observation_id = UUID(text)
        uuid7_time(observation_id)
    except ValueError:
        raise invalid_field("observation_id", "should be a version 7 UUID") from None
    return observation_id


def _outcome(name: str) -> Any:
    return ingest_pb2.Outcome.Value(f"OUTCOME_{name.upper() or 'UNSPECIFIED'}")


def _apply_result(result: Result) -> ingest_pb2.ApplyResult:
    return ingest_pb2.ApplyResult(
        observation_id=str(result.observation.observation_id),
        outcome=_outcome(result.outcome.value),
        increment_bytes=result.increment_bytes,
        message=result.message,
    )


def _account(account: ingest_pb2.Account) -> Account:
    return Account(
        account_id=account.account_id,
        name=account.name,
        gateway_kind=account.gateway_kind,
        gateway_url=account.gateway_url,
        credential_name=account.credential_name,
        reset_day=account.reset_day,
        time_zone=account.time_zone,
        poll_interval_s=account.poll_interval_s,
        enabled=account.enabled,
        poll_limit=account.poll_limit,
        stop_resume_limit=account.stop_resume_limit,
    )


def _shown_account(account: Account) -> ingest_pb2.Account:
    return ingest_pb2.Account(
        account_id=account.account_id,
        name=account.name,
        gateway_kind=account.gateway_kind,
        gateway_url=account.gateway_url,
        credential_name=account.credential_name,
        reset_day=account.reset_day,
        time_zone=account.time_zone,
        poll_interval_s=account.poll_interval_s,
        enabled=account.enabled,
        poll_limit=account.poll_limit,
        stop_resume_limit=account.stop_resume_limit,
        updated_at=account.updated_at,
    )


def _card(card: ingest_pb2.Card) -> Card:
    return Card(
        card_id=card.card_id,
        account_id=card.account_id,
        msisdn=card.msisdn,
        lifecycle=card.lifecycle or "active",
        polling_enabled=card.polling_enabled,
    )


def _shown_card(card: Card) -> ingest_pb2.Card:
    return ingest_pb2.Card(
        card_id=card.card_id,
        account_id=card.account_id,
        msisdn=card.msisdn,
        lifecycle=card.lifecycle,
        polling_enabled=card.polling_enabled,
        network_status=card.network_status,
        realname_status=card.realname_status,
        cycle_start=card.cycle_start.isoformat() if card.cycle_start else "",
        cycle_used_bytes=card.cycle_used_bytes,
        applied_count=card.applied_count,
        observed_at=card.observed_at,
        updated_at=card.updated_at,
    )


def _explained(observation_id: UUID, found: Whereabouts) -> ingest_pb2.ExplainResponse:
    return ingest_pb2.ExplainResponse(
        observation_id=str(observation_id),
        observed_at=uuid7_time(observation_id),
        card_id=found.card_id,
        outcome=_outcome(found.outcome),
        applied_at=found.applied_at,
        increment_bytes=found.increment_bytes,
        collected=found.collected_at is not None,
        collected_at=found.collected_at,
        collection_known=found.collection_known,
        quarantine_reason=found.quarantine_reason,
        retry_at=found.retry_at,
        events=list(found.events),
        verdict=found.verdict,
    )


def _quarantined_item(row: dict[str, Any]) -> ingest_pb2.QuarantinedItem:
    return ingest_pb2.QuarantinedItem(
        quarantine_id=row["quarantine_id"],
        observation_id=str(row["observation_id"] or ""),
        card_id=row["card_id"],
        reason=row["reason"],
        sqlstate=row["sqlstate"],
        body=row["body"].decode("utf-8", "replace"),
        quarantined_at=row["quarantined_at"],
        replayed_at=row["replayed_at"],
    )


def _quarantine_token(token: str) -> int:
    if not token:
        return _MAX_BIGINT
    if not token.isascii() or not token.isdigit() or int(token) > _MAX_BIGINT:
        raise invalid_field("page_token", "is not one that an earlier page returned")
    return int(token)
