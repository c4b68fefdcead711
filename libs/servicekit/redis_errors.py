"""What errors of Redis mean to a caller."""

import redis.exceptions

from servicekit.errors import Reason, ServiceError

_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
)
_AWAY_CODES = ("MISCONF", "LOADING", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "OOM", "READONLY")


def redis_failure(error: BaseException) -> ServiceError | None:
    """Return what a caller should be told about an error of Redis, or None when it is a bug."""
    if isinstance(error, _AWAY) or str(error).startswith(_AWAY_CODES):
        return ServiceError(Reason.DEPENDENCY_AWAY, "Redis is away")
    return None
