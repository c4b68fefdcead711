"""Where one observation is, in one sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """What is known of one observation; ``collection_known`` is False when nobody could be asked."""

    card_id: str = ""
    outcome: str = ""
    applied_at: datetime | None = None
    increment_bytes: int = 0
    quarantine_reason: str = ""
    retry_at: datetime | None = None
    events: Sequence[str] = ()
    collected_at: datetime | None = None
    collection_known: bool = True

    @property
    def is_known(self) -> bool:
        """Whether anything at all is known."""
        return bool(self.outcome or self.quarantine_reason or self.retry_at or self.collected_at)

    @property
    def verdict(self) -> str:
        """One sentence for a person."""
        if self.outcome:
            return f"{self._applied()}; {self._collected()}."
        if self.quarantine_reason:
            return f"In quarantine: {self.quarantine_reason}. Fix the cause and replay it."
        if self.retry_at is not None:
            return f"Waits to be tried again at {self.retry_at:%Y-%m-%d %H:%M:%S} UTC."
        if self.collected_at is not None:
            return (
                "Not applied: the poll gave no reading, the card is unknown, or it is still on its way; "
                "its record is stored."
            )
        return "Unknown here."

    def _applied(self) -> str:
        if self.outcome == "stale":
            return "Stale: a later status had been applied, so it changed nothing"
        return f"Applied, {self.increment_bytes} bytes added" if self.increment_bytes else "Applied"

    def _collected(self) -> str:
        if not self.collection_known:
            return "collection_writer could not be asked for its record"
        return "its record is stored" if self.collected_at is not None else "its record is not stored yet"
