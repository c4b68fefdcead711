"""Names of the Redis keys of a pool; spelled nowhere else."""

from functools import lru_cache

PROBE_POOL = "~probe"
"""No pool of a caller can have this name: its first character is not allowed in one."""


@lru_cache(maxsize=4096)
def pool_keys(pool: str) -> tuple[str, ...]:
    """Return the keys of a pool in the order in which every script expects them (see ``lua/prelude.lua``)."""
    root = f"slots:{{{pool}}}:"
    return tuple(root + letter for letter in "hlupxfaeqowdktg")


def audit_key(pool: str) -> str:
    """Return the key of a pool's stream of audit events."""
    return f"slots:{{{pool}}}:a"


EVERYBODY = "slots:wake:all"
"""The channel on which every replica is told that a lease was taken away."""


def wake_channel(replica: str) -> str:
    """Return the channel on which one replica is told to look at a waiter."""
    return f"slots:wake:{replica}"
