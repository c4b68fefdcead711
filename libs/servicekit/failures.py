"""What errors mean to a caller: the one place that turns them into the vocabulary of `servicekit.errors`.

The module that wraps a driver says what that driver's errors mean (:func:`translate`), so that a process that never
opens a database does not load its driver.
"""

import errno
import socket
from collections.abc import Callable
from typing import TypeAlias

from servicekit.errors import Reason, ServiceError

Translator: TypeAlias = Callable[[BaseException], ServiceError | None]
"""Returns what a caller should be told about a driver's error, or None when it is a bug."""

_translators: dict[tuple[type[BaseException], ...], Translator] = {}

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


def translate(kinds: tuple[type[BaseException], ...], translator: Translator) -> None:
    """Let ``translator`` say what errors of these kinds mean; once per driver, when its wrapper is imported."""
    _translators[kinds] = translator


def service_error(error: BaseException) -> ServiceError | None:
    """Return what a caller should be told about an error, or None when it is a bug.

    Connection failures of PostgreSQL, Redis and sockets become DEPENDENCY_AWAY, lock and serialization failures too
    (nothing was written), a statement's or a call's time limit TIME_IS_UP.
    """
    if isinstance(error, ServiceError):
        return error
    for kinds, translator in _translators.items():
        if isinstance(error, kinds):
            return translator(error)
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
