"""Combine publishes that wait at the same time into few commands, per topic and in order."""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from servicekit.nsq.frames import encode_publish, wire_size


@dataclass(slots=True)
class Entry:
    """One caller's publish: answered as a whole; `created` in monotonic seconds."""

    topic: str
    bodies: list[bytes]
    future: asyncio.Future[None]
    created: float
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = wire_size(self.bodies)


@dataclass(slots=True)
class Batch:
    """Entries that travel, succeed and fail in one command."""

    topic: str
    entries: list[Entry]

    @property
    def created(self) -> float:
        """When the oldest entry was made."""
        return self.entries[0].created

    def encode(self) -> bytes:
        """Return the command."""
        bodies = self.entries[0].bodies
        if len(self.entries) > 1:
            bodies = [body for entry in self.entries for body in entry.bodies]
        return encode_publish(self.topic, bodies)


class PublishQueue:
    """Hold entries that were not sent yet; topics take turns."""

    def __init__(self, *, batch_bytes: int, batch_messages: int) -> None:
        self.size = 0
        self._batch_bytes = batch_bytes
        self._batch_messages = batch_messages
        self._topics: dict[str, deque[Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._topics)

    def add(self, entry: Entry) -> None:
        """Append an entry to its topic."""
        self._topics.setdefault(entry.topic, deque()).append(entry)
        self.size += entry.size

    def take(self) -> Batch | None:
        """Return the next batch, or None; entries that nobody waits for any more are left out."""
        while self._topics:
            topic, waiting = next(iter(self._topics.items()))
            entries = self._take_from(waiting)
            del self._topics[topic]
            if waiting:
                self._topics[topic] = waiting
            if entries:
                return Batch(topic, entries)
        return None

    def expired(self, oldest: float) -> list[Entry]:
        """Remove and return the entries made before `oldest`."""
        gone: list[Entry] = []
        for topic, waiting in list(self._topics.items()):
            while waiting and waiting[0].created < oldest:
                gone.append(self._drop_first(waiting))
            if not waiting:
                del self._topics[topic]
        return gone

    def clear(self) -> list[Entry]:
        """Remove and return everything."""
        gone = list(self._all())
        self._topics.clear()
        self.size = 0
        return gone

    def _take_from(self, waiting: deque[Entry]) -> list[Entry]:
        entries: list[Entry] = []
        size = messages = 0
        while waiting:
            first = waiting[0]
            if first.future.done():
                self._drop_first(waiting)
                continue
            size += first.size
            messages += len(first.bodies)
            if entries and (size > self._batch_bytes or messages > self._batch_messages):
                break
            entries.append(self._drop_first(waiting))
        return entries

    def _drop_first(self, waiting: deque[Entry]) -> Entry:
        entry = waiting.popleft()
        self.size -= entry.size
        return entry

    def _all(self) -> Iterator[Entry]:
        for waiting in self._topics.values():
            yield from waiting
