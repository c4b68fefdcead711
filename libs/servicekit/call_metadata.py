"""Metadata that the present work adds to every call it makes over :class:`servicekit.grpc_client.Channel`."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

Pairs = tuple[tuple[str, str], ...]

_present: ContextVar[Pairs] = ContextVar("servicekit_call_metadata", default=())


def present() -> Pairs:
    """Return what is added now."""
    return _present.get()


def add(pairs: Pairs) -> Token[Pairs]:
    """Add pairs from now on, for the present task and what it starts; of the same key the later one counts."""
    keys = {key for key, _ in pairs}
    return _present.set((*(pair for pair in _present.get() if pair[0] not in keys), *pairs))


def undo(mark: Token[Pairs]) -> None:
    """Undo :func:`add`, in the same task."""
    _present.reset(mark)


@contextmanager
def added(pairs: Pairs) -> Iterator[None]:
    """Add pairs while a block runs."""
    mark = add(pairs)
    try:
        yield
    finally:
        undo(mark)
