"""Tickets: what was signed is read again, anything else is nothing."""

import pytest

from lease_service.domain.tickets import MAX_BYTES, Ticket, Tickets

POOL, TOKEN = "gateway:acme", "0" * 32
TICKET = Ticket(1_790_000_000_123, b"\x93record")


@pytest.fixture
def tickets() -> Tickets:
    return Tickets(b"k" * 32)


def test_what_was_signed_is_read_again(tickets: Tickets) -> None:
    signed = tickets.sign(POOL, TOKEN, TICKET)
    assert tickets.read(POOL, TOKEN, signed) == TICKET
    assert Tickets(b"k" * 32).read(POOL, TOKEN, signed) == TICKET  # another replica


def test_a_ticket_is_of_one_pool_and_token(tickets: Tickets) -> None:
    signed = tickets.sign(POOL, TOKEN, TICKET)
    assert tickets.read("gateway:acm", "e" + TOKEN, signed) is None
    assert tickets.read(POOL, "1" * 32, signed) is None
    assert tickets.read("gateway:other", TOKEN, signed) is None


def test_another_key_reads_nothing(tickets: Tickets) -> None:
    assert Tickets(b"o" * 32).read(POOL, TOKEN, tickets.sign(POOL, TOKEN, TICKET)) is None


def test_every_changed_byte_is_noticed(tickets: Tickets) -> None:
    signed = tickets.sign(POOL, TOKEN, TICKET)
    for place in range(len(signed)):
        changed = bytearray(signed)
        changed[place] ^= 1
        assert tickets.read(POOL, TOKEN, bytes(changed)) is None


@pytest.mark.parametrize("signed", [b"", b"x", b"x" * 25, b"x" * 200, b"x" * (MAX_BYTES + 1)])
def test_what_is_no_ticket_is_nothing(tickets: Tickets, signed: bytes) -> None:
    assert tickets.read(POOL, TOKEN, signed) is None
