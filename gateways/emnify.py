"""emnify: volumes per calendar month in decimal megabytes (10^6), texts with six decimals.

The platform's ids are its own numbers: a card's ICCID is looked up once and remembered. The running month's
volume is the reading, so give such an account reset day 1 and zone UTC.
Credentials: `application_token` (bought into an access token), or `token`.
"""

from datetime import timedelta
from typing import Any

import aiohttp

from gateways.adapter import (
    FailureKind,
    GatewayAccount,
    GatewayAnswer,
    GatewayError,
    Kind,
    NetworkStatus,
    Reading,
)
from gateways.credentials import (
    AuthorizedCaller,
    Token,
    TokenKeeper,
    bearer,
    bearer_or_none,
    read_credentials,
)
from gateways.http_call import DEFAULT_TIMEOUT, HttpCaller, card_path, not_offered, to_answer
from gateways.quantities import ByteUnit, malformed, member, to_bytes, word
from servicekit.clock import Clock

TOKEN_LIFETIME = timedelta(hours=1)
REMEMBERED_IDS = 100_000
ACTIVATED_ID = 1
SUSPENDED_ID = 2
_NETWORK = {
    "ONLINE": NetworkStatus.ONLINE,
    "ATTACHED": NetworkStatus.ONLINE,
    "OFFLINE": NetworkStatus.OFFLINE,
    "BLOCKED": NetworkStatus.SUSPENDED,
}


class EmnifyAdapter:
    """Speaks the emnify REST API; `base_url` ends before `/api`."""

    kinds: frozenset[Kind] = frozenset({"traffic", "network"})

    def __init__(
        self,
        account: GatewayAccount,
        session: aiohttp.ClientSession,
        clock: Clock,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        self._http = HttpCaller(account, session, clock, timeout)
        self._credentials = read_credentials(account.credentials)
        tokens = TokenKeeper(self._log_in, clock)
        self._authorized = AuthorizedCaller(self._http, tokens, bearer_or_none(self._credentials))
        self._sim_ids: dict[str, int] = {}

    async def fetch(self, kind: Kind, card_id: str) -> GatewayAnswer:
        """Read one fact about a card; the first time with a look-up of its id. Raises GatewayError."""
        if kind == "traffic":
            path = f"/api/v1/sim/{await self._sim_id(card_id)}/stats"
            return to_answer(await self._authorized.call("GET", path), parse_month_stats)
        if kind == "network":
            return await self._fetch_network(card_id)
        raise not_offered("emnify", kind)

    async def stop(self, card_id: str) -> None:
        """Suspend a card. Raises GatewayError."""
        await self._set_status(card_id, SUSPENDED_ID)

    async def resume(self, card_id: str) -> None:
        """Activate a card. Raises GatewayError."""
        await self._set_status(card_id, ACTIVATED_ID)

    async def _fetch_network(self, card_id: str) -> GatewayAnswer:
        answer = await self._authorized.call("GET", f"/api/v1/sim/{await self._sim_id(card_id)}")
        sim = to_answer(answer, parse_sim_status)
        if sim.reading is not None:
            return sim
        endpoint_id = _whole(member(answer.json(), "endpoint", "id"))
        path = f"/api/v1/endpoint/{endpoint_id}/connectivity"
        return to_answer(await self._authorized.call("GET", path), parse_connectivity)

    async def _set_status(self, card_id: str, status_id: int) -> None:
        path = f"/api/v1/sim/{await self._sim_id(card_id)}"
        await self._authorized.call("PATCH", path, json={"status": {"id": status_id}})

    async def _sim_id(self, card_id: str) -> int:
        if card_id not in self._sim_ids:
            field = "iccid_with_luhn" if len(card_id) > 19 else "iccid"  # noqa: PLR2004 - the longer form of an ICCID
            answer = await self._authorized.call(
                "GET", "/api/v1/sim", params={"q": f"{field}:{card_path(card_id)}"}
            )
            if len(self._sim_ids) >= REMEMBERED_IDS:
                self._sim_ids.clear()
            self._sim_ids[card_id] = find_sim_id(card_id, answer.json())
        return self._sim_ids[card_id]

    async def _log_in(self) -> Token:
        login = {"application_token": self._credentials.get("application_token", "")}
        body = (await self._http.call("POST", "/api/v1/authenticate", json=login)).json()
        headers = bearer(member(body, "auth_token"))
        return Token(headers=headers, lifetime=TOKEN_LIFETIME)


def find_sim_id(card_id: str, body: Any) -> int:
    """Pick the one SIM with an ICCID out of a search. Raises GatewayError."""
    if not isinstance(body, list):
        raise malformed("SIM search is no list")
    found = [
        sim
        for sim in body
        if isinstance(sim, dict) and card_id in (str(sim.get("iccid")), str(sim.get("iccid_with_luhn")))
    ]
    if not found:
        raise GatewayError(FailureKind.NOT_FOUND, "no SIM with this ICCID")
    return _whole(member(found[0], "id"))


def parse_month_stats(body: Any) -> Reading | None:
    """Read the running month's data volume; None when it has none yet. Raises GatewayError."""
    if isinstance(body, list):
        if len(body) != 1:
            raise malformed("answer holds not exactly one SIM")
        body = body[0]
    month = member(body, "current_month")
    if not isinstance(month, dict):
        raise malformed("current_month is no object")
    data = month.get("data")
    if data is None:
        return None
    if member(data, "traffic_type", "unit") != "MB":
        raise malformed("data volume in another unit than MB")
    return {"total_bytes": to_bytes(member(data, "volume"), ByteUnit.MB)}


def parse_sim_status(body: Any) -> Reading | None:
    """Read what the SIM alone decides; None when its endpoint's connectivity decides. Raises GatewayError."""
    status = word(body, "status", "description")
    if status != "Activated":
        is_suspended = status == "Suspended"
        return {"status": (NetworkStatus.SUSPENDED if is_suspended else NetworkStatus.OFFLINE).value}
    return None if isinstance(body.get("endpoint"), dict) else {"status": NetworkStatus.OFFLINE.value}


def parse_connectivity(body: Any) -> Reading:
    """Read an endpoint's connectivity. Raises GatewayError."""
    status = word(body, "status", "description")
    return {"status": _NETWORK.get(status, NetworkStatus.UNKNOWN).value}


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise malformed("id is no whole number")
    return value
