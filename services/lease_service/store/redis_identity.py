"""Who the server is, asked on every connection before its first script: run id, replication id, whether it may write.

A server with another identity may have lost leases: it is another machine's copy, or the same one after a restart. The
scripts compare the identity with the one that the pool has last seen, and start to relearn when they differ.
"""

from typing import Any, NamedTuple

import redis.exceptions

from servicekit.redis_wire import Wire

TRUSTED = ""
"""Stands for any server: a restart or a promotion is not looked for, the loss of a pool's keys still is."""

_ID_LENGTH = 16
_NO_SECOND = "0" * 40


class ServerIdentity(NamedTuple):
    """What the scripts are told about the server they run on."""

    run_id: str
    replication_id: str
    first_history: bool
    """Whether the server has never been promoted: a new replication id then says nothing about lost data."""

    @property
    def argument(self) -> str:
        """The text that every script gets as its last argument."""
        return f"{self.run_id[:_ID_LENGTH]} {self.replication_id[:_ID_LENGTH]} {int(self.first_history)}"


async def identify(wire: Wire) -> str:
    """Return the identity of the server behind a connection, as the scripts read it.

    Raises:
        redis.exceptions.ReadOnlyError: it is a replica.
    """
    return identity_of(await wire.submit(("INFO", "server", "replication"))).argument


async def trust(wire: Wire) -> str:
    """Make sure that the server is no replica, and do not remember who it is."""
    await identify(wire)
    return TRUSTED


def identity_of(answer: Any) -> ServerIdentity:
    """Read the answer of INFO; raises ReadOnlyError when it comes from a replica."""
    text = answer.decode() if isinstance(answer, bytes) else str(answer)
    facts = dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
    if facts.get("role", "master") != "master":
        raise redis.exceptions.ReadOnlyError("READONLY this server is a replica")
    return ServerIdentity(
        facts["run_id"], facts["master_replid"], facts.get("master_replid2", _NO_SECOND) == _NO_SECOND
    )
