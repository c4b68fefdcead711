"""1NCE: usage as one record per UTC day in decimal megabytes (10^6), texts with six decimals.

The platform has no cycle total. Its day records grow until the day is over and may come late or twice, so the
adapter never hands on a single record: it asks for every day since the cycle began and adds them up, the
greatest record of each day once. A lost or repeated record then cannot lose or double a byte.
Days are UTC days: give such an account the zone UTC. SMS records stand beside data records and are left out.
Credentials: `client_id` and `client_secret` (OAuth client credentials), or a `token`.
"""

from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp

from gateways.adapter import GatewayAccount, GatewayAnswer, Kind, NetworkStatus, Reading
from gateways.credentials import (
    AuthorizedCaller,
    Token,
    TokenKeeper,
    basic,
    bearer,
    bearer_or_none,
    read_credentials,
)
from gateways.cycles import cycle_start_day
from gateways.http_call import DEFAULT_TIMEOUT, HttpCaller, card_path, not_offered, to_answer
from gateways.quantities import ByteUnit, checked_total, malformed, member, to_bytes, word
from servicekit.clock import Clock

_NETWORK = {
    "ONLINE": NetworkStatus.ONLINE,
    "ATTACHED": NetworkStatus.ONLINE,
    "OFFLINE": NetworkStatus.OFFLINE,
    "BLOCKED": NetworkStatus.SUSPENDED,
}


class OnenceAdapter:
    """Speaks 1NCE's management API v1; `base_url` ends before `/v1`."""

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
        tokens = TokenKeeper(self._buy_token, clock)
        self._authorized = AuthorizedCaller(self._http, tokens, bearer_or_none(self._credentials))

    async def fetch(self, kind: Kind, card_id: str) -> GatewayAnswer:
        """Read one fact about a card. Raises GatewayError."""
        if kind == "traffic":
            return await self._fetch_traffic(card_id)
        if kind == "network":
            answer = await self._authorized.call("GET", f"/v1/sims/{card_path(card_id)}/status")
            return to_answer(answer, parse_onence_status)
        raise not_offered("1NCE", kind)

    async def stop(self, card_id: str) -> None:
        """Disable a card. Raises GatewayError."""
        await self._set_status(card_id, "Disabled")

    async def resume(self, card_id: str) -> None:
        """Enable a card. Raises GatewayError."""
        await self._set_status(card_id, "Enabled")

    async def _fetch_traffic(self, card_id: str) -> GatewayAnswer:
        now = self._clock.now()
        first_day = cycle_start_day(now, self._reset_day, self._zone)
        params = {"start_dt": first_day.isoformat(), "end_dt": max(first_day, now.date()).isoformat()}
        answer = await self._authorized.call("GET", f"/v1/sims/{card_path(card_id)}/usage", params=params)
        return to_answer(answer, lambda body: parse_onence_usage(body, since=first_day))

    async def _set_status(self, card_id: str, status: str) -> None:
        body = {"iccid": card_id, "status": status}
        await self._authorized.call("PUT", f"/v1/sims/{card_path(card_id)}", json=body)

    async def _buy_token(self) -> Token:
        answer = await self._http.call(
            "POST",
            "/oauth/token",
            headers=basic(self._credentials.get("client_id", ""), self._credentials.get("client_secret", "")),
            form={"grant_type": "client_credentials"},
        )
        body = answer.json()
        seconds = member(body, "expires_in")
        if not isinstance(seconds, int) or not 0 < seconds <= 10**7:
            raise malformed("token answer has no usable expires_in")
        headers = bearer(member(body, "access_token"))
        return Token(headers=headers, lifetime=timedelta(seconds=seconds))


def parse_onence_usage(body: Any, *, since: date) -> Reading | None:
    """Add up the data records of the days from `since` on; None when there is none. Raises GatewayError."""
    records = member(body, "stats")
    if not isinstance(records, list):
        raise malformed("stats is no list")
    by_day: dict[date, int] = {}
    for record in records:
        day = _utc_day(member(record, "date"))
        if day < since or not isinstance(record.get("data"), dict):
            continue
        by_day[day] = max(by_day.get(day, 0), _data_bytes(record["data"]))
    return {"total_bytes": checked_total(sum(by_day.values()))} if by_day else None


def parse_onence_status(body: Any) -> Reading:
    """Read the connectivity status; v1 answers a word, v2 an object. Raises GatewayError."""
    status = member(body, "status")
    name = word(status, "description") if isinstance(status, dict) else word(body, "status")
    return {"status": _NETWORK.get(name, NetworkStatus.UNKNOWN).value}


def _data_bytes(data: dict[str, Any]) -> int:
    if member(data, "traffic_type", "unit") != "MB":
        raise malformed("data usage in another unit than MB")
    return to_bytes(member(data, "volume"), ByteUnit.MB)


def _utc_day(text: object) -> date:
    try:
        return datetime.fromisoformat(str(text)).date()
    except ValueError:
        raise malformed("usage record has no date") from None
