"""What a task handler raises to say how its attempt ended."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta


class TaskError(Exception):
    """Base of the errors that decide what happens to an attempt."""


class TransientError(TaskError):
    """The attempt failed but another may succeed: retried by the channel's policy."""


class ThrottledError(TaskError):
    """The provider asked to slow down.

    Args:
        message: one sentence for a person.
        retry_after: the earliest moment at which it allows another try, counted from now.
    """

    def __init__(self, message: str, *, retry_after: timedelta = timedelta()) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PermanentError(TaskError):
    """No attempt can succeed: the task ends as failed."""


class ClaimLostError(TaskError):
    """The claim is no longer held: another worker may run the task, nothing that this attempt writes is stored."""


@dataclass(frozen=True, slots=True)
class FailureReport:
    """An attempt's failure as it goes to the server."""

    error_class: str
    error: str
    retry_after: timedelta = timedelta()


def describe_failure(error: BaseException) -> FailureReport:
    """Classify what a handler raised; what is not one of the classes above counts as transient."""
    said = _said(error)
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    match error:
        case PermanentError():
            return FailureReport("permanent", said or text)
        case ThrottledError():
            return FailureReport("throttled", said or text, error.retry_after)
        case TransientError():
            return FailureReport("transient", said or text)
        case asyncio.TimeoutError():
            return FailureReport("transient", f"timed out: {text}")
        case _:
            return FailureReport("transient", text)


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a handler's own error class may be broken
        return "its message can't be read"
