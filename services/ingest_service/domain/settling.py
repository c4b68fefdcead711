"""What has to be kept of an observation that was not applied, before its message may be finished."""

import random
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ingest_service.domain.applying import Deferred
from ingest_service.domain.ladder import wait_before
from ingest_service.domain.observations import Outcome, Result
from servicekit.clock import Clock


class Parking(Protocol):
    """Where observations wait, and where a person finds what can't be stored."""

    async def keep_bad(
        self,
        body: bytes,
        *,
        reason: str,
        now: datetime,
        observation_id: UUID | None = None,
        card_id: str = "",
        sqlstate: str = "",
    ) -> None:
        """Put a message into the quarantine; the same body again shares the row."""
        ...

    async def put_retry(
        self,
        body: bytes,
        *,
        observation_id: UUID | None,
        error: str,
        now: datetime,
        due_at: datetime,
        parked_major: int = 0,
    ) -> None:
        """Let a message wait; the same body again changes nothing."""
        ...


class Settler:
    """Keeps what was not applied. Methods raise what the store raises."""

    def __init__(self, parking: Parking, clock: Clock) -> None:
        self._parking = parking
        self._clock = clock

    async def settle(self, answer: Result | Deferred, body: bytes) -> None:
        """Keep a quarantined or deferred observation; do nothing for all others."""
        if isinstance(answer, Deferred):
            await self.defer(answer, body)
        elif answer.outcome is Outcome.QUARANTINED:
            await self.quarantine(
                body,
                reason=answer.message,
                observation_id=answer.observation.observation_id,
                card_id=answer.observation.card_id,
                sqlstate=answer.sqlstate,
            )

    async def quarantine(
        self,
        body: bytes,
        *,
        reason: str,
        observation_id: UUID | None = None,
        card_id: str = "",
        sqlstate: str = "",
    ) -> None:
        """Keep a message for a person."""
        await self._parking.keep_bad(
            body,
            reason=reason,
            now=self._clock.now(),
            observation_id=observation_id,
            card_id=card_id,
            sqlstate=sqlstate,
        )

    async def defer(self, deferred: Deferred, body: bytes) -> None:
        """Let an observation wait on the first step of the ladder."""
        now = self._clock.now()
        await self._parking.put_retry(
            body,
            observation_id=deferred.observation.observation_id,
            error=deferred.error.message,
            now=now,
            due_at=now + wait_before(1, chance=random.random()),  # noqa: S311 - spreads load
        )

    async def park(self, body: bytes, *, major: int, reason: str) -> None:
        """Let a message of a later version wait for its reader."""
        now = self._clock.now()
        await self._parking.put_retry(
            body, observation_id=None, error=reason, now=now, due_at=now, parked_major=major
        )
