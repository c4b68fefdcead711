"""Keeps the schedule in step with the fleet, and one dispatcher running per account."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from poller.clients import IngestClient
from poller.domain.coverage import find_gaps
from poller.domain.model import Account, ListedCard
from poller.loops.dispatch import AccountPoller, Tools
from poller.settings import SyncSettings
from poller.store.redis import RedisRoles, RedisSchedule
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError
from servicekit.logs import get_logger
from servicekit.metrics import Metric, counter

_ALIVE_ROUNDS = 4
_STRETCH = 20.0

_log = get_logger(__name__)


class Fleet:
    """The accounts that this replica polls. A Component: its dispatchers start and stop with it.

    Args:
        ingest: names the accounts.
        roles: counts the replicas, who share an account's slots.
        tools: for the dispatchers.
        alive: after what time a silent replica no longer counts.
    """

    name = "fleet"

    def __init__(self, ingest: IngestClient, roles: RedisRoles, tools: Tools, alive: timedelta) -> None:
        self._ingest = ingest
        self._roles = roles
        self._tools = tools
        self._alive = alive * _ALIVE_ROUNDS
        self._pollers: dict[str, AccountPoller] = {}
        self._known: dict[str, Account] = {}
        self._open = True

    @property
    def pollers(self) -> list[AccountPoller]:
        """The dispatchers in order of account."""
        return [self._pollers[account_id] for account_id in sorted(self._pollers)]

    @property
    def account_ids(self) -> list[str]:
        """Every known account, in order."""
        return sorted(self._known)

    def poller_of(self, account_id: str) -> AccountPoller:
        """Return an account's dispatcher. Raises ServiceError WRONG_STATE when it is not polled."""
        poller = self._pollers.get(account_id)
        if poller is None:
            raise ServiceError(
                Reason.WRONG_STATE, f"account {account_id} is not polled: it is disabled or not known yet"
            )
        return poller

    async def run_once(self) -> None:
        """Start, change and end dispatchers as the accounts say. Raises ServiceError when they can't be listed."""
        replica_count = await self._roles.replica_count(self._alive)
        accounts = {account.account_id: account for account in await self._ingest.accounts()}
        self._known = accounts
        for account in accounts.values():
            if account.enabled:
                await self._keep(account, replica_count)
        for account_id in list(self._pollers):
            if account_id not in accounts or not accounts[account_id].enabled:
                await self._end(account_id)

    async def start(self) -> None:
        """Do nothing: dispatchers start with the first list of accounts."""

    async def drain(self) -> None:
        """Let every dispatcher finish what it holds."""
        self._open = False
        await asyncio.gather(*(poller.drain() for poller in self._pollers.values()))
        await self._roles.leave()

    async def stop(self) -> None:
        """End every dispatcher at once."""
        await asyncio.gather(*(poller.stop() for poller in self._pollers.values()))

    async def _keep(self, account: Account, replica_count: int) -> None:
        poller = self._pollers.get(account.account_id)
        if poller is None:
            if not self._open:
                return
            poller = AccountPoller(account, self._tools)
            self._pollers[account.account_id] = poller
            await poller.start()
            _log.info("account is polled", account_id=account.account_id, poll_limit=account.poll_limit)
        poller.change(account, replica_count)

    async def _end(self, account_id: str) -> None:
        poller = self._pollers.pop(account_id)
        _log.info("account is no longer polled", account_id=account_id)
        await poller.drain()
        await poller.stop()


class ScheduleSync:
    """Compares the schedule with the fleet; one replica at a time does it.

    Args:
        ingest: names the cards that are to be polled.
        schedule: is kept in step.
        roles: decides whose turn it is.
        ingest_backlog: says how many messages wait for ingest_service; None when that is unknown.
        settings: how often, and how much is polled again.
        clock: measures how long it takes.
    """

    def __init__(
        self,
        ingest: IngestClient,
        schedule: RedisSchedule,
        roles: RedisRoles,
        *,
        ingest_backlog: Callable[[], Awaitable[int | None]],
        settings: SyncSettings,
        clock: Clock,
    ) -> None:
        self._ingest = ingest
        self._ingest_backlog = ingest_backlog
        self._settings = settings
        self._schedule = schedule
        self._roles = roles
        self._every = settings.cards_every
        self._clock = clock
        self._next_at = float("-inf")
        self.gap_count = 0
        """Cards found whose observations were handed on but not applied within two intervals, since the start."""

    async def run_once(self) -> None:
        """Compare every account. Raises ServiceError when the fleet can't be listed; then nothing was taken off."""
        if self._clock.monotonic() < self._next_at or not await self._roles.take_sync_turn(self._every * 4):
            return
        began = self._clock.monotonic()
        for account in await self._ingest.accounts():
            await self._sync(account)
        took = self._clock.monotonic() - began
        self._next_at = self._clock.monotonic() + max(0.0, _STRETCH * took - self._every.total_seconds())

    async def _sync(self, account: Account) -> None:
        cards: set[str] = set()
        overdue: list[str] = []
        added = 0
        if account.enabled:
            async for page in self._ingest.card_pages(account.account_id):
                card_ids = [card.card_id for card in page]
                cards.update(card_ids)
                added += await self._schedule.add(account.account_id, account.interval_ms, card_ids)
                overdue += await self._look_for_gaps(account, page)
        await self._poll_again(account, overdue)
        removed = await self._schedule.keep_only(account.account_id, cards)
        if added or removed:
            _log.info("schedule changed", account_id=account.account_id, added=added, removed=removed)

    async def _look_for_gaps(self, account: Account, page: list[ListedCard]) -> list[str]:
        """Find cards whose observations were handed on and not applied; return those that may be polled again now."""
        handed_on = await self._schedule.published(account.account_id, [card.card_id for card in page])
        gaps = find_gaps(page, handed_on, interval=account.poll_interval, now=self._clock.now())
        if gaps.found:
            self.gap_count += len(gaps.found)
            counter(Metric.COVERAGE_GAPS).labels(account=account.account_id).inc(len(gaps.found))
            _log.warning(
                "observations were handed on but none was applied within two intervals",
                account_id=account.account_id,
                cards=len(gaps.found),
                first=gaps.found[0],
            )
        return gaps.overdue

    async def _poll_again(self, account: Account, card_ids: list[str]) -> None:
        """Hasten cards whose observations the broker lost; none while they may only be late."""
        if not card_ids:
            return
        waiting = await self._ingest_backlog()
        if waiting is None or waiting >= self._settings.repoll_below:
            _log.info(
                "lost or late: nothing is polled again now", account_id=account.account_id, waiting=waiting
            )
            return
        hastened = await self._schedule.hasten(account.account_id, card_ids[: self._settings.repoll_limit])
        if hastened:
            _log.warning(
                "lost observations: cards are polled again", account_id=account.account_id, cards=hastened
            )
