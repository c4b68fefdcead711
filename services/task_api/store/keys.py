"""Every Redis name of task_api."""

READY_WAKES = "task:ready"
"""Pub/sub: names of channels, separated by spaces, where tasks or slots may be free."""

TEXT_WAKES = "task:text"
"""Pub/sub: ids of tasks, separated by spaces, that have new events."""

ENDED_STREAM = "task:ended"
"""Stream: ends of tasks, relayed from the outbox; trimmed, so it is news and no record."""
