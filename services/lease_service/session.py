"""The edge of sessions: messages of one stream into operations, answers that are ready together into one message."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import Any

from lease_service.domain.model import Attempt, RenewResult
from lease_service.domain.session import (
    Answer,
    Extend,
    GiveBack,
    Loss,
    Operation,
    Session,
    Sessions,
    Take,
)
from lease_service.domain.slots import Slots
from lease_service.domain.waiting_room import WaitingRoom
from lease_service.messages import (
    claim_of,
    error_of,
    granted_of,
    releases_of,
    renew_items_of,
    renewals_of,
    wait_of,
)
from servicekit.errors import Reason, ServiceError, invalid_field
from servicekit.failures import service_error
from servicekit.logs import get_logger
from servicekit.telemetry import Metric, counter, histogram
from sluicegate.lease.v1 import lease_pb2 as wire

_MOST_RESULTS = 500

_log = get_logger(__name__)


class SessionStream:
    """One session.

    Args:
        slots: what callers may do.
        waiting: where acquires wait.
        sessions: told of the session while it lives.
    """

    def __init__(self, slots: Slots, waiting: WaitingRoom, sessions: Sessions) -> None:
        self._session = Session(slots, waiting, self._put)
        self._sessions = sessions
        self._results: list[wire.SessionResult] = []
        self._ready = asyncio.Event()
        self._over = False
        self._failure: Exception | None = None

    async def serve(
        self, requests: AsyncIterator[wire.SessionRequest]
    ) -> AsyncGenerator[wire.SessionResponse, None]:
        """Answer until the caller has said its last word or goes away.

        Raises:
            ServiceError: INVALID_FIELD for an item without an operation; DEPENDENCY_AWAY when the service stops.
        """
        tasks = [asyncio.create_task(self._read(requests)), asyncio.create_task(self._session.watch())]
        self._sessions.add(self._session)
        try:
            while await self._something():
                results, self._results = self._results[:_MOST_RESULTS], self._results[_MOST_RESULTS:]
                yield wire.SessionResponse(results=results)
            if self._failure is not None:
                raise self._failure
        finally:
            self._sessions.remove(self._session)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._session.close()

    async def _read(self, requests: AsyncIterator[wire.SessionRequest]) -> None:
        try:
            async for request in requests:
                await self._session.take([_operation(item) for item in request.items])
            await self._session.settle()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - handed to the answering side, which ends the stream with it
            self._failure = error
        self._end()

    async def _something(self) -> bool:
        while not self._results and not self._over:
            self._ready.clear()
            await self._ready.wait()
        return bool(self._results)

    def _end(self) -> None:
        self._over = True
        self._ready.set()

    def _put(self, request_id: int, answer: Answer) -> None:
        if request_id == 0 and isinstance(answer, Exception):
            self._failure = answer
            self._end()
            return
        self._results.append(_result(request_id, answer))
        self._ready.set()


def _operation(item: wire.SessionItem) -> Operation:
    if item.request_id == 0:
        raise invalid_field("request_id", "is required")
    match item.WhichOneof("operation"):
        case "acquire":
            asked = item.acquire
            return Take(
                item.request_id, claim_of(asked), asked.token, wait_of(asked) if asked.wait_ms else None
            )
        case "renew":
            return Extend(item.request_id, item.renew.pool, renew_items_of(item.renew))
        case "release":
            return GiveBack(item.request_id, item.release.pool, list(item.release.tokens))
        case _:
            raise invalid_field("operation", "is required")


def _result(request_id: int, answer: Answer) -> wire.SessionResult:
    if isinstance(answer, Attempt):
        _count("acquire", [answer.outcome.name])
        note_wait(answer)
        return wire.SessionResult(request_id=request_id, acquire=granted_of(answer))
    if isinstance(answer, Loss):
        _count("loss", ["lost"])
        return wire.SessionResult(loss=wire.SessionLoss(pool=answer.pool, token=answer.token))
    if isinstance(answer, Exception):
        error = _known(answer)
        _count("session", [error.reason.value])
        return wire.SessionResult(request_id=request_id, error=error_of(error))
    return _list_result(request_id, answer)


def _list_result(request_id: int, answer: Sequence[Any]) -> wire.SessionResult:
    if answer and isinstance(answer[0], RenewResult):
        _count("renew", (result.outcome.name for result in answer))
        return wire.SessionResult(request_id=request_id, renew=renewals_of(answer))
    _count("release", ("FREED" if result.freed else "NOT_HELD" for result in answer))
    return wire.SessionResult(request_id=request_id, release=releases_of(answer))


def _known(error: Exception) -> ServiceError:
    known = service_error(error)
    if known is None:
        _log.error("a call on a session failed", exc_info=error)
        return ServiceError(Reason.INTERNAL, "an internal error; the service's log has it")
    return known


def note_wait(attempt: Attempt) -> None:
    """Measure how long a granted request had waited; 0 for one that was granted at once."""
    if attempt.held:
        histogram(Metric.SLOT_WAIT_SECONDS).observe(attempt.waited_ms / 1000)


def _count(operation: str, outcomes: Iterable[str]) -> None:
    for outcome in outcomes:
        counter(Metric.SLOT_REQUESTS).labels(operation, outcome.lower()).inc()
