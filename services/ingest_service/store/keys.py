"""Every Redis key that ingest_service writes."""

from uuid import UUID


def done_mark(observation_id: UUID) -> str:
    """Return the key of the mark that an observation was applied: text, 48 h; only saves a trip."""
    return f"ingest:done:{observation_id}"


def card_facts(card_id: str) -> str:
    """Return the key of a card's facts: a hash, read by the poller at each step."""
    return f"card:{card_id}"
