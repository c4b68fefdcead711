"""Text events as SSE, and as plain JSON."""

import json
import random
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response

from servicekit import sse
from servicekit.errors import invalid_field
from servicekit.event_stream import EventStream
from servicekit.failures import service_error
from servicekit.metrics import export_cache
from servicekit.principal import Principal
from task_api.domain.streams import BEGINNING, Cursor, Event, LastEvent, Reader, parse_cursor
from task_api.domain.tasks import not_found, parse_task_id
from task_api.routes.edge import Edge


def add_streams(app: FastAPI, edge: Edge) -> None:
    """Add the endpoints of text events."""
    export_cache(edge.hub.replays.name, edge.hub.replays.counts.by_name)
    signed_in = Annotated[Principal, Depends(edge.principal)]

    @app.get("/api/tasks/{task_id}/text-events", response_class=Response)
    async def text_events(caller: signed_in, task_id: str, request: Request, after: str = "") -> Response:
        """Follow the text of a task as server-sent events; resumes after Last-Event-ID or ``after``."""
        number = parse_task_id(task_id)
        last = await edge.hub.last(number, caller.tenant)
        if last is None:
            raise not_found(task_id)
        start, reset = _start(last, request.headers.get("last-event-id", ""), after)
        if last == (start, True):
            return Response(status_code=204)
        headers = {"x-sluicegate-replay-from": str(start)}
        if edge.hub.closing or edge.stream_count >= edge.http.max_streams:
            return _stream(edge, lambda: _busy(edge), headers)
        reader = edge.hub.follow(number, caller.tenant, last, start, user=caller.subject)
        return _stream(edge, lambda: _follow(edge, reader, reset), headers)

    @app.get("/api/tasks/{task_id}/text-deltas")
    async def text_deltas(
        caller: signed_in,
        task_id: str,
        after: str = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 500,
    ) -> dict[str, Any]:
        """Read stored text events after a cursor; never cached."""
        number = parse_task_id(task_id)
        last = await edge.hub.last(number, caller.tenant)
        if last is None:
            raise not_found(task_id)
        cursor = parse_cursor(after) if after else BEGINNING
        if cursor is None:
            raise invalid_field("after", 'must be "epoch.seq"')
        events = await edge.hub.read(number, cursor, limit)
        reached = events[-1].cursor if events else cursor
        return {
            "events": [
                {"cursor": str(event.cursor), "kind": event.kind, "data": event.data} for event in events
            ],
            "next_after": str(reached),
            "ended": last.terminal and reached >= last.cursor,
        }


def _start(last: LastEvent, header: str, query: str) -> tuple[Cursor, str]:
    """Return where a stream starts, and why it does not start where the reader asked.

    The newest cursor wins that the text has reached: a browser repeats the address of its first request for ever, so
    one ahead of the end in there must not beat a good Last-Event-ID.
    """
    given = [text for text in (header, query) if text]
    cursors = [cursor for text in given if (cursor := parse_cursor(text)) is not None]
    if not cursors:
        return BEGINNING, "malformed_cursor" if given else ""
    reached = [cursor for cursor in cursors if cursor <= last.cursor]
    return (max(reached), "") if reached else (BEGINNING, "ahead_of_end")


def _stream(edge: Edge, chunks: Any, headers: dict[str, str]) -> EventStream:
    return EventStream(chunks, headers=headers, send_timeout=edge.http.send_timeout)


async def _busy(edge: Edge) -> AsyncIterator[bytes]:
    yield _retry(edge) + sse.encode("{}", event="busy")


async def _follow(edge: Edge, reader: Reader, reset: str) -> AsyncIterator[bytes]:
    edge.stream_count += 1
    heartbeat = edge.http.heartbeat.total_seconds()
    try:
        yield _retry(edge) + (sse.encode(json.dumps({"reason": reset}), event="reset") if reset else b"")
        async with reader:
            while not reader.ended:
                events = await reader.pull(heartbeat)
                if events:
                    yield b"".join(map(_frame, events))
                elif edge.hub.closing:
                    yield _retry(edge) + sse.encode("{}", event="farewell")
                    return
                elif not reader.ended:
                    yield sse.encode(None, event_id=str(reader.cursor))
    except Exception as error:
        known = service_error(error)
        if known is None:
            raise
        yield _retry(edge) + sse.encode(json.dumps({"reason": known.reason.value}), event="error")
    finally:
        edge.stream_count -= 1


def _frame(event: Event) -> bytes:
    """Return an event's bytes, encoded once for all readers."""
    if not event.frame:
        cursor = str(event.cursor)
        reset = sse.encode('{"reason":"new_attempt"}', event="reset") if event.restarts else b""
        if event.kind != "text":
            event.frame = reset + sse.encode(event.data, event=event.kind, event_id=cursor)
        elif "\r" in event.data:  # the wire can't hold a carriage return
            event.frame = reset + sse.encode(json.dumps(event.data), event="text-json", event_id=cursor)
        else:
            event.frame = reset + sse.encode(event.data, event_id=cursor)
    return event.frame


def _retry(edge: Edge) -> bytes:
    return sse.retry(edge.http.reconnect * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load
