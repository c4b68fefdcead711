"""1NCE's shape: day records in decimal megabytes."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from aiohttp import web

from gateways.adapter import NetworkStatus
from gateways.simulator.shapes.shape import Answer, Call, Route, megabytes
from gateways.simulator.stats import STOP_RESUME

TOKEN = "sim-token"  # noqa: S105 - the simulator lets everybody in
_LONGEST_DAYS = 186


def token(_: Call) -> Answer:
    """Sell a token."""
    return Answer({"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600})


def usage(call: Call) -> Answer:
    """Answer one record per UTC day of the asked period, today's as far as it has come."""
    card = call.card()
    today = call.at.date()
    first = max(_day(call, "start_dt", today), today - timedelta(days=_LONGEST_DAYS))
    end = min(call.at, _midnight(_day(call, "end_dt", today) + timedelta(days=1)))
    days = [] if call.is_empty() else card.utc_days(_midnight(first), end)
    records = [_record(day, call.told(used) if day == today else used) for day, used in days]
    return Answer({"stats": records}, "traffic")


def status(call: Call) -> Answer:
    """Answer the connectivity; a disabled SIM is merely offline here, as on the platform."""
    online = call.card().network(call.at) is NetworkStatus.ONLINE
    return Answer({"status": "ONLINE" if online else "OFFLINE", "services": ["GPRS"]}, "network")


async def update(call: Call) -> Answer:
    """Enable or disable the SIM."""
    card = call.card()
    wanted = await call.request.json()
    if wanted.get("status") == "Disabled":
        card.stop(call.at)
        return Answer({}, "stop")
    card.resume(call.at)
    return Answer({}, "resume")


def _record(day: date, used: int | str) -> dict[str, Any]:
    data = {"volume": megabytes(used), "traffic_type": {"id": 1, "description": "Data", "unit": "MB"}}
    sms = {"volume": "1", "traffic_type": {"id": 2, "description": "SMS", "unit": "SMS"}}
    return {"date": f"{day.isoformat()}T00:00:00.000Z", "data": data, "sms": sms}


def _day(call: Call, name: str, default: date) -> date:
    text = call.request.query.get(name)
    try:
        return default if text is None else date.fromisoformat(text)
    except ValueError:
        raise web.HTTPBadRequest(text=f"{name} is no date") from None


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)


ROUTES = (
    Route("POST", "/oauth/token", token),
    Route("GET", "/v1/sims/{card_id}/usage", usage),
    Route("GET", "/v1/sims/{card_id}/status", status),
    Route("PUT", "/v1/sims/{card_id}", update, STOP_RESUME),
)
