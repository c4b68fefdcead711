"""Alibaba Cloud Linkcard's shape: one address, an action, usage as a text with two decimals and a unit."""

from typing import Any

from aiohttp import web

from gateways.adapter import NetworkStatus, RealnameStatus
from gateways.simulator.shapes.shape import Answer, Call, Route
from gateways.simulator.stats import STOP_RESUME
from gateways.simulator.world import SimulatedCard

_REALNAME = {
    RealnameStatus.VERIFIED: "CERTIFIED",
    RealnameStatus.UNVERIFIED: "NOT_CERTIFIED",
    RealnameStatus.PENDING: "APPROVING",
}
_MEBIBYTE = 2**20


def ask(call: Call) -> Answer:
    """Answer a question about a card."""
    card = _card(call)
    if card is None:
        return _failure("CardNotFound")
    match call.request.query.get("Action"):
        case "GetCardLatestFlow":
            return _success(
                None if call.is_empty() else _flow(call.told(card.cycle_bytes(call.at))), "traffic"
            )
        case "GetCardRealStatus":
            online = card.network(call.at) is NetworkStatus.ONLINE
            state = {"Iccid": card.card.card_id, "Gprs": not card.is_stopped, "Online": online}
            return _success([{**state, "Status": "PROCESSING" if call.is_empty() else "SUCCESS"}], "network")
        case "GetRealNameStatus":
            return _success({"RealNameStatus": _REALNAME[card.realname(call.at)]}, "realname")
        case action:
            raise web.HTTPBadRequest(text=f"unknown action {action}")


def command(call: Call) -> Answer:
    """Stop or resume a card."""
    card = _card(call)
    if card is None:
        return _failure("CardNotFound")
    match call.request.query.get("Action"):
        case "StopSingleCard":
            card.stop(call.at)
            return _success(answered=True, kind="stop")
        case "ResumeSingleCard":
            card.resume(call.at)
            return _success(answered=True, kind="resume")
        case action:
            raise web.HTTPBadRequest(text=f"unknown action {action}")


def _card(call: Call) -> SimulatedCard | None:
    return call.world.cards.get((call.account_id, call.request.query.get("Iccid", "")))


def _flow(count: int | str) -> str:
    if isinstance(count, str):
        return count
    sign, size = ("-", -count) if count < 0 else ("", count)
    return f"{sign}{size // _MEBIBYTE}.{size % _MEBIBYTE * 100 // _MEBIBYTE:02d}MB"


def _success(answered: Any, kind: str) -> Answer:
    return Answer({"Code": "200", "Success": True, "RequestId": "0", "Data": answered}, kind)


def _failure(code: str) -> Answer:
    return Answer({"Code": code, "Success": False, "RequestId": "0"})


ROUTES = (Route("GET", "/", ask), Route("POST", "/", command, STOP_RESUME))
