"""Accounts and cards as operators store them, and the rules for what may be stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from servicekit.errors import Reason, ServiceError

LIFECYCLES = ("inventory", "active", "suspended", "retired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A carrier account. Limits of 0 are unknown: they live with the lease service."""

    account_id: str
    name: str
    gateway_kind: str
    gateway_url: str
    credential_name: str
    reset_day: int
    time_zone: str
    poll_interval_s: int
    enabled: bool
    poll_limit: int = 0
    stop_resume_limit: int = 0
    updated_at: datetime | None = None

    @property
    def limits(self) -> Mapping[str, int]:
        """Capacity by scope of the account's pool."""
        return {"poll": self.poll_limit, "stop_resume": self.stop_resume_limit}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A SIM: what operators say about it and what was applied to it."""

    card_id: str
    account_id: str
    msisdn: str
    lifecycle: str
    polling_enabled: bool
    network_status: str = ""
    realname_status: str = ""
    cycle_start: date | None = None
    cycle_used_bytes: int = 0
    applied_count: int = 0
    observed_at: datetime | None = None
    updated_at: datetime | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A card that can't be stored: its position in the request, its id, and why."""

    index: int
    card_id: str
    message: str


def slot_pool(account_id: str) -> str:
    """Return the pool in which an account's gateway calls are counted."""
    return f"gateway:{account_id}"


def check_accounts(accounts: Sequence[Account]) -> None:
    """Check what single fields can't show: the zone exists, the address holds no credentials, ids differ.

    Raises:
        ServiceError: INVALID_FIELD naming every bad field.
    """
    problems: dict[str, str] = {}
    seen: set[str] = set()
    for index, account in enumerate(accounts):
        if account.account_id in seen:
            problems[f"accounts[{index}].account_id"] = "is there twice"
        seen.add(account.account_id)
        if not is_time_zone(account.time_zone):
            problems[f"accounts[{index}].time_zone"] = "should be an IANA zone such as Asia/Shanghai"
        if (problem := _url_problem(account.gateway_url)) is not None:
            problems[f"accounts[{index}].gateway_url"] = problem
    if problems:
        message = "; ".join(f"{field}: {problem}" for field, problem in problems.items())
        raise ServiceError(Reason.INVALID_FIELD, message, metadata=problems)


def refuse_cards(cards: Sequence[Card], account_ids: frozenset[str]) -> list[Refused]:
    """Return the cards that can't be stored; the others can."""
    refused: list[Refused] = []
    seen: set[str] = set()
    for index, card in enumerate(cards):
        if card.card_id in seen:
            refused.append(Refused(index, card.card_id, "this card is in the request twice"))
        elif card.account_id not in account_ids:
            refused.append(
                Refused(index, card.card_id, f"account {card.account_id} is unknown; save it first")
            )
        elif card.lifecycle not in LIFECYCLES:
            refused.append(
                Refused(index, card.card_id, f"lifecycle should be one of {', '.join(LIFECYCLES)}")
            )
        seen.add(card.card_id)
    return refused


def is_time_zone(name: str) -> bool:
    """Tell whether a name is an IANA zone."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError):
        return False
    except LookupError:  # ZoneInfoNotFoundError
        return False
    return True


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return "is no address"
    if parts.scheme not in {"http", "https"} or not host:
        return "should start with http:// or https:// and name a host"
    if parts.username is not None or parts.password is not None:
        return "must hold no credentials: name them in credential_name"
    return None
