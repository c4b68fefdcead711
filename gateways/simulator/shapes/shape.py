"""What a shape is made of: routes below an account's address, and answers built from the world."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiohttp import web

from gateways.simulator.faults import Dice, Faults
from gateways.simulator.stats import POLL
from gateways.simulator.world import SimulatedCard, World


@dataclass(frozen=True, slots=True)
class Call:
    """One request to an account's gateway, with everything an answer is built from."""

    request: web.Request
    account_id: str
    world: World
    at: datetime
    faults: Faults
    dice: Dice

    def card(self) -> SimulatedCard:
        """Return the card named in the path. Raises HTTPNotFound."""
        return self._found(self.world.cards.get((self.account_id, self.request.match_info["card_id"])))

    def card_by_sim_id(self) -> SimulatedCard:
        """Return the card whose platform number is in the path. Raises HTTPNotFound."""
        sim_id = self.request.match_info["sim_id"]
        number = int(sim_id) if sim_id.isdigit() else -1
        return self._found(self.world.by_sim_id.get((self.account_id, number)))

    def told(self, truth: int) -> int | str:
        """Return a counter as the account's gateway tells it, lies included."""
        return self.dice.lied(self.faults, truth)

    def is_empty(self) -> bool:
        """Draw whether the gateway has nothing to say yet."""
        return self.dice.happens(self.faults.empty_rate)

    def _found(self, card: SimulatedCard | None) -> SimulatedCard:
        if card is None:
            raise web.HTTPNotFound(text='{"error":"no such card"}', content_type="application/json")
        return card


@dataclass(frozen=True, slots=True)
class Answer:
    """A body, and the kind of fact it settles (None: a step on the way, or a command)."""

    body: Any
    kind: str | None = None
    status: int = 200


Answerer = Callable[[Call], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """One address of a platform below an account's address, and the lane its calls count in."""

    method: str
    path: str
    answer: Answerer
    lane: str = POLL


def megabytes(count: int | str) -> str:
    """Write bytes as decimal megabytes with six decimals; a lie that is text stays text."""
    if isinstance(count, str):
        return count
    sign, size = ("-", -count) if count < 0 else ("", count)
    return f"{sign}{size // 10**6}.{size % 10**6:06d}"
