"""Applying a batch whatever the database says: again, in halves, down to the one row that can't be stored."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Protocol
from uuid import UUID

from ingest_service.domain.deciding import Window
from ingest_service.domain.observations import Observation, Outcome, Result
from ingest_service.domain.state import Changes
from servicekit.clock import Clock
from servicekit.errors import ServiceError
from servicekit.ids import uuid7_time

_MOST_IMMEDIATE_RETRIES = 3
_RETRY_PAUSE_SECONDS = 0.02


class FailureKind(Enum):
    """What a failed write means; decided by SQLSTATE."""

    RETRY_NOW = "retry_now"
    RETRY_LATER = "retry_later"
    AWAY = "away"
    DATA = "data"
    NO_PARTITION = "no_partition"
    UNKNOWN = "unknown"


class StoreError(Exception):
    """The database refused a batch; nothing of it is stored."""

    def __init__(self, kind: FailureKind, message: str, *, sqlstate: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.sqlstate = sqlstate


@dataclass(frozen=True, slots=True)
class Deferred:
    """An observation that could not be applied now and may be later; nothing of it is stored."""

    observation: Observation
    error: StoreError


@dataclass(frozen=True, slots=True)
class Held:
    """An observation whose effect or whose collection record waits for a dependency that is away."""

    observation: Observation
    error: Exception


Verdict = Result | Deferred | Held


class ApplyStore(Protocol):
    """Where observations are applied."""

    async def apply(self, observations: Sequence[Observation], *, now: datetime, window: Window) -> Changes:
        """Apply observations with different ids in one transaction and return what was stored.

        Blocks for the transaction. Raises StoreError; then nothing is stored.
        """
        ...

    async def create_partition(self, day: date) -> None:
        """Make room for a day. Raises StoreError."""
        ...


class AfterCommit(Protocol):
    """What must follow a commit before a message may be finished."""

    async def run(self, changes: Changes, *, started_at: datetime) -> None:
        """Hand on collection records and write caches.

        Blocks until the records are safe. Raises ServiceError when they are not: then the same observations come
        again, are duplicates, and their records are handed on again.
        """
        ...


class Applier:
    """Applies observations, and turns every failure into a verdict on one observation."""

    def __init__(self, store: ApplyStore, after: AfterCommit, *, clock: Clock, window: Window) -> None:
        self._store = store
        self._after = after
        self._clock = clock
        self._window = window

    async def apply(self, observations: Sequence[Observation]) -> dict[UUID, Verdict]:
        """Apply observations with different ids; each gets exactly one verdict. Raises nothing but cancellation."""
        verdicts: dict[UUID, Verdict] = {}
        await self._apply(list(observations), verdicts, attempt=0)
        return verdicts

    async def _apply(self, batch: list[Observation], verdicts: dict[UUID, Verdict], *, attempt: int) -> None:
        started_at = self._clock.now()
        try:
            changes = await self._store.apply(batch, now=started_at, window=self._window)
        except StoreError as error:
            await self._recover(batch, verdicts, error, attempt)
            return
        try:
            await self._after.run(changes, started_at=started_at)
        except ServiceError as error:
            verdicts.update((item.observation_id, Held(item, error)) for item in batch)
            return
        verdicts.update((result.observation.observation_id, result) for result in changes.results)

    async def _recover(
        self, batch: list[Observation], verdicts: dict[UUID, Verdict], error: StoreError, attempt: int
    ) -> None:
        match error.kind:
            case FailureKind.AWAY:
                verdicts.update((item.observation_id, Held(item, error)) for item in batch)
            case FailureKind.RETRY_NOW if attempt < _MOST_IMMEDIATE_RETRIES:
                await self._clock.sleep(_RETRY_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311
                await self._apply(batch, verdicts, attempt=attempt + 1)
            case FailureKind.NO_PARTITION if attempt == 0:
                await self._make_room(batch, verdicts)
            case _ if len(batch) > 1 and error.kind is not FailureKind.UNKNOWN:
                middle = len(batch) // 2
                await self._apply(batch[:middle], verdicts, attempt=attempt)
                await self._apply(batch[middle:], verdicts, attempt=attempt)
            case FailureKind.DATA | FailureKind.NO_PARTITION:
                verdicts.update((item.observation_id, _quarantined(item, error)) for item in batch)
            case _:
                verdicts.update((item.observation_id, Deferred(item, error)) for item in batch)

    async def _make_room(self, batch: list[Observation], verdicts: dict[UUID, Verdict]) -> None:
        """Create the partitions of the batch's days; all lie inside the window, or the write would not have come."""
        try:
            for day in sorted({uuid7_time(item.observation_id).date() for item in batch}):
                await self._store.create_partition(day)
        except StoreError as error:
            await self._recover(batch, verdicts, error, attempt=1)
            return
        await self._apply(batch, verdicts, attempt=1)


def _quarantined(observation: Observation, error: StoreError) -> Result:
    return Result(
        observation=observation,
        outcome=Outcome.QUARANTINED,
        account_id=observation.account_id,
        message=error.message,
        sqlstate=error.sqlstate,
    )
