"""Sessions, health, and the console's page."""

from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles

from task_api.routes.edge import Edge

_PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def add_pages(app: FastAPI, edge: Edge) -> None:
    """Add what is no task and no stream."""

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

    @app.get("/", include_in_schema=False)
    async def front_page() -> Response:
        """Lead to the console."""
        return RedirectResponse("/console/")

    app.mount(
        "/console", _Page(directory=str(files("task_api").joinpath("static")), html=True), name="console"
    )


class _Page(StaticFiles):
    """The console's files, with a policy that lets them load nothing from elsewhere."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response
