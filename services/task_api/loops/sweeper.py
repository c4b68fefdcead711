"""Returns tasks whose claims have expired, and ends waiting ones whose deadline has passed."""

from task_api.domain.claims import Claims

BATCH = 500


class Sweeper:
    """One round ends at most 500 claims and 500 late tasks."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    async def run_once(self) -> bool:
        """Sweep; answer whether more may be waiting."""
        swept = await self._claims.sweep(BATCH)
        late = await self._claims.expire_deadlines(BATCH)
        return BATCH in (swept, late)
