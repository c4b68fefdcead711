"""Where a step learns whether a card is to be polled: the cache first, its owner for what is missing there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from poller.domain.model import CardFacts
from servicekit.errors import ServiceError


class FactCache(Protocol):
    """Facts as their owner wrote them through."""

    async def read(self, card_ids: Sequence[str]) -> dict[str, CardFacts]:
        """Return the facts that are there. Raises what the driver raises."""
        ...


class FactOwner(Protocol):
    """The service that owns the facts."""

    async def facts(self, card_ids: Sequence[str]) -> dict[str, CardFacts]:
        """Return the facts of these cards; unknown cards are left out. Raises ServiceError."""
        ...


@dataclass(frozen=True, slots=True)
class FactsRead:
    """What is known. A card that is neither found nor undecided does not exist."""

    found: dict[str, CardFacts]
    undecided: set[str] = field(default_factory=set)


class FactReader:
    """Reads facts at each step.

    Args:
        cache: asked first.
        owner: asked for what the cache has not.
        on_failure: told why the owner could not be asked; then those cards are undecided.
    """

    def __init__(
        self, cache: FactCache, owner: FactOwner, on_failure: Callable[[ServiceError], None]
    ) -> None:
        self._cache = cache
        self._owner = owner
        self._on_failure = on_failure

    async def read(self, card_ids: Sequence[str]) -> FactsRead:
        """Return what is known of these cards. Raises what the cache raises."""
        found = await self._cache.read(card_ids)
        missing = [card_id for card_id in card_ids if card_id not in found]
        if not missing:
            return FactsRead(found)
        try:
            found |= await self._owner.facts(missing)
        except ServiceError as error:
            self._on_failure(error)
            return FactsRead(found, set(missing))
        return FactsRead(found)
