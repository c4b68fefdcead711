"""Cisco IoT Control Center (Jasper): cycle-to-date bytes, kept by the platform on the account's own cycle.

`GET /rws/api/v1/devices/{iccid}/ctdUsages` answers `ctdDataUsage` in bytes. Network state needs two
questions: the device's SIM status, and for an activated one whether its session has ended.
Credentials: `username` and `api_key` (HTTP Basic).
"""

from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp

from gateways.adapter import GatewayAccount, GatewayAnswer, Kind, NetworkStatus, Reading
from gateways.credentials import basic, read_credentials
from gateways.http_call import DEFAULT_TIMEOUT, HttpAnswer, HttpCaller, card_path, not_offered, to_answer
from gateways.quantities import ByteUnit, malformed, member, to_bytes, word
from servicekit.clock import Clock

ACTIVATED = "ACTIVATED"
DEACTIVATED = "DEACTIVATED"
_WITHOUT_SERVICE = frozenset({DEACTIVATED, "RETIRED", "PURGED", "REPLACED"})
_NOT_YET_IN_SERVICE = frozenset({"TEST_READY", "ACTIVATION_READY", "INVENTORY"})


class CiscoControlCenterAdapter:
    """Speaks the Control Center REST API; `base_url` ends before `/rws`."""

    kinds: frozenset[Kind] = frozenset({"traffic", "network"})

    def __init__(
        self,
        account: GatewayAccount,
        session: aiohttp.ClientSession,
        clock: Clock,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        self._http = HttpCaller(account, session, clock, timeout)
        self._headers = {"Accept": "application/json"}
        credentials = read_credentials(account.credentials)
        if credentials:
            self._headers |= basic(credentials.get("username", ""), credentials.get("api_key", ""))

    async def fetch(self, kind: Kind, card_id: str) -> GatewayAnswer:
        """Read one fact about a card. Raises GatewayError."""
        if kind == "traffic":
            answer = await self._call("GET", card_id, "/ctdUsages")
            return to_answer(answer, partial(parse_ctd_usage, card_id))
        if kind == "network":
            return await self._fetch_network(card_id)
        raise not_offered("Control Center", kind)

    async def stop(self, card_id: str) -> None:
        """Deactivate a card. Raises GatewayError."""
        await self._call("PUT", card_id, json={"status": DEACTIVATED})

    async def resume(self, card_id: str) -> None:
        """Activate a card. Raises GatewayError."""
        await self._call("PUT", card_id, json={"status": ACTIVATED})

    async def _fetch_network(self, card_id: str) -> GatewayAnswer:
        device = to_answer(await self._call("GET", card_id), partial(parse_device_status, card_id))
        if device.reading is not None:
            return device
        return to_answer(await self._call("GET", card_id, "/sessionInfo"), parse_session)

    async def _call(self, method: str, card_id: str, below: str = "", *, json: object = None) -> HttpAnswer:
        path = f"/rws/api/v1/devices/{card_path(card_id)}{below}"
        return await self._http.call(method, path, headers=self._headers, json=json)


def parse_ctd_usage(card_id: str, body: Any) -> Reading | None:
    """Read the cycle-to-date data usage; None before the first byte was counted. Raises GatewayError."""
    _check_device(card_id, body)
    usage = member(body, "ctdDataUsage")
    return None if usage is None else {"total_bytes": to_bytes(usage, ByteUnit.B)}


def parse_device_status(card_id: str, body: Any) -> Reading | None:
    """Read what the SIM status alone decides; None for an activated one, whose session decides."""
    _check_device(card_id, body)
    status = word(body, "status")
    if status == ACTIVATED:
        return None
    if status in _WITHOUT_SERVICE:
        return {"status": NetworkStatus.SUSPENDED.value}
    if status in _NOT_YET_IN_SERVICE:
        return {"status": NetworkStatus.OFFLINE.value}
    return {"status": NetworkStatus.UNKNOWN.value}


def parse_session(body: Any) -> Reading:
    """Read the last session: begun and not ended means online. Raises GatewayError."""
    started = member(body, "dateSessionStarted")
    is_open = started is not None and body.get("dateSessionEnded") is None
    return {"status": (NetworkStatus.ONLINE if is_open else NetworkStatus.OFFLINE).value}


def _check_device(card_id: str, body: Any) -> None:
    if member(body, "iccid") != card_id:
        raise malformed("answer is about another card")
