"""The generic shape."""

from gateways.simulator.shapes.shape import Answer, Call, Route
from gateways.simulator.stats import STOP_RESUME


def traffic(call: Call) -> Answer:
    """Answer the cycle's total, or what was used since the last answer when the account reports deltas."""
    card = call.card()
    name = "delta_bytes" if call.faults.deltas else "total_bytes"
    if call.is_empty():
        return Answer({"card_id": card.card.card_id, name: None}, "traffic")
    truth = card.take_delta(call.at) if call.faults.deltas else card.cycle_bytes(call.at)
    return Answer({"card_id": card.card.card_id, name: call.told(truth)}, "traffic")


def network(call: Call) -> Answer:
    """Answer the network status."""
    card = call.card()
    status = None if call.is_empty() else card.network(call.at).value
    return Answer({"card_id": card.card.card_id, "status": status}, "network")


def realname(call: Call) -> Answer:
    """Answer the real-name status."""
    card = call.card()
    status = None if call.is_empty() else card.realname(call.at).value
    return Answer({"card_id": card.card.card_id, "status": status}, "realname")


def stop(call: Call) -> Answer:
    """Suspend the card."""
    call.card().stop(call.at)
    return Answer({}, "stop")


def resume(call: Call) -> Answer:
    """Let the card work again."""
    call.card().resume(call.at)
    return Answer({}, "resume")


ROUTES = (
    Route("GET", "/cards/{card_id}/traffic", traffic),
    Route("GET", "/cards/{card_id}/network", network),
    Route("GET", "/cards/{card_id}/realname", realname),
    Route("POST", "/cards/{card_id}/stop", stop, STOP_RESUME),
    Route("POST", "/cards/{card_id}/resume", resume, STOP_RESUME),
)
