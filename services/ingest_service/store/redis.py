"""Caches in Redis: marks of what was applied, and the facts of cards that a poll step reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from redis.exceptions import NoScriptError, RedisError

from ingest_service.domain.fleet import Card
from ingest_service.store import keys
from servicekit.errors import Reason, ServiceError
from servicekit.redis import Redis, Script

_AWAY = (RedisError, OSError, EOFError, RuntimeError)
"""What a lost connection looks like; uvloop raises RuntimeError when a transport is closed under a write."""
_DONE_LIFETIME = timedelta(hours=48)
_FACTS_LIFETIME = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a poll step has to know of a card."""

    card_id: str
    version: int
    account_id: str
    lifecycle: str
    polling_enabled: bool
    network_status: str
    realname_status: str


class Caches:
    """What ingest_service keeps in Redis; all of it can be lost."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._write_facts = Script("ingest_service", "write_card_facts", redis)

    async def write(self, *, done: Sequence[UUID], facts: Sequence[CardFacts]) -> None:
        """Mark observations as applied and write card facts through, in one round trip.

        Blocks at most for the socket timeout. Raises ServiceError DEPENDENCY_AWAY.
        """
        if not done and not facts:
            return
        try:
            await self._write_loaded(done, facts)
        except _AWAY as error:
            raise ServiceError(
                Reason.DEPENDENCY_AWAY, "stored, but Redis is away: polls may see old facts; save again"
            ) from error

    async def write_cards(self, cards: Sequence[Card]) -> None:
        """Write the facts of cards; raises ServiceError DEPENDENCY_AWAY when Redis is away."""
        facts = [
            CardFacts(
                card_id=card.card_id,
                version=card.version,
                account_id=card.account_id,
                lifecycle=card.lifecycle,
                polling_enabled=card.polling_enabled,
                network_status=card.network_status,
                realname_status=card.realname_status,
            )
            for card in cards
        ]
        await self.write(done=(), facts=facts)

    async def known(self, observation_ids: Sequence[UUID]) -> set[UUID]:
        """Return which of these are marked as applied; none while Redis is away."""
        try:
            values = await self._redis.client.mget([keys.done_mark(item) for item in observation_ids])
        except _AWAY:
            return set()
        return {item for item, value in zip(observation_ids, values, strict=True) if value is not None}

    async def _write_loaded(self, done: Sequence[UUID], facts: Sequence[CardFacts]) -> None:
        try:
            await self._write(done, facts)
        except NoScriptError:
            await self._write_facts.load()
            await self._write(done, facts)

    async def _write(self, done: Sequence[UUID], facts: Sequence[CardFacts]) -> None:
        async with self._redis.client.pipeline(transaction=False) as pipeline:
            for observation_id in done:
                pipeline.set(keys.done_mark(observation_id), b"1", ex=_DONE_LIFETIME)
            for card in facts:
                self._write_facts.queue(pipeline, keys=[keys.card_facts(card.card_id)], args=_arguments(card))
            await pipeline.execute()


def _arguments(card: CardFacts) -> list[str | int]:
    return [
        card.version,
        card.account_id,
        card.lifecycle,
        int(card.polling_enabled),
        card.network_status,
        card.realname_status,
        int(_FACTS_LIFETIME.total_seconds()),
    ]
