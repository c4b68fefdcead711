"""Reads server-sent events as a browser does."""

from dataclasses import dataclass


@dataclass
class SseEvent:
    """One event as a browser dispatches it."""

    type: str
    data: str
    last_id: str


class SseReader:
    """Reads a stream by the rules of WHATWG HTML, section 9.2.6; an own, slow and literal reading."""

    def __init__(self) -> None:
        self._buffer = b""
        self._data: list[str] = []
        self._type = ""
        self.last_id = ""
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take bytes and return the events that they complete."""
        self._buffer += chunk
        events = []
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            event = self._line(line.removesuffix(b"\r").decode())
            if event is not None:
                events.append(event)
        return events

    def _line(self, line: str) -> SseEvent | None:
        if not line:
            data, event_type = self._data, self._type
            self._data, self._type = [], ""
            return SseEvent(event_type or "message", "\n".join(data), self.last_id) if data else None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._type = value
        elif field == "id" and "\0" not in value:
            self.last_id = value
        elif field == "retry" and value.isdigit():
            self.retry_ms = int(value)
        return None
