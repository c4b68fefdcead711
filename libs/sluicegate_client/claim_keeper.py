"""Renews claims from a thread of its own, which a blocked event loop can't starve."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_log = logging.getLogger(__name__)

CLAIMS_PER_CALL = 100


@dataclass(frozen=True, slots=True)
class ClaimKey:
    """The right to write for one attempt of one task."""

    task_id: str
    owner_token: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Renewal:
    """How the renewal of one claim ended; ``remaining_seconds`` is 0 when it is lost."""

    task_id: str
    lost: bool
    remaining_seconds: float
    cancel_requested: bool


@dataclass(slots=True)
class _Held:
    claim: ClaimKey
    expires: float
    on_lost: Callable[[], None]
    on_cancel: Callable[[], None]
    told: bool = False


class ClaimKeeper:
    """Keeps claims alive and tells their attempts when they are lost or asked to stop.

    Args:
        renew: extends at most 100 claims in one blocking call; raises when the server can't be reached.
        every_seconds: time between renewals; a third of the claim's life or less.
        margin_seconds: an attempt is told that its claim is lost this long before it ends unrenewed.
    """

    def __init__(
        self,
        renew: Callable[[Sequence[ClaimKey]], Sequence[Renewal]],
        *,
        every_seconds: float,
        margin_seconds: float,
    ) -> None:
        self._renew = renew
        self._every = every_seconds
        self._margin = margin_seconds
        self._held: dict[ClaimKey, _Held] = {}
        self._condition = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="claim-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; blocks for at most one renewal call."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def add(
        self,
        claim: ClaimKey,
        *,
        remaining_seconds: float,
        on_lost: Callable[[], None],
        on_cancel: Callable[[], None],
    ) -> None:
        """Keep a claim; the callbacks run in the keeper's thread and must not block."""
        with self._condition:
            self._held[claim] = _Held(claim, time.monotonic() + remaining_seconds, on_lost, on_cancel)
            self._condition.notify()

    def remove(self, claim: ClaimKey) -> None:
        """Keep a claim no longer; its callbacks are not called after this returns, but one may be running."""
        with self._condition:
            self._held.pop(claim, None)

    def _run(self) -> None:
        due = time.monotonic() + self._every
        while True:
            with self._condition:
                wake_at = min([due, *(held.expires - self._margin for held in self._held.values())])
                self._condition.wait(timeout=max(0.01, wake_at - time.monotonic()))
                if self._stopping:
                    return
                claims = list(self._held)
            if time.monotonic() >= due:
                for start in range(0, len(claims), CLAIMS_PER_CALL):
                    self._renew_some(claims[start : start + CLAIMS_PER_CALL])
                due = time.monotonic() + self._every
            self._drop_expiring()

    def _renew_some(self, claims: Sequence[ClaimKey]) -> None:
        asked = time.monotonic()
        try:
            renewals = self._renew(claims)
        except Exception as error:  # noqa: BLE001 - the thread must live; unrenewed claims run out by themselves
            _log.warning("claims were not renewed: %s", error)
            return
        for claim, renewal in zip(claims, renewals, strict=True):
            self._take(claim, renewal, asked)

    def _take(self, claim: ClaimKey, renewal: Renewal, asked: float) -> None:
        with self._condition:
            held = self._held.get(claim)
            if held is None:
                return
            if renewal.lost:
                del self._held[claim]
            else:
                held.expires = asked + renewal.remaining_seconds
            tell_cancel = renewal.cancel_requested and not renewal.lost and not held.told
            held.told = held.told or tell_cancel
        if renewal.lost:
            held.on_lost()
        elif tell_cancel:
            held.on_cancel()

    def _drop_expiring(self) -> None:
        now = time.monotonic()
        with self._condition:
            expiring = [held for held in self._held.values() if held.expires - self._margin <= now]
            for held in expiring:
                del self._held[held.claim]
        for held in expiring:
            held.on_lost()
