"""The demo fleet: three accounts and their cards, the same for the same seed."""

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:7190"


@dataclass(frozen=True, slots=True)
class DemoAccount:
    """One row of the accounts file; limits count concurrent calls, the interval is in seconds."""

    account_id: str
    name: str
    gateway_kind: str
    gateway_url: str
    reset_day: int
    time_zone: str
    poll_limit: int
    stop_resume_limit: int
    poll_interval_seconds: int


@dataclass(frozen=True, slots=True)
class DemoCard:
    """One row of the cards file; the id is an ICCID of 19 or 20 digits with a valid check digit."""

    card_id: str
    account_id: str
    msisdn: str
    lifecycle: str


@dataclass(frozen=True, slots=True)
class _Pattern:
    share: int
    issuer: str
    iccid_digits: int
    country_code: str


_ACCOUNTS = (
    (
        DemoAccount("harbor", "Harbor Mobile", "generic_http", "", 1, "Asia/Shanghai", 20, 10, 60),
        _Pattern(share=5, issuer="8986004", iccid_digits=20, country_code="86"),
    ),
    (
        DemoAccount("fjord", "Fjord IoT", "onence", "", 15, "UTC", 10, 5, 60),
        _Pattern(share=3, issuer="8988228", iccid_digits=19, country_code="882"),
    ),
    (
        DemoAccount("mesa", "Mesa Wireless", "cisco_control_center", "", 31, "America/New_York", 5, 2, 60),
        _Pattern(share=2, issuer="8901260", iccid_digits=19, country_code="1"),
    ),
)


def demo_fleet(
    seed: int, cards: int, gateway_url: str = DEFAULT_URL
) -> tuple[list[DemoAccount], list[DemoCard]]:
    """Return the accounts and cards of a seed; a larger fleet of the same seed begins with the smaller one.

    `gateway_url` is the simulator's address; each account's gateway is `<gateway_url>/accounts/<account_id>`.
    """
    accounts = [
        DemoAccount(**{**asdict(account), "gateway_url": f"{gateway_url}/accounts/{account.account_id}"})
        for account, _ in _ACCOUNTS
    ]
    return accounts, list(_cards(seed, cards))


def luhn_digit(digits: str) -> str:
    """Return the check digit that completes a number (ISO/IEC 7812-1, Luhn's formula)."""
    total = 0
    for position, digit in enumerate(reversed(digits)):
        doubled = int(digit) * (2 if position % 2 == 0 else 1)
        total += doubled - 9 if doubled > 9 else doubled  # noqa: PLR2004 - two digits are added up
    return str(-total % 10)


def write_accounts(path: Path, accounts: Sequence[DemoAccount]) -> None:
    """Write accounts as CSV with a header; blocks on the disk."""
    _write(path, [field.name for field in fields(DemoAccount)], (asdict(account) for account in accounts))


def write_cards(path: Path, cards: Sequence[DemoCard]) -> None:
    """Write cards as CSV with a header; blocks on the disk."""
    _write(path, [field.name for field in fields(DemoCard)], (asdict(card) for card in cards))


def _cards(seed: int, count: int) -> Iterator[DemoCard]:
    turn = [(account, pattern) for account, pattern in _ACCOUNTS for _ in range(pattern.share)]
    rng = random.Random(f"fleet {seed}")  # noqa: S311 - a demo fleet, not a secret
    for index in range(count):
        account, pattern = turn[index % len(turn)]
        serial_digits = pattern.iccid_digits - 1 - len(pattern.issuer)
        serial = str(seed % 1000).zfill(3) + str(index).zfill(serial_digits - 3)
        without_check = pattern.issuer + serial
        msisdn = pattern.country_code + str(rng.randrange(10**9, 10**10))
        yield DemoCard(without_check + luhn_digit(without_check), account.account_id, msisdn, "active")


def _write(path: Path, names: Sequence[str], rows: Iterator[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
