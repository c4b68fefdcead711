"""Signed tickets: what a holder shows after Redis has lost its lease, so that it can be written down again.

A ticket holds the instant at which the lease ends and the lease's record as the store wrote it (fence, owner, weight,
scopes, times), and a keyed BLAKE2b over these, the pool and the token. Every renewal returns a newer one.
"""

import hmac
import struct
from hashlib import blake2b
from typing import NamedTuple

MAX_BYTES = 2048
KEY_BYTES = 32

_TAG_BYTES = 16
_HEAD = struct.Struct(">BQ")
_VERSION = 1


class Ticket(NamedTuple):
    """A lease as it was when it was last granted or renewed."""

    until_ms: int
    """When it ends unless it is renewed, by Redis time."""
    record: bytes
    """As the store wrote it."""


class Tickets:
    """Signs and reads tickets.

    Args:
        key: shared by all replicas of the service, 32 bytes; may be set later, before the first use.
    """

    def __init__(self, key: bytes = b"") -> None:
        self.key = key

    def sign(self, pool: str, token: str, ticket: Ticket) -> bytes:
        """Write a ticket for the holder of a token."""
        body = _HEAD.pack(_VERSION, ticket.until_ms) + ticket.record
        return body + self._tag(pool, token, body)

    def read(self, pool: str, token: str, signed: bytes) -> Ticket | None:
        """Return what a ticket says; None for one that was not signed here, or for another pool or token."""
        if len(signed) <= _HEAD.size + _TAG_BYTES or len(signed) > MAX_BYTES:
            return None
        body = signed[:-_TAG_BYTES]
        if not hmac.compare_digest(self._tag(pool, token, body), signed[-_TAG_BYTES:]):
            return None
        version, until_ms = _HEAD.unpack_from(body)
        return Ticket(until_ms, body[_HEAD.size :]) if version == _VERSION else None

    def _tag(self, pool: str, token: str, body: bytes) -> bytes:
        return blake2b(
            b"%d:%s%s%s" % (len(pool), pool.encode(), token.encode(), body),
            digest_size=_TAG_BYTES,
            key=self.key,
        ).digest()
