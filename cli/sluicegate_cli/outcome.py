"""How a command ends: exit codes that mean something, and errors that say what to do."""

from enum import IntEnum

from servicekit.errors import Reason, ServiceError


class ExitCode(IntEnum):
    """What the shell gets."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    PARTLY_REFUSED = 4
    INTERRUPTED = 130


class CommandError(Exception):
    """End a command with one message; it says what happened and what to do.

    Args:
        message: one or a few lines for a person.
        code: what the shell gets.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


_CODES = {
    Reason.INVALID_FIELD: ExitCode.BAD_INPUT,
    Reason.DEPENDENCY_AWAY: ExitCode.UNREACHABLE,
    Reason.TIME_IS_UP: ExitCode.UNREACHABLE,
    Reason.CANCELLED: ExitCode.INTERRUPTED,
}
_HINTS = {
    Reason.DEPENDENCY_AWAY: "Is `sluicegate up` running? For services elsewhere set SLUICEGATE_<SERVICE>=host:port.",
    Reason.TIME_IS_UP: "It may be busy: try again, or look at `sluicegate backlog`.",
    Reason.BACKLOG_FULL: "Wait for tasks to finish, or raise max_backlog with `sluicegate channels save`.",
    Reason.SLOT_UNAVAILABLE: "`sluicegate slots explain POOL` says who holds the slots.",
    Reason.PAUSED: "`sluicegate slots resume POOL` or `sluicegate channels resume NAME` lets it go on.",
    Reason.NOT_SIGNED_IN: "Set SLUICEGATE_AUTH_TOKEN or SLUICEGATE_AUTH_TOKEN_FILE.",
    Reason.NOT_ALLOWED: "Ask for a token that may do this.",
    Reason.STALE_VERSION: "Somebody changed it meanwhile: read it again and repeat the change.",
    Reason.KEY_REUSED: "Use another --key, or the same request as before.",
}


def code_of(error: ServiceError) -> ExitCode:
    """Return the exit code that stands for a service's failure."""
    return _CODES.get(error.reason, ExitCode.FAILED)


def told(error: ServiceError) -> str:
    """Say a service's failure to a person: what happened, when to try again, what to do."""
    lines = [error.message]
    if error.retry_after is not None:
        lines.append(f"Try again in {error.retry_after.total_seconds():.1f} s.")
    hint = _HINTS.get(error.reason)
    if hint:
        lines.append(hint)
    return "\n".join(lines)
