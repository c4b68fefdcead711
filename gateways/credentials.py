"""Credentials of gateway accounts, and the short-lived tokens bought with them."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

from pydantic import SecretStr

from gateways.adapter import FailureKind, GatewayError
from gateways.http_call import HttpAnswer, HttpCaller
from servicekit.clock import Clock

RENEW_BEFORE = timedelta(seconds=60)


def read_credentials(secret: SecretStr) -> dict[str, str]:
    """Split an account's secret into named texts; a bare text is its `token`.

    Raises GatewayError(refused) when it looks like JSON but is no object of texts; the secret is never
    quoted.
    """
    text = secret.get_secret_value().strip()
    if not text:
        return {}
    if not text.startswith("{"):
        return {"token": text}
    try:
        values = json.loads(text)
    except ValueError:
        raise GatewayError(FailureKind.REFUSED, "the account's credentials are no JSON object") from None
    if not all(isinstance(value, str) for value in values.values()):
        raise GatewayError(FailureKind.REFUSED, "the account's credentials hold something that is no text")
    return dict(values)


@dataclass(frozen=True, slots=True)
class Token:
    """A token and for how long it is good from now."""

    headers: dict[str, str]
    lifetime: timedelta


class TokenKeeper:
    """Buys a token when there is none or it is about to end; concurrent callers share one purchase."""

    def __init__(self, buy: Callable[[], Awaitable[Token]], clock: Clock) -> None:
        self._buy = buy
        self._clock = clock
        self._lock = asyncio.Lock()
        self._headers: dict[str, str] | None = None
        self._good_until = 0.0

    async def headers(self) -> dict[str, str]:
        """Return the headers of a good token; may call the gateway. Raises GatewayError."""
        async with self._lock:
            if self._headers is None or self._clock.monotonic() >= self._good_until:
                token = await self._buy()
                lifetime = max(token.lifetime - RENEW_BEFORE, token.lifetime / 2)
                self._good_until = self._clock.monotonic() + lifetime.total_seconds()
                self._headers = token.headers
            return self._headers

    def forget(self, headers: dict[str, str]) -> None:
        """Drop a token that the gateway refused, unless a newer one is held already."""
        if self._headers is headers:
            self._headers = None


class AuthorizedCaller:
    """Calls a gateway with fixed headers, or else with a bought token."""

    def __init__(self, http: HttpCaller, tokens: TokenKeeper, fixed: dict[str, str] | None) -> None:
        self._http = http
        self._tokens = tokens
        self._fixed = fixed

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: object = None,
    ) -> HttpAnswer:
        """Send one request, once more with a fresh token when its own is refused. Raises GatewayError."""
        if self._fixed is not None:
            return await self._http.call(method, path, headers=self._fixed, params=params, json=json)
        headers = await self._tokens.headers()
        try:
            return await self._http.call(method, path, headers=headers, params=params, json=json)
        except GatewayError as error:
            if error.http_status != HTTPStatus.UNAUTHORIZED:
                raise
        self._tokens.forget(headers)
        headers = await self._tokens.headers()
        return await self._http.call(method, path, headers=headers, params=params, json=json)


def basic(name: str, password: str) -> dict[str, str]:
    """Return the header of a name and a password (RFC 7617)."""
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


def bearer(token: object) -> dict[str, str]:
    """Return the header of a bearer token (RFC 6750). Raises GatewayError when it can't stand in a header."""
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise GatewayError(FailureKind.REFUSED, "the token is no printable text")
    return {"Authorization": f"Bearer {token}"}


def bearer_or_none(credentials: Mapping[str, str]) -> dict[str, str] | None:
    """Return the fixed headers of an account with a `token` or no credentials; None when it must buy one."""
    if not credentials:
        return {}
    return bearer(credentials["token"]) if "token" in credentials else None
