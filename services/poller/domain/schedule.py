"""When a card's turn is: a fixed offset inside the interval, the same after every restart and on every replica."""

import hashlib

_OFFSET_DIGITS = 12


def offset_ms(card_id: str, interval_ms: int) -> int:
    """Return where inside the interval a card's turn lies: its SHA-1's first 48 bits modulo the interval.

    The scripts that write the schedule compute the same.
    """
    digest = hashlib.sha1(card_id.encode(), usedforsecurity=False).hexdigest()
    return int(digest[:_OFFSET_DIGITS], 16) % interval_ms


def next_turn_ms(card_id: str, now_ms: int, interval_ms: int) -> int:
    """Return a card's first turn after now, Unix milliseconds."""
    return now_ms - (now_ms - offset_ms(card_id, interval_ms)) % interval_ms + interval_ms
