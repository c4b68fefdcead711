"""Server-sent events on the wire (WHATWG HTML, "Server-sent events"), written so that every browser reads them alike.

Lines end in CR, LF or CRLF only: U+2028, U+2029 and U+0085 are data. A block without a data line dispatches nothing;
one that only has an id moves the reader's cursor.
"""

import re
from datetime import timedelta

MEDIA_TYPE = "text/event-stream"

HEADERS = {
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",
    "content-encoding": "identity",
}
"""Keep proxies and compression from holding events back."""

_LINE_ENDS = re.compile("\r\n|\r|\n")
_NOT_IN_ID = re.compile("[\x00\r\n]")


def encode(data: str | None, *, event: str | None = None, event_id: str | None = None) -> bytes:
    """Return one event.

    Args:
        data: the text; a reader gets it with every line end as LF. None gives an event that fires no handler.
        event: the type; None for the default one, ``message``.
        event_id: the cursor that a reader reconnects with.

    Raises:
        ValueError: an id holds NUL, CR or LF, or a type holds a line end.
    """
    lines = []
    if event_id is not None:
        if _NOT_IN_ID.search(event_id):
            raise ValueError("an event id can't hold NUL, CR or LF")
        lines.append(f"id: {event_id}\n")
    if event is not None:
        if _LINE_ENDS.search(event):
            raise ValueError("an event type can't hold a line end")
        lines.append(f"event: {event}\n")
    if data is not None:
        lines += [f"data: {line}\n" for line in _LINE_ENDS.split(data)]
    lines.append("\n")
    return "".join(lines).encode()


def retry(delay: timedelta) -> bytes:
    """Return the block that tells a reader how long to wait before it connects again."""
    return f"retry: {delay // timedelta(milliseconds=1)}\n\n".encode()


def comment(text: str = "") -> bytes:
    """Return a comment: bytes that keep a connection alive and mean nothing."""
    if _LINE_ENDS.search(text):
        raise ValueError("a comment can't hold a line end")
    return f": {text}\n\n".encode()
