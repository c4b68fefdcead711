"""Settings that operators change at run time, and their audit, in PostgreSQL."""

from dataclasses import dataclass
from datetime import datetime

from poller.domain.model import Mode
from servicekit.postgres import Postgres, load_sql

_PACKAGE = "poller"
_MODE = "ingest_mode"


@dataclass(frozen=True, slots=True)
class StoredMode:
    """The mode, who set it and when; None for a mode that nobody set."""

    mode: Mode
    actor: str
    updated_at: datetime | None


class PostgresSettingsStore:
    """Keeps ``poll_setting`` and ``poll_audit``.

    Args:
        postgres: the process's pool.
    """

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def mode(self) -> StoredMode:
        """Read the ingest mode; ``sync`` when nobody set it."""
        row = await self._postgres.pool.fetchrow(load_sql(_PACKAGE, "get_setting"), _MODE)
        if row is None:
            return StoredMode(Mode.SYNC, "", None)
        return StoredMode(Mode(row["value"]), row["actor"], row["updated_at"])

    async def set_mode(self, mode: Mode, *, actor: str, reason: str) -> Mode:
        """Store the ingest mode with an audit row and return the mode before."""
        async with self._postgres.transaction() as connection:
            previous = await connection.fetchval(load_sql(_PACKAGE, "lock_setting"), _MODE)
            before = Mode(previous) if previous is not None else Mode.SYNC
            await connection.execute(load_sql(_PACKAGE, "set_setting"), _MODE, mode.value, actor)
            await connection.execute(
                load_sql(_PACKAGE, "add_audit"), _MODE, before.value, mode.value, actor, reason
            )
        return before
