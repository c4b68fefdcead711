"""Soracom: bytes up and down per speed class and UTC day, as a map whose keys are the speed classes.

A card that changed its speed class has one entry for each, so all of them are added. The platform keeps no
cycle total: the adapter asks for every day since the cycle began. Days are UTC days: give such an account the
zone UTC.
`from` and `to` are epoch seconds. Credentials: `auth_key_id` and `auth_key`, or `api_key` with `token`.
"""

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp

from gateways.adapter import GatewayAccount, GatewayAnswer, Kind, NetworkStatus, Reading
from gateways.credentials import AuthorizedCaller, Token, TokenKeeper, read_credentials
from gateways.cycles import cycle_start
from gateways.http_call import DEFAULT_TIMEOUT, HttpCaller, card_path, not_offered, to_answer
from gateways.quantities import ByteUnit, checked_total, malformed, member, to_bytes, word
from servicekit.clock import Clock

TOKEN_LIFETIME = timedelta(hours=12)
_SUSPENDED = frozenset({"inactive", "standby", "suspended", "terminated"})


class SoracomAdapter:
    """Speaks the Soracom API; `base_url` ends with `/v1`. A card's id is its SIM id."""

    kinds: frozenset[Kind] = frozenset({"traffic", "network"})

    def __init__(
        self,
        account: GatewayAccount,
        session: aiohttp.ClientSession,
        clock: Clock,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        self._http = HttpCaller(account, session, clock, timeout)
        self._clock = clock
        self._reset_day = account.reset_day
        self._zone = ZoneInfo(account.time_zone)
        self._credentials = read_credentials(account.credentials)
        tokens = TokenKeeper(self._log_in, clock)
        self._authorized = AuthorizedCaller(self._http, tokens, _fixed_headers(self._credentials))

    async def fetch(self, kind: Kind, card_id: str) -> GatewayAnswer:
        """Read one fact about a card. Raises GatewayError."""
        if kind == "traffic":
            now = self._clock.now()
            start = cycle_start(now, self._reset_day, self._zone)
            params = {"from": str(int(start.timestamp())), "to": str(int(now.timestamp())), "period": "day"}
            answer = await self._authorized.call(
                "GET", f"/stats/air/sims/{card_path(card_id)}", params=params
            )
            return to_answer(answer, parse_air_stats)
        if kind == "network":
            return to_answer(await self._authorized.call("GET", f"/sims/{card_path(card_id)}"), parse_sim)
        raise not_offered("Soracom", kind)

    async def stop(self, card_id: str) -> None:
        """Deactivate a card. Raises GatewayError."""
        await self._authorized.call("POST", f"/sims/{card_path(card_id)}/deactivate")

    async def resume(self, card_id: str) -> None:
        """Activate a card. Raises GatewayError."""
        await self._authorized.call("POST", f"/sims/{card_path(card_id)}/activate")

    async def _log_in(self) -> Token:
        login = {
            "authKeyId": self._credentials.get("auth_key_id", ""),
            "authKey": self._credentials.get("auth_key", ""),
            "tokenTimeoutSeconds": int(TOKEN_LIFETIME.total_seconds()),
        }
        body = (await self._http.call("POST", "/auth", json=login)).json()
        headers = _headers(member(body, "apiKey"), member(body, "token"))
        return Token(headers=headers, lifetime=TOKEN_LIFETIME)


def parse_air_stats(body: Any) -> Reading | None:
    """Add up every day and speed class; None when there is no day yet. Raises GatewayError."""
    if not isinstance(body, list):
        raise malformed("answer is no list")
    if not body:
        return None
    total = 0
    for day in body:
        classes = member(day, "dataTrafficStatsMap")
        if not isinstance(classes, dict):
            raise malformed("dataTrafficStatsMap is no object")
        for counts in classes.values():
            total += to_bytes(member(counts, "uploadByteSizeTotal"), ByteUnit.B)
            total += to_bytes(member(counts, "downloadByteSizeTotal"), ByteUnit.B)
    return {"total_bytes": checked_total(total)}


def parse_sim(body: Any) -> Reading:
    """Read the SIM's status, and for a working one its session. Raises GatewayError."""
    status = word(body, "status")
    if status in _SUSPENDED:
        return {"status": NetworkStatus.SUSPENDED.value}
    session = body.get("sessionStatus")
    online = isinstance(session, dict) and session.get("online") is True
    return {"status": (NetworkStatus.ONLINE if online else NetworkStatus.OFFLINE).value}


def _headers(api_key: str, token: str) -> dict[str, str]:
    return {"X-Soracom-API-Key": api_key, "X-Soracom-Token": token}


def _fixed_headers(credentials: dict[str, str]) -> dict[str, str] | None:
    if not credentials:
        return {}
    return (
        _headers(credentials["api_key"], credentials.get("token", "")) if "api_key" in credentials else None
    )
