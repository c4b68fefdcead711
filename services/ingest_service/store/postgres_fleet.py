"""Accounts and cards in PostgreSQL."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from ingest_service.domain.administration import PolicyRequest, SavedCards
from ingest_service.domain.fleet import Account, Card, refuse_cards
from servicekit.postgres import Postgres, load_sql

_PACKAGE = "ingest_service"


class PostgresFleetStore:
    """Accounts and cards. Methods raise what the driver raises."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def save_accounts(self, accounts: Sequence[Account], *, actor: str, now: datetime) -> None:
        """Store accounts, their requested capacities and the audit: all or nothing."""
        ordered = sorted(accounts, key=lambda account: account.account_id)
        limits = [(account.account_id, *limit) for account in ordered for limit in account.limits.items()]
        async with self._postgres.transaction() as connection:
            await connection.execute(_sql("save_accounts"), *_account_columns(ordered), now)
            await connection.execute(
                _sql("request_policies"),
                [limit[0] for limit in limits],
                [limit[1] for limit in limits],
                [limit[2] for limit in limits],
                actor,
                uuid4(),
                now,
            )
            ids = [account.account_id for account in ordered]
            details = [json.dumps(_account_detail(account)) for account in ordered]
            await connection.execute(_sql("audit_accounts"), ids, actor, "save", details, now)

    async def list_accounts(self, *, after: str, limit: int) -> list[Account]:
        """Return accounts by id, without their limits."""
        rows = await self._postgres.pool.fetch(_sql("list_accounts"), after, limit)
        return [Account(**dict(row)) for row in rows]

    async def policy_requests(
        self, account_ids: Sequence[str] | None = None, *, limit: int = 1000
    ) -> list[PolicyRequest]:
        """Return the capacities that lease_service has not confirmed, of these accounts or of all."""
        wanted = None if account_ids is None else list(account_ids)
        rows = await self._postgres.pool.fetch(_sql("list_policy_requests"), wanted, limit)
        return [PolicyRequest(**dict(row)) for row in rows]

    async def confirm_policy(self, request: PolicyRequest) -> None:
        """Forget a request that was carried out, unless it was replaced meanwhile."""
        await self._postgres.pool.execute(
            _sql("confirm_policy"), request.account_id, request.scope, request.request_id
        )

    async def save_cards(self, cards: Sequence[Card], *, actor: str, now: datetime) -> SavedCards:
        """Store the cards that can be stored, with their audit, and say why the others can't."""
        async with self._postgres.transaction() as connection:
            wanted = sorted({card.account_id for card in cards})
            rows = await connection.fetch(_sql("find_accounts"), wanted)
            refused = refuse_cards(cards, frozenset(row["account_id"] for row in rows))
            bad = {item.index for item in refused}
            good = sorted(
                (card for index, card in enumerate(cards) if index not in bad), key=lambda card: card.card_id
            )
            saved = await self._save(connection, good, actor, now) if good else []
        created = sum(row["created"] for row in saved)
        return SavedCards(created, len(saved) - created, refused, [_card(row) for row in saved])

    async def get_cards(self, card_ids: Sequence[str]) -> list[Card]:
        """Return known cards in order of id."""
        rows = await self._postgres.pool.fetch(_sql("get_cards"), list(card_ids))
        return [Card(**dict(row)) for row in rows]

    async def list_cards(self, *, account_id: str, after: str, limit: int, pollable_only: bool) -> list[Card]:
        """Return cards by id, of one account or of all."""
        if account_id:
            rows = await self._postgres.pool.fetch(
                _sql("list_cards_of_account"), after, limit, pollable_only, account_id
            )
        else:
            rows = await self._postgres.pool.fetch(_sql("list_cards"), after, limit, pollable_only)
        return [Card(**dict(row)) for row in rows]

    async def _save(self, connection: Any, cards: Sequence[Card], actor: str, now: datetime) -> list[Any]:
        ids = [card.card_id for card in cards]
        await connection.fetch(_sql("lock_cards"), ids)
        saved: list[Any] = await connection.fetch(
            _sql("save_cards"),
            ids,
            [card.account_id for card in cards],
            [card.msisdn for card in cards],
            [card.lifecycle for card in cards],
            [card.polling_enabled for card in cards],
            now,
        )
        details = [json.dumps(_card_detail(card)) for card in cards]
        await connection.execute(_sql("audit_cards"), ids, actor, "save", details, now)
        return saved


def _sql(name: str) -> str:
    return load_sql(_PACKAGE, name)


def _card(row: Any) -> Card:
    return Card(**{name: value for name, value in dict(row).items() if name != "created"})


def _account_columns(accounts: Sequence[Account]) -> list[list[Any]]:
    return [
        [account.account_id for account in accounts],
        [account.name for account in accounts],
        [account.gateway_kind for account in accounts],
        [account.gateway_url for account in accounts],
        [account.credential_name for account in accounts],
        [account.reset_day for account in accounts],
        [account.time_zone for account in accounts],
        [account.poll_interval_s for account in accounts],
        [account.enabled for account in accounts],
    ]


def _account_detail(account: Account) -> dict[str, Any]:
    return {
        "name": account.name,
        "gateway_kind": account.gateway_kind,
        "gateway_url": account.gateway_url,
        "credential_name": account.credential_name,
        "reset_day": account.reset_day,
        "time_zone": account.time_zone,
        "poll_interval_s": account.poll_interval_s,
        "enabled": account.enabled,
        **account.limits,
    }


def _card_detail(card: Card) -> dict[str, Any]:
    return {
        "account_id": card.account_id,
        "msisdn": card.msisdn,
        "lifecycle": card.lifecycle,
        "polling_enabled": card.polling_enabled,
    }
