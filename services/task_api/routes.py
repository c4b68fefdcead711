"""The HTTP edge: tasks and channels as JSON, text events as SSE, and the console's page."""

import hashlib
import hmac
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from opentelemetry.trace import SpanKind
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from servicekit import sse, telemetry
from servicekit.errors import Reason, ServiceError, invalid_field
from servicekit.event_stream import EventStream
from servicekit.failures import service_error
from servicekit.grpc_call import SignIn
from servicekit.health import Health
from servicekit.principal import Principal
from servicekit.problems import answer_failure, problem
from servicekit.settings import AuthSettings
from servicekit.values import is_loopback
from task_api.domain.channels import Channels
from task_api.domain.json_text import JsonTextError, parse
from task_api.domain.model import TaskState
from task_api.domain.streams import BEGINNING, Cursor, Event, Hub, LastEvent, Reader, parse_cursor
from task_api.domain.tasks import TaskRequest, Tasks, not_found, parse_task_id
from task_api.domain.views import attempt_view, channel_view, task_view
from task_api.settings import HttpSettings

_MAX_BODY_BYTES = 1_048_576
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SESSION_COOKIE = "__Host-sluicegate"
_MILLISECOND = timedelta(milliseconds=1)
_PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class CreateTaskBody(BaseModel):
    """A task to create."""

    model_config = ConfigDict(extra="forbid")

    channel: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    kind: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    payload: dict[str, Any] = Field(default_factory=dict)
    payload_version: int = Field(default=1, ge=1, le=1000)
    priority: int = Field(default=0, ge=-10, le=10)
    idempotency_key: str = Field(default="", max_length=200)
    max_attempts: int = Field(default=0, ge=0, le=100, description="0: the channel's")
    delay_ms: int = Field(default=0, ge=0, le=31_536_000_000)
    deadline_at: datetime | None = Field(default=None, description="with a zone; after it no attempt starts")


class Edge:
    """What endpoints need: the use-cases, who calls, and the limits of streams."""

    def __init__(
        self,
        tasks: Tasks,
        channels: Channels,
        hub: Hub,
        *,
        health: Health,
        auth: AuthSettings,
        http: HttpSettings,
    ) -> None:
        self.tasks = tasks
        self.channels = channels
        self.hub = hub
        self.health = health
        self.http = http
        self.stream_count = 0
        self._sign_in = SignIn(auth)
        token = auth.token.get_secret_value() if auth.mode == "token" and auth.token else None
        self._session = token and hmac.new(token.encode(), b"session", hashlib.sha256).hexdigest()

    def principal(self, request: Request) -> Principal:
        """Return who calls; raises ServiceError NOT_SIGNED_IN, NOT_ALLOWED or INVALID_FIELD."""
        self._refuse_foreign_page(request)
        headers: Mapping[str, str] = request.headers
        if self._session is None:
            if not is_loopback(request.url.hostname or ""):
                raise ServiceError(
                    Reason.NOT_ALLOWED, "without sign-in only this machine's own names are served"
                )
        elif hmac.compare_digest(request.cookies.get(_SESSION_COOKIE, "").encode(), self._session.encode()):
            return Principal("browser", roles=frozenset({"client", "operator"}))
        return self._sign_in.principal(headers)

    def open_session(self, request: Request) -> Response:
        """Exchange the bearer token for a cookie, which a browser's EventSource can send."""
        self._refuse_foreign_page(request)
        self._sign_in.principal(request.headers)
        response = Response(status_code=204)
        if self._session is not None:
            response.set_cookie(
                _SESSION_COOKIE, self._session, secure=True, httponly=True, samesite="strict", path="/"
            )
        return response

    def _refuse_foreign_page(self, request: Request) -> None:
        if request.method in _SAFE_METHODS:
            return
        origin = request.headers.get("origin")
        if origin is not None and origin not in self.http.allowed_origins:
            if urlsplit(origin).netloc != request.headers.get("host", ""):
                raise ServiceError(Reason.NOT_ALLOWED, "a page of another origin can't change anything here")
        elif request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and origin is None:
            raise ServiceError(Reason.NOT_ALLOWED, "a page of another origin can't change anything here")


def make_app(edge: Edge) -> FastAPI:
    """Return the application."""
    app = FastAPI(
        title="Sluicegate tasks", version="1", docs_url=None, redoc_url=None, openapi_url="/openapi.json"
    )
    app.add_exception_handler(ServiceError, answer_failure)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(ValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, answer_failure)
    _add_tasks(app, edge)
    _add_streams(app, edge)
    _add_pages(app, edge)
    return app


def _add_tasks(app: FastAPI, edge: Edge) -> None:
    signed_in = Annotated[Principal, Depends(edge.principal)]
    body_schema = {
        "content": {"application/json": {"schema": CreateTaskBody.model_json_schema()}},
        "required": True,
    }

    @app.post("/api/tasks", status_code=201, openapi_extra={"requestBody": body_schema})
    async def create_task(caller: signed_in, request: Request) -> JSONResponse:
        """Store a task; 200 instead of 201 when the idempotency key answers an earlier one."""
        asked = await _task_request(request)
        with telemetry.traced("POST /api/tasks", kind=SpanKind.SERVER, channel=asked.channel) as span:
            asked = replace(asked, traceparent=telemetry.inject())
            task, created = await edge.tasks.create(caller.tenant, asked)
            telemetry.set_attributes(span, task_id=str(task.task_id))
        return JSONResponse(task_view(task), status_code=201 if created else 200)

    @app.get("/api/tasks")
    async def list_tasks(
        caller: signed_in,
        channel: Annotated[str, Query(max_length=64)] = "",
        state: TaskState | None = None,
        before: UUID | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> dict[str, Any]:
        """Page through the tenant's tasks, newest first."""
        tasks = await edge.tasks.list(caller.tenant, channel=channel, state=state, before=before, limit=limit)
        more = str(tasks[-1].task_id) if len(tasks) == limit else None
        return {"tasks": [task_view(task) for task in tasks], "next_before": more}

    @app.get("/api/tasks/{task_id}")
    async def get_task(caller: signed_in, task_id: str) -> dict[str, Any]:
        """Read one task."""
        return task_view(await edge.tasks.get(caller.tenant, parse_task_id(task_id)))

    @app.get("/api/tasks/{task_id}/attempts")
    async def list_attempts(caller: signed_in, task_id: str) -> dict[str, Any]:
        """List the ended attempts of a task."""
        attempts = await edge.tasks.attempts(caller.tenant, parse_task_id(task_id))
        return {"attempts": [attempt_view(attempt) for attempt in attempts]}

    @app.post("/api/tasks/{task_id}/cancel")
    async def cancel_task(
        caller: signed_in, task_id: str, reason: Annotated[str, Query(max_length=500)] = ""
    ) -> dict[str, Any]:
        """Ask a task to stop: a waiting one ends at once."""
        return task_view(await edge.tasks.cancel(caller.tenant, parse_task_id(task_id), reason))

    @app.post("/api/tasks/{task_id}/retry")
    async def retry_task(caller: signed_in, task_id: str) -> dict[str, Any]:
        """Run a failed or cancelled task again."""
        return task_view(await edge.tasks.retry(caller.tenant, parse_task_id(task_id)))

    @app.get("/api/channels")
    async def list_channels(caller: signed_in) -> dict[str, Any]:
        """Read every channel with what waits and runs."""
        del caller
        return {"channels": [channel_view(channel) for channel in await edge.channels.list()]}


def _add_streams(app: FastAPI, edge: Edge) -> None:
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
        reader = edge.hub.follow(number, caller.tenant, last, start)
        return _stream(edge, lambda: _follow(edge, reader, reset), headers)

    @app.get("/api/tasks/{task_id}/text-deltas")
    async def text_deltas(
        caller: signed_in,
        task_id: str,
        after: str = "0.0",
        limit: Annotated[int, Query(ge=1, le=1000)] = 500,
    ) -> dict[str, Any]:
        """Read stored text events after a cursor; never cached."""
        number = parse_task_id(task_id)
        last = await edge.hub.last(number, caller.tenant)
        if last is None:
            raise not_found(task_id)
        cursor = parse_cursor(after)
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


def _add_pages(app: FastAPI, edge: Edge) -> None:
    @app.post("/api/session", status_code=204, response_class=Response)
    async def open_session(request: Request) -> Response:
        """Exchange the bearer token for a cookie."""
        return edge.open_session(request)

    @app.get("/health")
    async def health() -> JSONResponse:
        """Say whether the service can work, and what is away."""
        found = edge.health.snapshot()
        checks = {name: {"ok": check.ok, "detail": check.detail} for name, check in found.checks.items()}
        return JSONResponse(
            {"serving": found.serving, "checks": checks}, status_code=200 if found.serving else 503
        )

    app.mount(
        "/console", _Page(directory=str(files("task_api").joinpath("static")), html=True), name="console"
    )


class _Page(StaticFiles):
    """The console's files, with a policy that lets them load nothing from elsewhere."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response


def _start(last: LastEvent, header: str, query: str) -> tuple[Cursor, str]:
    """Return where a stream starts, and why it does not start where the reader asked."""
    given = [text for text in (header, query) if text]
    cursors = [cursor for text in given if (cursor := parse_cursor(text)) is not None]
    if not cursors:
        return BEGINNING, "malformed_cursor" if given else ""
    start = max(cursors)
    return (start, "") if start <= last.cursor else (BEGINNING, "ahead_of_end")


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


async def _task_request(request: Request) -> TaskRequest:
    body = CreateTaskBody.model_validate(await _strict_json(request))
    if body.deadline_at is not None and body.deadline_at.tzinfo is None:
        raise invalid_field("deadline_at", "must have a zone")
    return TaskRequest(
        channel=body.channel,
        kind=body.kind,
        payload=json.dumps(body.payload, ensure_ascii=False, separators=(",", ":")),
        payload_version=body.payload_version,
        priority=body.priority,
        idempotency_key=body.idempotency_key,
        max_attempts=body.max_attempts,
        delay=body.delay_ms * _MILLISECOND,
        deadline_at=body.deadline_at,
    )


async def _strict_json(request: Request) -> Any:
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > _MAX_BODY_BYTES:
            raise invalid_field("body", f"has more than {_MAX_BODY_BYTES} bytes")
    try:
        return parse(received.decode("utf-8"))
    except (UnicodeDecodeError, JsonTextError) as error:
        raise invalid_field(
            "body", "is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        ) from None


async def _answer_invalid(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError | ValidationError):
        raise error
    found = {".".join(map(str, item["loc"])): str(item["msg"]) for item in error.errors()}
    first = next(iter(found.items()))
    return problem(ServiceError(Reason.INVALID_FIELD, f"{first[0]}: {first[1]}", metadata=found))


async def _answer_http(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 404:  # noqa: PLR2004 - HTTP
        return problem(ServiceError(Reason.NOT_FOUND, f"there is nothing at {request.url.path}"))
    if isinstance(error, HTTPException):
        return Response(error.detail, status_code=error.status_code, headers=dict(error.headers or {}))
    raise error
