"""The HTTP application: which endpoints there are, and how it answers when something fails."""

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from servicekit.errors import Reason, ServiceError
from servicekit.problems import answer_failure, problem
from task_api.routes.edge import Edge
from task_api.routes.pages import add_pages
from task_api.routes.streams import add_streams
from task_api.routes.tasks import add_tasks

_NOT_FOUND = 404


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
    add_tasks(app, edge)
    add_streams(app, edge)
    add_pages(app, edge)
    return app


async def _answer_invalid(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError | ValidationError):
        raise error
    found = {".".join(map(str, item["loc"])): str(item["msg"]) for item in error.errors()}
    first = next(iter(found.items()))
    return problem(ServiceError(Reason.INVALID_FIELD, f"{first[0]}: {first[1]}", metadata=found))


async def _answer_http(request: Request, error: Exception) -> Response:
    """Answer for what the framework refuses: no such path, no such method, a body that is too long."""
    if not isinstance(error, HTTPException):
        raise error
    path, status = request.url.path, error.status_code
    if status == _NOT_FOUND:
        return problem(ServiceError(Reason.NOT_FOUND, f"there is nothing at {path}"))
    headers = dict(error.headers or {})
    allowed = headers.get("Allow")
    said = f"{path} takes {allowed}, not {request.method}" if allowed else error.detail
    return problem(ServiceError(Reason.INVALID_FIELD, said), status=status, headers=headers)
