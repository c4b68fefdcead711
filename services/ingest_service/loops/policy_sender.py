"""Sends the limits of accounts until the lease service has taken them."""

from ingest_service.domain.administration import Accounts
from servicekit.logs import get_logger

_log = get_logger(__name__)


class PolicySender:
    """Carries out capacity requests that were stored while lease_service was away."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def run_once(self) -> None:
        """Send what is not confirmed; raises ServiceError while lease_service is away."""
        sent = await self._accounts.reconcile()
        if sent:
            _log.info("limits of accounts were sent", count=sent)
