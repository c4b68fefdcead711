"""Makes deferred tasks runnable when their time has come."""

from task_api.domain.claims import Claims

BATCH = 500


class Promoter:
    """One round promotes at most 500 tasks."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    async def run_once(self) -> bool:
        """Promote; answer whether more may be due."""
        return await self._claims.promote(BATCH) == BATCH
