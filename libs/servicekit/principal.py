"""Who calls: set by the edges, readable everywhere below them."""

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True)
class Principal:
    """One caller.

    Attributes:
        subject: who acts; what audit rows name.
        tenant: whose objects are seen; another tenant's do not exist for this caller.
        roles: what the caller may do.
        expires_at: when the sign-in ends, if it does.
    """

    subject: str
    tenant: str = DEFAULT_TENANT
    roles: frozenset[str] = frozenset()
    expires_at: datetime | None = None


SYSTEM = Principal("system", roles=frozenset({"system"}))
"""The process itself: loops and consumers that act for nobody else."""

_current: ContextVar[Principal | None] = ContextVar("servicekit_principal", default=None)


def current() -> Principal:
    """Return who calls, or :data:`SYSTEM` outside any call."""
    return _current.get() or SYSTEM


def calling() -> Principal | None:
    """Return who calls, or None outside any call."""
    return _current.get()


def use(principal: Principal) -> None:
    """Set who calls, for the present task and what it starts."""
    _current.set(principal)
