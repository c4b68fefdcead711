"""Failures over HTTP: ``application/problem+json`` (RFC 9457) with the closed vocabulary of `servicekit.errors`."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from servicekit.errors import Reason, ServiceError, http_status
from servicekit.failures import service_error
from servicekit.logs import get_logger

_log = get_logger(__name__)

MEDIA_TYPE = "application/problem+json"


def problem(
    error: ServiceError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer for a failure; ``status`` stands in for that of its reason where HTTP has a closer one."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": (HTTPStatus(status).phrase if status else error.reason.value.replace("_", " ")).capitalize(),
        "status": status or http_status(error.reason),
        "detail": error.message,
        "reason": error.reason.value,
    }
    if error.metadata:
        body["metadata"] = error.metadata
    sent = {**(headers or {}), "cache-control": "no-store"}
    if error.retry_after is not None:
        body["retry_after_ms"] = round(error.retry_after.total_seconds() * 1000)
        sent["retry-after"] = str(math.ceil(error.retry_after.total_seconds()))
    if error.reason is Reason.NOT_SIGNED_IN:
        sent["www-authenticate"] = "Bearer"
    return JSONResponse(body, status_code=body["status"], media_type=MEDIA_TYPE, headers=sent)


async def answer_failure(request: Request, error: Exception) -> Response:
    """Answer for whatever an endpoint raised; a bug is logged whole and told in general words."""
    known = service_error(error)
    if known is None:
        _log.error("a request failed", path=request.url.path, exc_info=error)
        known = ServiceError(Reason.INTERNAL, "something went wrong on our side; it is logged")
    return problem(known)
