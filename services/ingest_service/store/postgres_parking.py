"""Messages that are not applied yet: those that wait, and those that a person has to look at."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ingest_service.domain.explaining import Whereabouts
from servicekit.errors import Reason, ServiceError
from servicekit.ids import uuid7_time
from servicekit.postgres import Postgres, load_sql

_PACKAGE = "ingest_service"
_SHOWN_BODY_BYTES = 8192
_MOST_REASON_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that is due to be tried again."""

    retry_id: int
    body: bytes
    attempts: int
    observation_id: UUID | None
    first_failed_at: datetime


class ParkingStore:
    """Quarantine, retries, and what is known of one observation. Methods raise what the driver raises."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

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
        """Keep a message for a person; the same body again shares the row."""
        await self._postgres.pool.execute(
            _sql("insert_quarantine"),
            _digest(body),
            body,
            observation_id,
            _storable(card_id),
            _storable(reason)[:_MOST_REASON_CHARACTERS],
            sqlstate,
            now,
        )

    async def list_quarantine(self, *, before: int, limit: int) -> list[dict[str, Any]]:
        """Return quarantined rows, newest first, with at most 8 KiB of each body."""
        rows = await self._postgres.pool.fetch(_sql("list_quarantine"), before, limit, _SHOWN_BODY_BYTES)
        return [dict(row) for row in rows]

    async def quarantined_bodies(self, quarantine_ids: Sequence[int]) -> dict[int, bytes]:
        """Return the bodies of rows that were not replayed. Raises ServiceError NOT_FOUND when one does not exist."""
        rows = await self._postgres.pool.fetch(_sql("get_quarantined"), list(quarantine_ids))
        missing = sorted(set(quarantine_ids) - {row["quarantine_id"] for row in rows})
        if missing:
            raise ServiceError(Reason.NOT_FOUND, f"not in the quarantine: {', '.join(map(str, missing))}")
        return {row["quarantine_id"]: row["body"] for row in rows if not row["replayed"]}

    async def mark_replayed(self, quarantine_ids: Sequence[int], *, actor: str, now: datetime) -> None:
        """Say who replayed rows with success."""
        await self._postgres.pool.execute(_sql("mark_replayed"), list(quarantine_ids), actor, now)

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
        """Let a message wait until ``due_at``, and until a reader of ``parked_major`` runs."""
        await self._postgres.pool.execute(
            _sql("put_retry"),
            _digest(body),
            body,
            observation_id,
            parked_major,
            _storable(error)[:_MOST_REASON_CHARACTERS],
            now,
            due_at,
        )

    async def claim_retries(
        self, *, now: datetime, again_at: datetime, major: int, limit: int
    ) -> list[Waiting]:
        """Claim due messages; they are due again at ``again_at`` unless settled before."""
        rows = await self._postgres.pool.fetch(_sql("claim_retries"), now, major, limit, again_at)
        return [
            Waiting(
                row["retry_id"], row["body"], row["attempts"], row["observation_id"], row["first_failed_at"]
            )
            for row in rows
        ]

    async def delete_retry(self, retry_id: int) -> None:
        """Forget a message that is settled."""
        await self._postgres.pool.execute(_sql("delete_retry"), retry_id)

    async def put_off_retry(
        self, retry_id: int, *, attempts: int, error: str, due_at: datetime, parked_major: int = 0
    ) -> None:
        """Let a message wait longer."""
        await self._postgres.pool.execute(
            _sql("put_off_retry"),
            retry_id,
            attempts,
            _storable(error)[:_MOST_REASON_CHARACTERS],
            due_at,
            parked_major,
        )

    async def explain(self, observation_id: UUID) -> Whereabouts:
        """Return what the inbox, the quarantine, the retries and the outbox know of an observation."""
        row = await self._postgres.pool.fetchrow(
            _sql("explain_observation"), observation_id, uuid7_time(observation_id)
        )
        if row is None:
            return Whereabouts()
        return Whereabouts(
            card_id=row["card_id"] or row["quarantine_card_id"] or "",
            outcome=row["outcome"] or "",
            applied_at=row["applied_at"],
            increment_bytes=row["increment_bytes"] or 0,
            quarantine_reason=row["quarantine_reason"] or "",
            retry_at=row["retry_at"],
            events=row["events"] or (),
        )


def _sql(name: str) -> str:
    return load_sql(_PACKAGE, name)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _storable(text: str) -> str:
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
