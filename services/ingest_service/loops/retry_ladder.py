"""Tries waiting observations again, however often it takes."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

from ingest_service.domain.applying import Deferred, FailureKind
from ingest_service.domain.ladder import LOUD_FROM_ATTEMPT, QUARANTINE_COPY_AT_ATTEMPT, wait_before
from ingest_service.domain.lanes import Lanes
from ingest_service.domain.observations import Observation
from ingest_service.domain.settling import Settler
from ingest_service.store.postgres_parking import ParkingStore, Waiting
from servicekit.clock import Clock
from servicekit.errors import ServiceError
from servicekit.logs import get_logger

SUPPORTED_MAJOR = 1
_CLAIM = timedelta(minutes=2)
_log = get_logger(__name__)

Decode = Callable[[bytes], Observation]


class RetryLadder:
    """Applies what is due; what fails again waits longer, up to 5 minutes, without end."""

    def __init__(
        self,
        store: ParkingStore,
        lanes: Lanes,
        settler: Settler,
        *,
        decode: Decode,
        clock: Clock,
        batch: int,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._settler = settler
        self._decode = decode
        self._clock = clock
        self._batch = batch

    async def run_once(self) -> bool:
        """Try what is due; True when more may wait. Raises what the driver raises."""
        now = self._clock.now()
        due = await self._store.claim_retries(
            now=now, again_at=now + _CLAIM, major=SUPPORTED_MAJOR, limit=self._batch
        )
        await asyncio.gather(*(self._try(waiting) for waiting in due))
        return len(due) == self._batch

    async def _try(self, waiting: Waiting) -> None:
        try:
            observation = self._decode(waiting.body)
        except ServiceError as error:
            await self._settler.quarantine(waiting.body, reason=error.message)
            await self._store.delete_retry(waiting.retry_id)
            return
        try:
            answer = await self._lanes.apply(observation, hold=False)
        except ServiceError as error:
            await self._put_off(waiting, error.message)
            return
        if isinstance(answer, Deferred):
            await self._failed_again(waiting, answer)
            return
        await self._settler.settle(answer, waiting.body)
        await self._store.delete_retry(waiting.retry_id)

    async def _failed_again(self, waiting: Waiting, answer: Deferred) -> None:
        attempts = waiting.attempts + 1
        unknown = answer.error.kind is FailureKind.UNKNOWN
        if attempts == QUARANTINE_COPY_AT_ATTEMPT and unknown:
            await self._settler.quarantine(
                waiting.body,
                reason=f"still fails at attempt {attempts}: {answer.error.message}",
                observation_id=answer.observation.observation_id,
                card_id=answer.observation.card_id,
                sqlstate=answer.error.sqlstate,
            )
        await self._put_off(waiting, answer.error.message)

    async def _put_off(self, waiting: Waiting, problem: str) -> None:
        attempts = waiting.attempts + 1
        log = _log.error if attempts >= LOUD_FROM_ATTEMPT else _log.warning
        log(
            "observation still waits",
            observation_id=str(waiting.observation_id or ""),
            attempts=attempts,
            first_failed_at=waiting.first_failed_at.isoformat(),
            problem=problem,
        )
        wait = wait_before(attempts, chance=random.random())  # noqa: S311 - spreads load
        await self._store.put_off_retry(
            waiting.retry_id, attempts=attempts, error=problem, due_at=self._clock.now() + wait
        )
