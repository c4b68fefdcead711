"""What endpoints share: the use-cases, and who calls."""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi import Request, Response

from servicekit.errors import Reason, ServiceError
from servicekit.grpc_call import SignIn
from servicekit.health import Health
from servicekit.principal import Principal
from servicekit.settings import AuthSettings
from servicekit.values import is_loopback
from task_api.domain.channels import Channels
from task_api.domain.creation import Creation
from task_api.domain.streams import Hub
from task_api.domain.tasks import Tasks
from task_api.settings import HttpSettings

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SESSION_COOKIE = "__Host-sluicegate"


class Edge:
    """What endpoints need: the use-cases, who calls, and the limits of streams."""

    def __init__(
        self,
        tasks: Tasks,
        creation: Creation,
        channels: Channels,
        hub: Hub,
        *,
        health: Health,
        auth: AuthSettings,
        http: HttpSettings,
    ) -> None:
        self.tasks = tasks
        self.creation = creation
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
