"""What a task handler raises to say how its attempt ended."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

_LONGEST_PAUSE = timedelta(days=1)


class TaskError(Exception):
    """Base of the errors that decide what happens to an attempt."""


class TransientError(TaskError):
    """The attempt failed but another may succeed: retried by the channel's policy."""

    error_class = "transient"


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

    error_class = "permanent"


class PoisonError(TaskError):
    """The attempt killed the process that ran it: another is made, but each counts, so that it ends as failed."""

    error_class = "poison"


class ClaimLostError(TaskError):
    """The claim is no longer held: another worker may run the task, nothing that this attempt writes is stored."""


@dataclass(frozen=True, slots=True)
class FailureReport:
    """An attempt's failure as it goes to the server."""

    error_class: str
    error: str
    retry_after: timedelta = timedelta()


class ReportedError(TaskError):
    """The attempt failed in another process, which has said how."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.error)
        self.report = report


def describe_failure(error: BaseException) -> FailureReport:
    """Classify what a handler raised; what is not one of the classes above counts as transient."""
    words = said(error)
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    match error:
        case ReportedError():
            return error.report
        case ThrottledError():
            return FailureReport("throttled", words or text, _sendable(error.retry_after))
        case PermanentError() | PoisonError() | TransientError():
            return FailureReport(error.error_class, words or text)
        case asyncio.TimeoutError():
            return FailureReport("transient", f"timed out: {text}")
        case _:
            return FailureReport("transient", text)


def said(error: BaseException) -> str:
    """Return an error's message, whatever its class makes of it."""
    try:
        return str.__add__("", str(error))
    except BaseException:  # noqa: BLE001 - a handler's own error class may be broken in any way
        return "its message can't be read"


def _sendable(pause: object) -> timedelta:
    """Bring what a handler asked for into what can be sent: one bad pause must not spoil the batch it goes with."""
    return min(max(pause, timedelta()), _LONGEST_PAUSE) if isinstance(pause, timedelta) else timedelta()
