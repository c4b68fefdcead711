"""What driver errors mean to a caller: the one place that turns them into the vocabulary of `servicekit.errors`."""

import errno
import socket

import redis.exceptions

from servicekit.errors import Reason, ServiceError
from servicekit.sqlstate import POSTGRES_ERRORS, FailureClass, classify

_REDIS_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
)
_REDIS_AWAY_CODES = ("MISCONF", "LOADING", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "OOM", "READONLY")
_NETWORK_ERRNOS = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOENT,  # a server's socket file that is not there yet
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)


def service_error(error: BaseException) -> ServiceError | None:
    """Return what a caller should be told about an error, or None when it is a bug.

    Connection failures of PostgreSQL, Redis and sockets become DEPENDENCY_AWAY, lock and serialization failures too
    (nothing was written), a statement's or a call's time limit TIME_IS_UP.
    """
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, POSTGRES_ERRORS):
        return _from_postgres(error)
    if isinstance(error, redis.exceptions.RedisError):
        return _from_redis(error)
    if is_network(error):
        return ServiceError(Reason.DEPENDENCY_AWAY, "a dependency can't be reached")
    if isinstance(error, TimeoutError):
        return ServiceError(Reason.TIME_IS_UP, "the time for this call is up")
    return None


def is_network(error: BaseException) -> bool:
    """Tell whether an error came from a connection that could not be made or is gone."""
    if isinstance(error, ConnectionError | socket.gaierror):
        return True
    return isinstance(error, OSError) and error.errno in _NETWORK_ERRNOS


def is_away(error: BaseException) -> bool:
    """Tell whether trying again later may help: the dependency is away, the request was fine."""
    if is_network(error) or isinstance(error, TimeoutError):
        return True
    translated = service_error(error)
    return translated is not None and translated.reason is Reason.DEPENDENCY_AWAY


def describe(error: BaseException) -> str:
    """Return one line about an error for a person."""
    text = error.message if isinstance(error, ServiceError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _from_postgres(error: BaseException) -> ServiceError | None:
    match classify(error):
        case FailureClass.INFRASTRUCTURE:
            return ServiceError(Reason.DEPENDENCY_AWAY, "PostgreSQL is away")
        case FailureClass.RETRY_NOW:
            return ServiceError(Reason.DEPENDENCY_AWAY, "the rows are busy; nothing was changed, try again")
        case FailureClass.RETRY_LATER:
            return ServiceError(Reason.TIME_IS_UP, "the database did not answer in time")
        case _:
            return None


def _from_redis(error: redis.exceptions.RedisError) -> ServiceError | None:
    if isinstance(error, _REDIS_AWAY) or str(error).startswith(_REDIS_AWAY_CODES):
        return ServiceError(Reason.DEPENDENCY_AWAY, "Redis is away")
    return None
