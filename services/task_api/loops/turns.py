"""Brings the fair order of several processes together."""

from task_api.domain.turns import Turns

_DROP_ROUNDS = 120


class TurnSync:
    """One round tells what this process has given and learns what others have; every 120th forgets what is passed."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._rounds = 0

    async def run_once(self) -> None:
        """Sync."""
        await self._turns.sync()
        self._rounds += 1
        if self._rounds % _DROP_ROUNDS == 0:
            await self._turns.drop()
