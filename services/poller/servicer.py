"""The gRPC edge: mode, manual polls, backlog and status."""

from collections.abc import Mapping
from typing import Any

from poller.domain.facts import FactReader
from poller.domain.mode import ModeCache
from poller.domain.model import Applied, Mode, Polled, StepResult
from poller.loops.backlog import read_backlog
from poller.loops.dispatch import AccountPoller
from poller.loops.fleet import Fleet
from poller.publisher import MessageDelivery
from poller.store.postgres import PostgresSettingsStore
from poller.store.redis import RedisRoles, RedisSchedule
from servicekit.errors import Reason, ServiceError
from servicekit.logs import get_logger
from servicekit.nsq import NsqAdmin
from sluicegate.poller.v1 import poller_pb2, poller_pb2_grpc

_MODES: Mapping[int, Mode] = {
    poller_pb2.INGEST_MODE_SYNC: Mode.SYNC,
    poller_pb2.INGEST_MODE_ASYNC: Mode.ASYNC,
}
_WIRE_MODES: Mapping[Mode, Any] = {mode: number for number, mode in _MODES.items()}

_log = get_logger(__name__)


class PollerServicer(poller_pb2_grpc.PollerServiceServicer):
    """Serves PollerService.

    Args:
        settings: the stored mode.
        mode: this process's view of it.
        fleet: the dispatchers.
        facts: what is known of cards.
        delivery: applies manual polls.
        schedule: counts.
        roles: the pause.
        admin: asks nsqd.
    """

    def __init__(
        self,
        *,
        settings: PostgresSettingsStore,
        mode: ModeCache,
        fleet: Fleet,
        facts: FactReader,
        delivery: MessageDelivery,
        schedule: RedisSchedule,
        roles: RedisRoles,
        admin: NsqAdmin,
    ) -> None:
        self._settings = settings
        self._mode = mode
        self._fleet = fleet
        self._facts = facts
        self._delivery = delivery
        self._schedule = schedule
        self._roles = roles
        self._admin = admin

    async def GetMode(  # noqa: N802
        self, request: poller_pb2.GetModeRequest, context: Any
    ) -> poller_pb2.GetModeResponse:
        """Read the stored mode."""
        del request, context
        stored = await self._settings.mode()
        return poller_pb2.GetModeResponse(
            mode=_WIRE_MODES[stored.mode], actor=stored.actor, updated_at=stored.updated_at
        )

    async def SetMode(  # noqa: N802
        self, request: poller_pb2.SetModeRequest, context: Any
    ) -> poller_pb2.SetModeResponse:
        """Store the mode; this replica follows at once, the others within the cache's 5 s."""
        del context
        mode = _MODES[request.mode]
        previous = await self._settings.set_mode(mode, actor=request.actor, reason=request.reason)
        self._mode.put(mode)
        _log.info("ingest mode set", mode=mode.value, previous=previous.value, actor=request.actor)
        return poller_pb2.SetModeResponse(mode=request.mode, previous=_WIRE_MODES[previous])

    async def PollCard(  # noqa: N802
        self, request: poller_pb2.PollCardRequest, context: Any
    ) -> poller_pb2.PollCardResponse:
        """Poll one card now and apply what was observed before answering."""
        del context
        poller = await self._poller_of(request.card_id)
        result = await poller.poll_now(request.card_id)
        if result.others:
            await self._delivery.records(result.others)
        observations = result.observations
        applied = await self._delivery.apply(observations) if observations else []
        outcomes = {item.observation_id: outcome for item, outcome in zip(observations, applied, strict=True)}
        return poller_pb2.PollCardResponse(
            steps=[_step(item, outcomes.get(item.observation_id), result) for item in result.polled]
        )

    async def GetBacklog(  # noqa: N802
        self, request: poller_pb2.GetBacklogRequest, context: Any
    ) -> poller_pb2.GetBacklogResponse:
        """Say what waits where; what can't be asked is marked as unknown."""
        del request, context
        response = poller_pb2.GetBacklogResponse(broker_known=True)
        try:
            backlogs = await read_backlog(self._admin)
        except ServiceError:
            backlogs, response.broker_known = [], False
        for item in backlogs:
            response.topics.add(
                topic=item.topic,
                channel=item.channel,
                depth=item.depth,
                in_flight_count=item.in_flight,
                deferred_count=item.deferred,
            )
        for account_id in self._fleet.account_ids:
            _, due, late_ms = await self._schedule.counts(account_id)
            response.due_card_count += due
            response.oldest_due_ms = max(response.oldest_due_ms, late_ms)
        response.pause_reason = await self._roles.pause_reason()
        response.paused = bool(response.pause_reason)
        return response

    async def GetStatus(  # noqa: N802
        self, request: poller_pb2.GetStatusRequest, context: Any
    ) -> poller_pb2.GetStatusResponse:
        """Say how polling goes per account in this process."""
        del request, context
        return poller_pb2.GetStatusResponse(
            accounts=[await self._status(poller) for poller in self._fleet.pollers]
        )

    async def _poller_of(self, card_id: str) -> AccountPoller:
        facts = await self._facts.read([card_id])
        if facts.undecided:
            raise ServiceError(Reason.DEPENDENCY_AWAY, "ingest_service can't be asked about the card")
        card = facts.found.get(card_id)
        if card is None:
            raise ServiceError(Reason.NOT_FOUND, f"no card {card_id}")
        if card.lifecycle == "retired":
            raise ServiceError(Reason.WRONG_STATE, f"card {card_id} is retired")
        return self._fleet.poller_of(card.account_id)

    async def _status(self, poller: AccountPoller) -> poller_pb2.AccountStatus:
        total, due, _ = await self._schedule.counts(poller.account.account_id)
        return poller_pb2.AccountStatus(
            account_id=poller.account.account_id,
            card_count=total,
            due_card_count=due,
            held_slots=poller.held_slots,
            in_flight_count=poller.in_flight_count,
            success_count=poller.success_count,
            failure_count=poller.failure_count,
            blocked_reason=poller.blocked_reason,
        )


def _step(item: Polled, applied: Applied | None, result: StepResult) -> poller_pb2.PollStep:
    outcome, message = item.outcome, item.error
    if applied is not None:
        outcome, message = applied.outcome, applied.message
    elif item.error:
        message = next((str(error) for error in result.failures if error.kind == item.error), item.error)
    return poller_pb2.PollStep(
        kind=item.kind,
        observation_id="" if item.error else str(item.observation_id),
        outcome=outcome,
        message=message,
        latency_ms=item.latency_ms,
    )
