"""What tests of ingest_service share: observations, a database with a fleet, and a store that was started."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from ingest_service.domain.fleet import Account, Card
from ingest_service.domain.observations import Kind, Observation
from ingest_service.store.postgres_fleet import PostgresFleetStore
from ingest_service.store.postgres_session import prepare_session
from servicekit.clock import SystemClock
from servicekit.ids import uuid7
from servicekit.postgres import Postgres
from servicekit.settings import PostgresSettings
from servicekit.values import SecretUrl

NOW = datetime(2026, 3, 20, 12, 0, 0, tzinfo=UTC)


class FixedClock(SystemClock):
    """Says always the same instant, and really sleeps."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now


def observation(at: datetime, card_id: str = "c1", **changes: Any) -> Observation:
    """Make an observation; traffic unless a status is given."""
    kind = changes.pop("kind", Kind.NETWORK if "status" in changes else Kind.TRAFFIC)
    fields: dict[str, Any] = {
        "observation_id": uuid7(at),
        "card_id": card_id,
        "account_id": "acme",
        "kind": kind,
        "observed_at": at,
    }
    return Observation(**{**fields, **changes})


def account(account_id: str = "acme", **changes: Any) -> Account:
    fields: dict[str, Any] = {
        "account_id": account_id,
        "name": account_id,
        "gateway_kind": "generic_http",
        "gateway_url": "http://127.0.0.1:9",
        "credential_name": "",
        "reset_day": 1,
        "time_zone": "UTC",
        "poll_interval_s": 60,
        "enabled": True,
        "poll_limit": 20,
        "stop_resume_limit": 10,
    }
    return Account(**{**fields, **changes})


def card(card_id: str, account_id: str = "acme", **changes: Any) -> Card:
    fields: dict[str, Any] = {
        "card_id": card_id,
        "account_id": account_id,
        "msisdn": "",
        "lifecycle": "active",
        "polling_enabled": True,
    }
    return Card(**{**fields, **changes})


@asynccontextmanager
async def opened(dsn: str, **changes: Any) -> AsyncIterator[Postgres]:
    """Open a pool on a database."""
    fields: dict[str, Any] = {"dsn": SecretUrl(dsn), "max_size": 6}
    postgres = Postgres(PostgresSettings(**{**fields, **changes}), "test", init=prepare_session)
    await postgres.start()
    try:
        yield postgres
    finally:
        await postgres.stop()


async def make_partitions(
    postgres: Postgres, around: datetime = NOW, *, back: int = 9, ahead: int = 2
) -> None:
    """Make the inbox's days around an instant."""
    for days in range(-back, ahead + 1):
        await postgres.pool.execute(
            "SELECT ingest_create_partition($1)", (around + timedelta(days=days)).date()
        )


async def save_fleet(postgres: Postgres, accounts: list[Account], cards: list[Card]) -> None:
    """Store accounts and cards."""
    store = PostgresFleetStore(postgres)
    await store.save_accounts(accounts, actor="test", now=NOW)
    if cards:
        await store.save_cards(cards, actor="test", now=NOW)
