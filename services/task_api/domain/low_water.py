"""Where claims begin to look: a hint that leads past what was claimed before.

Claimed rows stay in the index until they are vacuumed, which one long transaction anywhere in the database prevents; a
claim that starts at the front would walk over all of them.
"""

from servicekit.clock import Clock

FULL_SECONDS = 1.0
"""Everything is looked at again this often: what came in before the hint waits at most as long."""
BEGINNING = -(2**62)
_MOST_HINTS = 1000

Looker = tuple[str, tuple[tuple[str, int], ...]]
"""A channel and what can be run: who can run other kinds has skipped other rows."""


class LowWater:
    """The place from which each kind of worker looks for tasks of a channel."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hints: dict[Looker, tuple[int, float]] = {}

    def start(self, looker: Looker) -> int:
        """Return the place from which to look now."""
        place, full_at = self._hints.get(looker, (BEGINNING, 0.0))
        return place if self._clock.monotonic() < full_at else BEGINNING

    def claimed(self, looker: Looker, start: int, last: int) -> None:
        """Note that tasks were claimed from ``start`` up to ``last``."""
        if looker not in self._hints and len(self._hints) >= _MOST_HINTS:
            self._hints.clear()
        place, full_at = self._hints.get(looker, (BEGINNING, 0.0))
        if start == BEGINNING:
            self._hints[looker] = (last, self._clock.monotonic() + FULL_SECONDS)
        else:
            self._hints[looker] = (max(place, last), full_at)

    def came(self, channel: str, run_order: int) -> None:
        """Note that a task has come to a place."""
        for looker, (place, full_at) in self._hints.items():
            if looker[0] == channel and run_order < place:
                self._hints[looker] = (run_order, full_at)

    def forget(self, channel: str) -> None:
        """Look at everything of a channel next time."""
        for looker in [looker for looker in self._hints if looker[0] == channel]:
            del self._hints[looker]
