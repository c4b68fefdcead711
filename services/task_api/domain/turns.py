"""Fair order between the tenants of a channel, given once to every task when it is stored.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): a task's place is a point of its channel's virtual time. A
tenant's next task starts where its last one ended, or where the claims of the channel have come if that is further, and
takes one turn, which is shorter the more weight the tenant has. So a long backlog pushes back only its own tenant, and
a tenant that comes back after a pause waits for nobody's backlog. A priority moves a task by a fixed number of turns:
everybody passes it in the end.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

ORDINARY_WEIGHT = 100
TURN = 1_000_000
"""Virtual time of one task of a tenant of ordinary weight."""
PRIORITY_TURNS = 60
"""Turns that one level of priority is worth."""


class Pair(NamedTuple):
    """A tenant in a channel."""

    channel: str
    tenant: str


@dataclass(frozen=True, slots=True)
class Given:
    """What this process has given to a tenant: where its last task ended, and what was added since the last sync."""

    pair: Pair
    last: int
    added: int


class TurnStore(Protocol):
    """Where the processes bring their turns together."""

    async def read(self, pairs: Sequence[Pair]) -> Mapping[Pair, int]:
        """Return the ends of tenants' last tasks."""
        ...

    async def add(self, given: Sequence[Given]) -> Mapping[Pair, int]:
        """Add what was given here; answer where the tenants stand with everybody's."""
        ...

    async def move_marks(self, marks: Mapping[str, int]) -> Mapping[str, int]:
        """Say how far claims have come; answer how far they have for everybody."""
        ...

    async def weights(self) -> Mapping[str, int]:
        """Return the weights that are not the ordinary one."""
        ...

    async def drop(self) -> None:
        """Forget turns that say nothing any more."""
        ...


@dataclass(slots=True)
class _Turn:
    last: int
    added: int = 0


class Turns:
    """Gives places and keeps count. Other processes' turns and marks, and changed weights, arrive with :meth:`sync`.

    Two processes that serve one tenant between two syncs give places from the same start; what they gave adds up at the
    sync, so the share is right over any longer time. A process that dies forgets what it gave since its last sync.
    """

    def __init__(self, store: TurnStore) -> None:
        self._store = store
        self._turns: dict[Pair, _Turn] = {}
        self._marks: dict[str, int] = {}
        self._weights: Mapping[str, int] = {}
        self._synced = False
        self._syncing = asyncio.Lock()

    async def place(self, wanted: Sequence[tuple[Pair, int]]) -> list[int]:
        """Return the places of tasks, given as (tenant in a channel, priority), in their order."""
        if not self._synced:
            await self.sync()
        unknown = list({pair for pair, _ in wanted if pair not in self._turns})
        if unknown:
            known = await self._store.read(unknown)
            for pair in unknown:
                self._turns.setdefault(pair, _Turn(known.get(pair, 0)))
        return [self._give(pair, priority) for pair, priority in wanted]

    def reached(self, channel: str, run_order: int) -> None:
        """Note that a task at this place was claimed."""
        if run_order > self._marks.get(channel, 0):
            self._marks[channel] = run_order

    async def sync(self) -> None:
        """Bring this process's turns together with those of others."""
        async with self._syncing:
            await self._sync()

    async def drop(self) -> None:
        """Forget stored turns that say nothing any more."""
        await self._store.drop()

    def _give(self, pair: Pair, priority: int) -> int:
        # The pair may have been forgotten by a sync while others were read: then the mark had passed its turn.
        turn = self._turns.setdefault(pair, _Turn(0))
        cost = TURN * ORDINARY_WEIGHT // self._weights.get(pair.tenant, ORDINARY_WEIGHT)
        start = max(turn.last, self._marks.get(pair.channel, 0))
        turn.last = start + cost
        turn.added += cost
        return start - priority * PRIORITY_TURNS * TURN

    async def _sync(self) -> None:
        self._weights = await self._store.weights()
        for channel, mark in (await self._store.move_marks(dict(self._marks))).items():
            self.reached(channel, mark)
        self._synced = True
        given = [Given(pair, turn.last, turn.added) for pair, turn in self._turns.items() if turn.added]
        if given:
            await self._add(given)
        self._forget()

    async def _add(self, given: Sequence[Given]) -> None:
        for item in given:
            self._turns[item.pair].added -= item.added
        try:
            together = await self._store.add(given)
        except BaseException:
            for item in given:
                self._turns[item.pair].added += item.added
            raise
        for pair, last in together.items():
            turn = self._turns[pair]
            turn.last = max(turn.last, last + turn.added)

    def _forget(self) -> None:
        passed = [
            pair
            for pair, turn in self._turns.items()
            if not turn.added and turn.last <= self._marks.get(pair.channel, 0)
        ]
        for pair in passed:
            del self._turns[pair]
