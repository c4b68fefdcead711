"""Soracom's shape: bytes per speed class and UTC day."""

from datetime import UTC, datetime

from aiohttp import web

from gateways.adapter import NetworkStatus
from gateways.simulator.shapes.shape import Answer, Call, Route
from gateways.simulator.stats import STOP_RESUME


def log_in(_: Call) -> Answer:
    """Sell a key and a token."""
    return Answer({"apiKey": "sim-key", "token": "sim-token", "operatorId": "OP0000000000"})


def stats(call: Call) -> Answer:
    """Answer one element per UTC day, the day's bytes split over two speed classes."""
    card = call.card()
    start = _instant(call, "from")
    end = min(_instant(call, "to"), call.at)
    days = [] if call.is_empty() else card.utc_days(start, end)
    today = call.at.date()
    body = []
    for day, used in days:
        told = call.told(used) if day == today else used
        slow = told // 3 if isinstance(told, int) and told > 0 else 0
        fast = told - slow if isinstance(told, int) else told
        classes = {
            "s1.fast": {"uploadByteSizeTotal": 0, "downloadByteSizeTotal": fast},
            "s1.slow": {"uploadByteSizeTotal": slow, "downloadByteSizeTotal": 0},
        }
        body.append({"date": day.strftime("%Y%m%d"), "dataTrafficStatsMap": classes})
    return Answer(body, "traffic")


def sim(call: Call) -> Answer:
    """Answer the SIM with its session."""
    card = call.card()
    online = card.network(call.at) is NetworkStatus.ONLINE
    status = "inactive" if card.is_stopped else "active"
    body = {"simId": card.card.card_id, "status": status, "sessionStatus": {"online": online}}
    return Answer(body, "network")


def deactivate(call: Call) -> Answer:
    """Suspend the SIM."""
    call.card().stop(call.at)
    return Answer({"status": "inactive"}, "stop")


def activate(call: Call) -> Answer:
    """Let the SIM work again."""
    call.card().resume(call.at)
    return Answer({"status": "active"}, "resume")


def _instant(call: Call, name: str) -> datetime:
    text = call.request.query.get(name, "")
    if not text.isdigit() or len(text) > 10:  # noqa: PLR2004 - seconds, not milliseconds
        raise web.HTTPBadRequest(text=f"{name} is no epoch second")
    return datetime.fromtimestamp(int(text), tz=UTC)


ROUTES = (
    Route("POST", "/auth", log_in),
    Route("GET", "/stats/air/sims/{card_id}", stats),
    Route("GET", "/sims/{card_id}", sim),
    Route("POST", "/sims/{card_id}/deactivate", deactivate, STOP_RESUME),
    Route("POST", "/sims/{card_id}/activate", activate, STOP_RESUME),
)
