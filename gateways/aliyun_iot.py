"""Alibaba Cloud IoT SIM service (Linkcard, version 2021-05-20): usage as a text with its unit, "1.00MB".

The platform counts a card's running period itself. Its units are those of the Chinese carriers, powers of two; two
decimals of a megabyte are all it tells, so readings move in steps of about 10 kB. It answers business failures under
HTTP 200, and at most 20 calls per second and account: the adapter keeps to them.
Requests are signed by the platform's RPC signature, version 1.0 (HMAC-SHA1 over the sorted, percent-encoded query).
Credentials: `access_key_id` and `access_key_secret`.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import aiohttp

from gateways.adapter import (
    FailureKind,
    GatewayAccount,
    GatewayAnswer,
    GatewayError,
    Kind,
    NetworkStatus,
    Reading,
    RealnameStatus,
)
from gateways.credentials import read_credentials
from gateways.http_call import DEFAULT_TIMEOUT, HttpAnswer, HttpCaller, card_path, to_answer
from gateways.pace import Pace
from gateways.quantities import ByteUnit, malformed, member, to_bytes_with_unit, word
from servicekit.clock import Clock
from servicekit.ids import new_token

CALLS_PER_SECOND = 20
API_VERSION = "2021-05-20"
UNITS = {"B": ByteUnit.B, "KB": ByteUnit.KIB, "MB": ByteUnit.MIB, "GB": ByteUnit.GIB}
_REALNAME = {
    "CERTIFIED": RealnameStatus.VERIFIED,
    "NOT_CERTIFIED": RealnameStatus.UNVERIFIED,
    "APPROVING": RealnameStatus.PENDING,
}


class AliyunIotAdapter:
    """Speaks Linkcard's RPC interface; `base_url` is its endpoint."""

    kinds: frozenset[Kind] = frozenset({"traffic", "network", "realname"})

    def __init__(
        self,
        account: GatewayAccount,
        session: aiohttp.ClientSession,
        clock: Clock,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        self._http = HttpCaller(account, session, clock, timeout)
        self._clock = clock
        self._credentials = read_credentials(account.credentials)
        self._pace = Pace(CALLS_PER_SECOND, clock)
        self._questions: dict[Kind, tuple[str, Callable[[Any], Reading | None]]] = {
            "traffic": ("GetCardLatestFlow", parse_latest_flow),
            "network": ("GetCardRealStatus", parse_real_status),
            "realname": ("GetRealNameStatus", parse_realname),
        }

    async def fetch(self, kind: Kind, card_id: str) -> GatewayAnswer:
        """Read one fact about a card; waits for the platform's pace. Raises GatewayError."""
        action, parse = self._questions[kind]
        return to_answer(await self._call("GET", action, card_id), parse)

    async def stop(self, card_id: str) -> None:
        """Stop a card. Raises GatewayError."""
        to_answer(await self._call("POST", "StopSingleCard", card_id), _accepted)

    async def resume(self, card_id: str) -> None:
        """Resume a card that was stopped by hand. Raises GatewayError."""
        to_answer(await self._call("POST", "ResumeSingleCard", card_id), _accepted)

    async def _call(self, method: str, action: str, card_id: str) -> HttpAnswer:
        params = {"Action": action, "Iccid": card_path(card_id), "Format": "JSON", "Version": API_VERSION}
        await self._pace.wait()
        if self._credentials:
            params |= {
                "AccessKeyId": self._credentials.get("access_key_id", ""),
                "SignatureMethod": "HMAC-SHA1",
                "SignatureVersion": "1.0",
                "SignatureNonce": new_token(),
                "Timestamp": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            params["Signature"] = signature(method, params, self._credentials.get("access_key_secret", ""))
        try:
            return await self._http.call(method, "/", params=params)
        except GatewayError as error:
            raise _classified(error) from None


def signature(method: str, params: Mapping[str, str], secret: str) -> str:
    """Sign a request's parameters, the signature itself left out (RPC signature 1.0)."""
    query = "&".join(f"{_encoded(name)}={_encoded(params[name])}" for name in sorted(params))
    text = f"{method}&%2F&{_encoded(query)}"
    digest = hmac.new(f"{secret}&".encode(), text.encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def parse_latest_flow(body: Any) -> Reading | None:
    """Read the running period's usage; None before there is any. Raises GatewayError."""
    data = _data(body)
    return None if data in (None, "") else {"total_bytes": to_bytes_with_unit(data, UNITS)}


def parse_real_status(body: Any) -> Reading | None:
    """Read the online state; None while the carrier is still being asked. Raises GatewayError."""
    cards = _data(body)
    if not isinstance(cards, list) or len(cards) != 1:
        raise malformed("answer holds not exactly one card")
    if word(cards[0], "Status") != "SUCCESS":
        return None
    if member(cards[0], "Gprs") is not True:
        return {"status": NetworkStatus.SUSPENDED.value}
    online = member(cards[0], "Online") is True
    return {"status": (NetworkStatus.ONLINE if online else NetworkStatus.OFFLINE).value}


def parse_realname(body: Any) -> Reading:
    """Read the personal real-name status. Raises GatewayError."""
    status = word(_data(body), "RealNameStatus")
    return {"status": _REALNAME.get(status, RealnameStatus.UNKNOWN).value}


def _accepted(body: Any) -> None:
    if _data(body) is not True:
        raise GatewayError(FailureKind.REFUSED, "the platform did not do it")


def _data(body: Any) -> Any:
    if member(body, "Success") is not True:
        code = str(body.get("Code"))
        raise GatewayError(_failure_of(code), f"the platform answered code {code[:60]}")
    return member(body, "Data")


def _failure_of(code: str) -> FailureKind:
    if code.startswith("Throttling"):
        return FailureKind.THROTTLED
    return FailureKind.NOT_FOUND if "NotFound" in code or "NotExist" in code else FailureKind.REFUSED


def _classified(error: GatewayError) -> GatewayError:
    """Name a failure by the code in its body where its HTTP status says less."""
    if error.failure is not FailureKind.REFUSED:
        return error
    try:
        code = json.loads(error.raw).get("Code")
    except (ValueError, AttributeError):
        return error
    return GatewayError(
        _failure_of(str(code)),
        f"{error.message}, code {str(code)[:60]}",
        retry_after=error.retry_after,
        raw=error.raw,
        latency_ms=error.latency_ms,
        http_status=error.http_status,
    )


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")
