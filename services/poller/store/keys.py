"""Every Redis key that poller reads or writes.

Keys of one account share the hash tag ``{account}``, so that a script may use them together on a cluster.
"""

LEADER = "poll:leader"
"""Which replica reads the brokers' backlog; expires."""

SYNC_TURN = "poll:sync"
"""Which replica compares the schedule with the fleet now; expires."""

PAUSED = "poll:paused"
"""Why nothing is claimed; expires, so that a pause never outlives who set it."""

REPLICAS = "poll:replicas"
"""Sorted set: replica -> when it was last there, Redis seconds."""


def due(account_id: str) -> str:
    """Sorted set: card -> when it is due, or until when its claim lasts; Redis milliseconds."""
    return f"poll:due:{{{account_id}}}"


def state(account_id: str) -> str:
    """Hash of one account: ``seen`` last claim, ``realign`` and ``blocked`` instants, in Redis milliseconds."""
    return f"poll:state:{{{account_id}}}"


def published(account_id: str) -> str:
    """Hash: card -> ``observed_at`` of the last observation that was handed on, or when it was last hastened; ms."""
    return f"poll:published:{{{account_id}}}"


def card(card_id: str) -> str:
    """Hash of card facts; written by ingest_service, only read here."""
    return f"card:{card_id}"
