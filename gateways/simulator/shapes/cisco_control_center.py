"""Cisco Control Center's shape: cycle-to-date bytes."""

from typing import Any

from gateways.adapter import NetworkStatus
from gateways.simulator.shapes.shape import Answer, Call, Route
from gateways.simulator.stats import STOP_RESUME
from gateways.simulator.world import SimulatedCard

_BELOW = "/rws/api/v1/devices/{card_id}"


def usage(call: Call) -> Answer:
    """Answer the cycle-to-date usage."""
    card = call.card()
    used = None if call.is_empty() else call.told(card.cycle_bytes(call.at))
    body = {**_device(card), "ctdDataUsage": used, "ctdSMSUsage": 1, "overageLimitReached": False}
    return Answer(body, "traffic")


def device(call: Call) -> Answer:
    """Answer the device; a deactivated one settles the network status, an activated one's session does."""
    card = call.card()
    return Answer(_device(card), "network" if card.is_stopped else None)


def session(call: Call) -> Answer:
    """Answer the last session, ended unless the card is online."""
    card = call.card()
    started = card.cycle_start(call.at).isoformat()
    online = card.network(call.at) is NetworkStatus.ONLINE
    ended = None if online else call.at.isoformat()
    body = {"iccid": card.card.card_id, "dateSessionStarted": started, "dateSessionEnded": ended}
    return Answer(body, "network")


async def update(call: Call) -> Answer:
    """Activate or deactivate the device."""
    card = call.card()
    wanted = await call.request.json()
    if wanted.get("status") == "DEACTIVATED":
        card.stop(call.at)
        return Answer({"iccid": card.card.card_id}, "stop")
    card.resume(call.at)
    return Answer({"iccid": card.card.card_id}, "resume")


def _device(card: SimulatedCard) -> dict[str, Any]:
    status = "DEACTIVATED" if card.is_stopped else "ACTIVATED"
    return {"iccid": card.card.card_id, "msisdn": card.card.msisdn, "status": status, "ratePlan": "Demo"}


ROUTES = (
    Route("GET", _BELOW + "/ctdUsages", usage),
    Route("GET", _BELOW + "/sessionInfo", session),
    Route("GET", _BELOW, device),
    Route("PUT", _BELOW, update, STOP_RESUME),
)
