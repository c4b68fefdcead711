"""Cards and accounts as they stand in CSV files."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from google.protobuf.message import Message

from servicekit import bounds
from servicekit.errors import ServiceError
from sluicegate.ingest.v1 import ingest_pb2
from sluicegate_cli.files import Numbered, Report

CARD_COLUMNS = ("card_id", "account_id")
ACCOUNT_COLUMNS = ("account_id", "gateway_kind", "gateway_url", "reset_day", "time_zone")

Item = TypeVar("Item", bound=Message)

_YES = frozenset({"", "1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def card_of(row: Mapping[str, str]) -> ingest_pb2.Card:
    """Read a card: card_id, account_id, and if wanted msisdn, lifecycle, polling_enabled; raises ValueError."""
    return ingest_pb2.Card(
        card_id=row["card_id"],
        account_id=row["account_id"],
        msisdn=row.get("msisdn", ""),
        lifecycle=row.get("lifecycle") or "active",
        polling_enabled=_switch(row.get("polling_enabled", ""), "polling_enabled"),
    )


def account_of(row: Mapping[str, str]) -> ingest_pb2.Account:
    """Read an account; limits and the interval have defaults; raises ValueError."""
    return ingest_pb2.Account(
        account_id=row["account_id"],
        name=row.get("name") or row["account_id"],
        gateway_kind=row["gateway_kind"],
        gateway_url=row["gateway_url"],
        credential_name=row.get("credential_name", ""),
        reset_day=_number(row, "reset_day", 1),
        time_zone=row["time_zone"],
        poll_limit=_number(row, "poll_limit", 20),
        stop_resume_limit=_number(row, "stop_resume_limit", 10),
        poll_interval_s=_number(row, "poll_interval_seconds", 300),
        enabled=_switch(row.get("enabled", ""), "enabled"),
    )


def usable(
    numbered: Numbered[dict[str, str]], read: Callable[[Mapping[str, str]], Item], report: Report
) -> Numbered[Item] | None:
    """Read and check one row; one that can't be used goes to the report."""
    try:
        item = read(numbered.row)
        bounds.check(item)
    except ServiceError as error:
        report.refuse(numbered.line, "; ".join(f"{name} {what}" for name, what in error.metadata.items()))
    except ValueError as error:
        report.refuse(numbered.line, str(error))
    else:
        return Numbered(numbered.line, item)
    return None


def _switch(text: str, name: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise ValueError(f"{name} should be yes or no, not {text!r}")


def _number(row: Mapping[str, str], name: str, default: int) -> int:
    text = row.get(name, "")
    if not text:
        return default
    if not text.lstrip("-").isascii() or not text.lstrip("-").isdigit():
        raise ValueError(f"{name} should be a whole number, not {text!r}")
    number = int(text)
    if abs(number) >= 2**31:
        raise ValueError(f"{name} is too large: {text}")
    return number
