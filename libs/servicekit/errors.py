"""The closed vocabulary of failures that every service speaks.

One class, :class:`ServiceError`, is raised inside a service, mapped once at each edge (gRPC status, HTTP problem,
NSQ decision) and rebuilt by the client. Nothing here knows about any transport.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum


class Reason(StrEnum):
    """Why something failed: the ``reason`` of ``google.rpc.ErrorInfo`` with the domain ``sluicegate``."""

    INVALID_FIELD = "INVALID_FIELD"
    SLOT_UNAVAILABLE = "SLOT_UNAVAILABLE"
    BACKLOG_FULL = "BACKLOG_FULL"
    RATE_LIMITED = "RATE_LIMITED"
    SLOT_LOST = "SLOT_LOST"
    CLAIM_LOST = "CLAIM_LOST"
    NOT_FOUND = "NOT_FOUND"
    NOT_SIGNED_IN = "NOT_SIGNED_IN"
    NOT_ALLOWED = "NOT_ALLOWED"
    DEPENDENCY_AWAY = "DEPENDENCY_AWAY"
    TIME_IS_UP = "TIME_IS_UP"
    INTERNAL = "INTERNAL"
    KEY_REUSED = "KEY_REUSED"
    WRONG_STATE = "WRONG_STATE"
    PAUSED = "PAUSED"
    STALE_VERSION = "STALE_VERSION"
    CANCELLED = "CANCELLED"
    QUOTA_EXHAUSTED = "QUOTA_EXHAUSTED"


_HTTP_STATUS: Mapping[Reason, int] = {
    Reason.INVALID_FIELD: 422,
    Reason.SLOT_UNAVAILABLE: 429,
    Reason.BACKLOG_FULL: 429,
    Reason.RATE_LIMITED: 429,
    Reason.PAUSED: 429,
    Reason.SLOT_LOST: 409,
    Reason.CLAIM_LOST: 409,
    Reason.KEY_REUSED: 409,
    Reason.WRONG_STATE: 409,
    Reason.STALE_VERSION: 409,
    Reason.NOT_FOUND: 404,
    Reason.NOT_SIGNED_IN: 401,
    Reason.NOT_ALLOWED: 403,
    Reason.DEPENDENCY_AWAY: 503,
    Reason.TIME_IS_UP: 504,
    Reason.INTERNAL: 500,
    Reason.CANCELLED: 499,
    Reason.QUOTA_EXHAUSTED: 429,
}


class ServiceError(Exception):
    """A failure that a caller can act on.

    Args:
        reason: what kind of failure it is.
        message: one sentence for a person: what happened and what to do. Never a secret, never driver text.
        retry_after: the earliest moment at which trying again makes sense, counted from now.
        metadata: facts for programs. For ``INVALID_FIELD`` it maps each field's path to what is wrong with it.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        retry_after: timedelta | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.metadata: dict[str, str] = dict(metadata or {})

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.message}"

    def __repr__(self) -> str:
        return f"ServiceError({self.reason.value}, {self.message!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.reason, self.message, self.retry_after, self.metadata))


def invalid_field(field: str, problem: str) -> ServiceError:
    """Describe one field that is missing, malformed or out of bounds, by its path in the request."""
    return ServiceError(Reason.INVALID_FIELD, f"{field}: {problem}", metadata={field: problem})


def http_status(reason: Reason) -> int:
    """Return the HTTP status that stands for a reason."""
    return _HTTP_STATUS[reason]


def _rebuild(
    reason: Reason, message: str, retry_after: timedelta | None, metadata: Mapping[str, str]
) -> ServiceError:
    return ServiceError(reason, message, retry_after=retry_after, metadata=metadata)
