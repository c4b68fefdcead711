"""Accounts and cards as operators change them: stored, audited, and made known before the answer."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ingest_service.domain.fleet import Account, Card, Refused, check_accounts, slot_pool
from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A capacity that lease_service has to store."""

    account_id: str
    scope: str
    capacity: int
    actor: str
    request_id: UUID


@dataclass(frozen=True, slots=True)
class SavedCards:
    """What became of cards that were to be saved; ``cards`` are those that were, as stored."""

    created_count: int
    updated_count: int
    refused: Sequence[Refused]
    cards: Sequence[Card]


class FleetStore(Protocol):
    """Where accounts and cards are kept. Methods block for one transaction and raise what the driver raises."""

    async def save_accounts(self, accounts: Sequence[Account], *, actor: str, now: datetime) -> None:
        """Store accounts, their requested capacities and the audit: all or nothing."""
        ...

    async def list_accounts(self, *, after: str, limit: int) -> list[Account]:
        """Return accounts by id, without their limits."""
        ...

    async def policy_requests(
        self, account_ids: Sequence[str] | None = None, *, limit: int = 1000
    ) -> list[PolicyRequest]:
        """Return the capacities that lease_service has not confirmed, of these accounts or of all."""
        ...

    async def confirm_policy(self, request: PolicyRequest) -> None:
        """Forget a request that was carried out, unless it was replaced meanwhile."""
        ...

    async def save_cards(self, cards: Sequence[Card], *, actor: str, now: datetime) -> SavedCards:
        """Store the cards that can be stored, with their audit, and say why the others can't."""
        ...

    async def get_cards(self, card_ids: Sequence[str]) -> list[Card]:
        """Return known cards in order of id."""
        ...


class Policies(Protocol):
    """Where capacities live."""

    async def set_capacity(self, account_id: str, scope: str, capacity: int, *, actor: str) -> None:
        """Store a capacity. Raises ServiceError."""
        ...

    async def capacities(self) -> Mapping[tuple[str, str], int]:
        """Return the capacity of every (pool, scope). Raises ServiceError."""
        ...


class FactsCache(Protocol):
    """Where poll steps read the facts of cards."""

    async def write_cards(self, cards: Sequence[Card]) -> None:
        """Write the facts of cards. Raises ServiceError DEPENDENCY_AWAY."""
        ...


class Accounts:
    """Stores accounts and sees to it that their limits reach the lease service."""

    def __init__(self, store: FleetStore, policies: Policies, clock: Clock) -> None:
        self._store = store
        self._policies = policies
        self._clock = clock

    async def save(self, accounts: Sequence[Account], *, actor: str) -> list[Account]:
        """Store accounts, then their limits, and return them as stored.

        Raises:
            ServiceError: INVALID_FIELD, nothing is stored; DEPENDENCY_AWAY when the accounts are stored but the lease
                service has not taken their limits: they are sent again until it has.
        """
        check_accounts(accounts)
        now = self._clock.now()
        await self._store.save_accounts(accounts, actor=actor, now=now)
        requests = await self._store.policy_requests([account.account_id for account in accounts])
        try:
            await self._carry_out(requests)
        except ServiceError as error:
            raise ServiceError(
                Reason.DEPENDENCY_AWAY,
                "the accounts are stored, but lease_service did not take their limits "
                f"({error.message}); they are sent again until it does",
                retry_after=error.retry_after,
            ) from error
        return [replace(account, updated_at=now) for account in accounts]

    async def list(self, *, after: str, limit: int) -> list[Account]:
        """Return accounts by id; their limits are 0 while neither a request nor the lease service can tell them."""
        accounts = await self._store.list_accounts(after=after, limit=limit)
        if not accounts:
            return []
        ids = [account.account_id for account in accounts]
        requested = {
            (slot_pool(request.account_id), request.scope): request.capacity
            for request in await self._store.policy_requests(ids, limit=2 * len(ids))
        }
        try:
            known = {**await self._policies.capacities(), **requested}
        except ServiceError:
            known = requested
        return [_with_limits(account, known) for account in accounts]

    async def reconcile(self) -> int:
        """Send the limits that the lease service has not confirmed, oldest first; return how many there were."""
        requests = await self._store.policy_requests(limit=200)
        await self._carry_out(requests)
        return len(requests)

    async def _carry_out(self, requests: Sequence[PolicyRequest]) -> None:
        for request in requests:
            await self._policies.set_capacity(
                request.account_id, request.scope, request.capacity, actor=request.actor
            )
            await self._store.confirm_policy(request)


class Cards:
    """Stores cards and rewrites their facts before the change is answered."""

    def __init__(self, store: FleetStore, facts: FactsCache, clock: Clock) -> None:
        self._store = store
        self._facts = facts
        self._clock = clock

    async def save(self, cards: Sequence[Card], *, actor: str) -> SavedCards:
        """Store cards; those that can't be stored are named, with their position, and the others are stored.

        Raises:
            ServiceError: DEPENDENCY_AWAY when the cards are stored but a poll step may still see old facts: save again.
        """
        saved = await self._store.save_cards(cards, actor=actor, now=self._clock.now())
        await self._facts.write_cards(saved.cards)
        return saved

    async def get(self, card_ids: Sequence[str]) -> list[Card]:
        """Return known cards in order of id, and make their facts known: whoever asks may have missed them there."""
        cards = await self._store.get_cards(card_ids)
        with contextlib.suppress(ServiceError):
            await self._facts.write_cards(cards)
        return cards


def _with_limits(account: Account, known: Mapping[tuple[str, str], int]) -> Account:
    pool = slot_pool(account.account_id)
    return replace(
        account,
        poll_limit=known.get((pool, "poll"), 0),
        stop_resume_limit=known.get((pool, "stop_resume"), 0),
    )
