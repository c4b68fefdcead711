"""The generic adapter: the plainest HTTP shape a gateway can have, in bytes and in our own words.

`GET /cards/{card_id}/traffic` answers `{"total_bytes": 123}` or `{"delta_bytes": 5}`, or null for "nothing
yet"; `/network` and `/realname` answer `{"status": "..."}`; `POST /cards/{card_id}/stop` and `/resume` answer
any 2xx. Where an answer names its `card_id`, it must be the card that was asked for.
Credentials: `token`, sent as Bearer.
"""

from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

import aiohttp

from gateways.adapter import GatewayAccount, GatewayAnswer, Kind, NetworkStatus, Reading, RealnameStatus
from gateways.credentials import bearer, read_credentials
from gateways.http_call import DEFAULT_TIMEOUT, HttpCaller, card_path, to_answer
from gateways.quantities import ByteUnit, malformed, to_bytes
from servicekit.clock import Clock

_STATUSES: dict[Kind, type[StrEnum]] = {"network": NetworkStatus, "realname": RealnameStatus}


class GenericHttpAdapter:
    """Speaks the generic shape."""

    kinds: frozenset[Kind] = frozenset({"traffic", "network", "realname"})

    def __init__(
        self,
        account: GatewayAccount,
        session: aiohttp.ClientSession,
        clock: Clock,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        self._http = HttpCaller(account, session, clock, timeout)
        token = read_credentials(account.credentials).get("token")
        self._headers = bearer(token) if token else {}

    async def fetch(self, kind: Kind, card_id: str) -> GatewayAnswer:
        """Read one fact about a card. Raises GatewayError."""
        path = f"/cards/{card_path(card_id)}/{kind}"
        answer = await self._http.call("GET", path, headers=self._headers)
        return to_answer(answer, partial(parse_generic, kind, card_id))

    async def stop(self, card_id: str) -> None:
        """Suspend a card. Raises GatewayError."""
        await self._http.call("POST", f"/cards/{card_path(card_id)}/stop", headers=self._headers)

    async def resume(self, card_id: str) -> None:
        """Let a card work again. Raises GatewayError."""
        await self._http.call("POST", f"/cards/{card_path(card_id)}/resume", headers=self._headers)


def parse_generic(kind: Kind, card_id: str, body: Any) -> Reading | None:
    """Read a generic answer. Raises GatewayError."""
    if body is None:
        return None
    if not isinstance(body, dict):
        raise malformed("answer is no JSON object")
    if body.get("card_id", card_id) != card_id:
        raise malformed("answer is about another card")
    return _traffic(body) if kind == "traffic" else _status(kind, body)


def _traffic(body: dict[str, Any]) -> Reading | None:
    given = [name for name in ("total_bytes", "delta_bytes") if body.get(name) is not None]
    if len(given) > 1:
        raise malformed("answer has both total_bytes and delta_bytes")
    if given:
        return {given[0]: to_bytes(body[given[0]], ByteUnit.B)}
    if "total_bytes" in body or "delta_bytes" in body:
        return None
    raise malformed("answer has no total_bytes")


def _status(kind: Kind, body: dict[str, Any]) -> Reading | None:
    if "status" not in body:
        raise malformed("answer has no status")
    if body["status"] is None:
        return None
    try:
        return {"status": _STATUSES[kind](body["status"]).value}
    except ValueError:
        raise malformed(f"unknown {kind} status {str(body['status'])[:40]!r}") from None
