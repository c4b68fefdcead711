"""emnify's shape: the platform's own numbers for SIMs, volumes per UTC month in decimal megabytes."""

from datetime import UTC, datetime
from typing import Any

from gateways.adapter import NetworkStatus
from gateways.simulator.shapes.shape import Answer, Call, Route, megabytes
from gateways.simulator.stats import STOP_RESUME
from gateways.simulator.world import SimulatedCard


def authenticate(_: Call) -> Answer:
    """Sell an access token."""
    return Answer({"auth_token": "sim-token"})


def search(call: Call) -> Answer:
    """Find a SIM by ICCID."""
    _, _, iccid = call.request.query.get("q", "").partition(":")
    card = call.world.cards.get((call.account_id, iccid))
    return Answer([] if card is None else [_sim(card)])


def stats(call: Call) -> Answer:
    """Answer the running month's volume; the API wraps one SIM's statistics in a list."""
    card = call.card_by_sim_id()
    if call.is_empty():
        return Answer([{"current_month": {}}], "traffic")
    month_start = datetime(call.at.year, call.at.month, 1, tzinfo=UTC)
    volume = megabytes(call.told(card.bytes_between(month_start, call.at)))
    data = {
        "sim_id": card.sim_id,
        "month": month_start.isoformat(),
        "volume": volume,
        "traffic_type": {"id": 5, "description": "Data", "unit": "MB"},
    }
    return Answer([{"current_month": {"data": data}}], "traffic")


def sim(call: Call) -> Answer:
    """Answer the SIM; a suspended one settles the network status, an activated one's endpoint does."""
    card = call.card_by_sim_id()
    return Answer(_sim(card), "network" if card.is_stopped else None)


def connectivity(call: Call) -> Answer:
    """Answer an endpoint's connectivity; endpoints carry their SIM's number here."""
    online = call.card_by_sim_id().network(call.at) is NetworkStatus.ONLINE
    return Answer({"status": {"description": "ONLINE" if online else "OFFLINE"}, "services": []}, "network")


async def update(call: Call) -> Answer:
    """Activate or suspend the SIM."""
    card = call.card_by_sim_id()
    wanted = await call.request.json()
    if wanted.get("status", {}).get("id") == 2:  # noqa: PLR2004 - the platform's number for "Suspended"
        card.stop(call.at)
        return Answer(None, "stop", 204)
    card.resume(call.at)
    return Answer(None, "resume", 204)


def _sim(card: SimulatedCard) -> dict[str, Any]:
    status = (
        {"id": 2, "description": "Suspended"} if card.is_stopped else {"id": 1, "description": "Activated"}
    )
    return {
        "id": card.sim_id,
        "iccid": card.card.card_id,
        "iccid_with_luhn": card.card.card_id,
        "status": status,
        "endpoint": {"id": card.sim_id},
    }


ROUTES = (
    Route("POST", "/api/v1/authenticate", authenticate),
    Route("GET", "/api/v1/sim", search),
    Route("GET", "/api/v1/sim/{sim_id}/stats", stats),
    Route("GET", "/api/v1/sim/{sim_id}", sim),
    Route("PATCH", "/api/v1/sim/{sim_id}", update, STOP_RESUME),
    Route("GET", "/api/v1/endpoint/{sim_id}/connectivity", connectivity),
)
