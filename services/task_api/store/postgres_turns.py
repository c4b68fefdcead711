"""Turns and marks in PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from servicekit.postgres import Postgres, load_sql
from task_api.domain.turns import Given, Pair


class PostgresTurns:
    """The tables ``channel_turn`` and ``channel_mark``."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    async def read(self, pairs: Sequence[Pair]) -> Mapping[Pair, int]:
        """Return the ends of tenants' last tasks."""
        return _lasts(await self._database.pool.fetch(_sql("read_turns"), *_columns(pairs)))

    async def add(self, given: Sequence[Given]) -> Mapping[Pair, int]:
        """Add what was given here; answer where the tenants stand with everybody's."""
        rows = await self._database.pool.fetch(
            _sql("add_turns"),
            *_columns([item.pair for item in given]),
            [item.last for item in given],
            [item.added for item in given],
        )
        return _lasts(rows)

    async def move_marks(self, marks: Mapping[str, int]) -> Mapping[str, int]:
        """Say how far claims have come; answer how far they have for everybody."""
        rows = await self._database.pool.fetch(_sql("move_marks"), list(marks), list(marks.values()))
        return {row["channel"]: row["mark"] for row in rows}

    async def weights(self) -> Mapping[str, int]:
        """Return the weights that are not the ordinary one."""
        return {row["name"]: row["weight"] for row in await self._database.pool.fetch(_sql("read_weights"))}

    async def drop(self) -> None:
        """Forget turns that the mark has passed."""
        await self._database.pool.execute(_sql("drop_turns"))


def _sql(name: str) -> str:
    return load_sql(__name__, name)


def _columns(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    return [pair.channel for pair in pairs], [pair.tenant for pair in pairs]


def _lasts(rows: Sequence[Any]) -> dict[Pair, int]:
    return {Pair(row["channel"], row["tenant"]): row["last_tag"] for row in rows}
