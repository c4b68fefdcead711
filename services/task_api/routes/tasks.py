"""Tasks and channels as JSON."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import JSONResponse
from opentelemetry.trace import SpanKind
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from servicekit import telemetry
from servicekit.errors import invalid_field
from servicekit.principal import Principal
from task_api.domain.creation import TaskRequest
from task_api.domain.json_text import JsonTextError, parse
from task_api.domain.model import TaskState
from task_api.domain.tasks import parse_task_id
from task_api.domain.views import attempt_view, channel_view, task_view
from task_api.routes.edge import Edge

_MAX_BODY_BYTES = 1_048_576
_MILLISECOND = timedelta(milliseconds=1)


class CreateTaskBody(BaseModel):
    """A task to create."""

    model_config = ConfigDict(extra="forbid")

    channel: str = Field(
        default="", pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="required unless model is given"
    )
    kind: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    payload: dict[str, Any] = Field(default_factory=dict)
    payload_version: int = Field(default=1, ge=1, le=1000)
    priority: int = Field(default=0, ge=-10, le=10)
    idempotency_key: str = Field(default="", max_length=200)
    max_attempts: int = Field(default=0, ge=0, le=100, description="0: the channel's")
    delay_ms: int = Field(default=0, ge=0, le=31_536_000_000)
    deadline_at: datetime | None = Field(default=None, description="with a zone; after it no attempt starts")
    cost: int = Field(default=0, ge=0, le=1_000_000_000, description="units of the tenant's quota")
    model: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9_.:/-]{0,128}$",
        description="runs in the channel of this model's route",
    )


def add_tasks(app: FastAPI, edge: Edge) -> None:
    """Add the endpoints of tasks and channels."""
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
            created = await edge.creation.create(caller.tenant, asked)
            telemetry.set_attributes(span, task_id=str(created.task.task_id))
        return JSONResponse(task_view(created.task), status_code=201 if created.new else 200)

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


async def _task_request(request: Request) -> TaskRequest:
    fields = await _strict_json(request)
    if not isinstance(fields, dict):
        raise invalid_field("body", "must be a JSON object")
    body = CreateTaskBody.model_validate(fields)
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
        cost=body.cost,
        model=body.model,
    )


async def _strict_json(request: Request) -> Any:
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"the body has more than {_MAX_BODY_BYTES} bytes")
    try:
        return parse(received.decode("utf-8"))
    except (UnicodeDecodeError, JsonTextError) as error:
        raise invalid_field(
            "body", "is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        ) from None
