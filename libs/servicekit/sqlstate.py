"""What a failed database operation means for whoever tried it, by SQLSTATE and never by message text.

Codes: PostgreSQL manual, appendix A.
"""

from enum import Enum

import asyncpg

from servicekit.errors import Reason, ServiceError
from servicekit.failures import translate

POSTGRES_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Everything that asyncpg raises of its own."""


class FailureClass(Enum):
    """What to do about a failed database operation."""

    RETRY_NOW = "retry_now"
    """Serialization failure or deadlock: the same again at once, jittered, at most three times."""
    RETRY_LATER = "retry_later"
    """A lock or the statement took too long: a smaller batch, then later."""
    INFRASTRUCTURE = "infrastructure"
    """The database is away, full or read-only: stop taking work until a probe succeeds."""
    DATA = "data"
    """A row can't be stored as it is: find it and set it apart."""
    NO_PARTITION = "no_partition"
    """No partition holds the row: create it when the row's time is inside the window."""
    UNKNOWN = "unknown"
    """Anything else."""


_EXACT = {
    "40001": FailureClass.RETRY_NOW,
    "40P01": FailureClass.RETRY_NOW,
    "55P03": FailureClass.RETRY_LATER,
    "57014": FailureClass.RETRY_LATER,
    "25006": FailureClass.INFRASTRUCTURE,
    "23502": FailureClass.DATA,
}
_BY_PREFIX = (
    ("08", FailureClass.INFRASTRUCTURE),
    ("53", FailureClass.INFRASTRUCTURE),
    ("57P0", FailureClass.INFRASTRUCTURE),
    ("22", FailureClass.DATA),
)
_CHECK_VIOLATION = "23514"


def classify(error: BaseException) -> FailureClass:
    """Return the class of a database failure.

    A ``23514`` that names a constraint is bad data; without a name it is PostgreSQL's "no partition found".
    """
    if isinstance(error, asyncpg.PostgresError):
        return _classify_state(error)
    if isinstance(error, ServiceError):
        away = error.reason is Reason.DEPENDENCY_AWAY
        return FailureClass.INFRASTRUCTURE if away else FailureClass.UNKNOWN
    if isinstance(error, ConnectionError):
        return FailureClass.INFRASTRUCTURE
    if isinstance(error, TimeoutError):
        return FailureClass.RETRY_LATER
    if isinstance(error, OSError | asyncpg.InternalClientError) or type(error) is asyncpg.InterfaceError:
        # asyncpg gives no SQLSTATE when its side of the connection or the pool is closed, and an InternalClientError
        # when a statement meets a connection that the server is just cutting.
        return FailureClass.INFRASTRUCTURE
    return FailureClass.UNKNOWN


def _classify_state(error: asyncpg.PostgresError) -> FailureClass:
    state = error.sqlstate or ""
    if state == _CHECK_VIOLATION:
        return FailureClass.DATA if getattr(error, "constraint_name", None) else FailureClass.NO_PARTITION
    if state in _EXACT:
        return _EXACT[state]
    for prefix, failure_class in _BY_PREFIX:
        if state.startswith(prefix):
            return failure_class
    return FailureClass.UNKNOWN


def postgres_failure(error: BaseException) -> ServiceError | None:
    """Return what a caller should be told about an error of PostgreSQL, or None when it is a bug."""
    match classify(error):
        case FailureClass.INFRASTRUCTURE:
            return ServiceError(Reason.DEPENDENCY_AWAY, "PostgreSQL is away")
        case FailureClass.RETRY_NOW:
            return ServiceError(Reason.DEPENDENCY_AWAY, "the rows are busy; nothing was changed, try again")
        case FailureClass.RETRY_LATER:
            return ServiceError(Reason.TIME_IS_UP, "the database did not answer in time")
        case _:
            return None


translate(POSTGRES_ERRORS, postgres_failure)
