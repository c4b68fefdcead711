"""The simulator's HTTP server: every account's gateway, and the controls."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from aiohttp import web

from gateways.simulator.faults import Dice, Faults
from gateways.simulator.shapes import aliyun_iot, cisco_control_center, emnify, generic_http, onence, soracom
from gateways.simulator.shapes.shape import Answer, Call, Route
from gateways.simulator.stats import AccountStats, account_stats
from gateways.simulator.world import World

SHAPES: dict[str, tuple[Route, ...]] = {
    "generic_http": generic_http.ROUTES,
    "onence": onence.ROUTES,
    "cisco_control_center": cisco_control_center.ROUTES,
    "emnify": emnify.ROUTES,
    "soracom": soracom.ROUTES,
    "aliyun_iot": aliyun_iot.ROUTES,
}
"""The routes of each gateway kind; every account answers in every shape."""


@dataclass(slots=True)
class _Gateway:
    """One account's gateway: how it behaves and what it saw."""

    faults: Faults
    dice: Dice
    stats: AccountStats


class Simulator:
    """Serves a world. Build one per process; `application()` gives what aiohttp runs."""

    def __init__(self, world: World, seed: int, faults: Faults) -> None:
        self.world = world
        self._gateways = {
            account_id: _Gateway(faults, Dice(seed, account_id), account_stats(account))
            for account_id, account in world.accounts.items()
        }

    def application(self) -> web.Application:
        """Return the web application with all routes."""
        application = web.Application()
        for routes in SHAPES.values():
            for route in routes:
                path = "/accounts/{account_id}" + route.path
                application.router.add_route(route.method, path, self._carrier_handler(route))
        control = application.router
        control.add_get("/_control/stats", self._get_stats)
        control.add_delete("/_control/stats", self._reset_stats)
        control.add_get("/_control/faults", self._get_faults)
        control.add_post("/_control/faults", self._set_faults)
        control.add_post("/_control/clock", self._advance_clock)
        control.add_get("/_control/cards/{card_id}", self._get_card)
        return application

    def _carrier_handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            account_id = request.match_info["account_id"]
            gateway = self._gateways.get(account_id)
            if gateway is None:
                return _json({"error": "no such account"}, 404)
            gateway.stats.requests += 1
            with gateway.stats.lanes[route.lane].hold() as is_over:
                try:
                    return await self._answer(request, account_id, gateway, route, is_over=is_over)
                except web.HTTPException as error:
                    gateway.stats.failures[str(error.status)] += 1
                    return _json({"error": error.text}, error.status)
                except asyncio.CancelledError:
                    gateway.stats.cancelled += 1
                    raise

        return handle

    async def _answer(
        self, request: web.Request, account_id: str, gateway: _Gateway, route: Route, *, is_over: bool
    ) -> web.StreamResponse:
        faults, dice = gateway.faults, gateway.dice
        if dice.happens(faults.hang_rate):
            await asyncio.Event().wait()
        latency = dice.latency_seconds(faults)
        if latency:
            await asyncio.sleep(latency)
        refusal = _refusal(faults, dice, is_over=is_over)
        if refusal is not None:
            gateway.stats.failures[str(refusal.status)] += 1
            return refusal
        call = Call(request, account_id, self.world, self.world.now(), faults, dice)
        answer = route.answer(call)
        if inspect.isawaitable(answer):
            answer = await answer
        gateway.stats.answers[answer.kind or "step"] += 1
        return _response(answer)

    async def _get_stats(self, _: web.Request) -> web.Response:
        accounts = {account_id: gateway.stats.as_json() for account_id, gateway in self._gateways.items()}
        return _json({"accounts": accounts})

    async def _reset_stats(self, _: web.Request) -> web.Response:
        for gateway in self._gateways.values():
            gateway.stats.reset()
        return _json({})

    async def _get_faults(self, _: web.Request) -> web.Response:
        return _json({account_id: gateway.faults.as_json() for account_id, gateway in self._gateways.items()})

    async def _set_faults(self, request: web.Request) -> web.Response:
        """Change faults of one account or all: `{"account_id"?, "reset"?: true, <fault>: <value>, ...}`."""
        values = await _object(request)
        account_id = values.pop("account_id", None)
        chosen = list(self._gateways) if account_id is None else [account_id]
        if account_id is not None and account_id not in self._gateways:
            return _json({"error": f"no account {account_id!r}"}, 404)
        is_reset = values.pop("reset", False) is True
        try:
            changed = {
                name: (Faults() if is_reset else self._gateways[name].faults).changed(values)
                for name in chosen
            }
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        for name, faults in changed.items():
            self._gateways[name].faults = faults
        return await self._get_faults(request)

    async def _advance_clock(self, request: web.Request) -> web.Response:
        """Move the simulator's time on: `{"advance_seconds": 3600}`; it never goes back."""
        seconds = (await _object(request)).get("advance_seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 10**8:
            return _json({"error": "advance_seconds must be a number from 0 to 1e8"}, 400)
        self.world.advance(timedelta(seconds=seconds))
        return _json({"now": self.world.now().isoformat()})

    async def _get_card(self, request: web.Request) -> web.Response:
        """Tell the truth about a card, past all faults."""
        card_id = request.match_info["card_id"]
        at = self.world.now()
        for account_id in self.world.accounts:
            card = self.world.cards.get((account_id, card_id))
            if card is not None:
                truth = {
                    "card_id": card_id,
                    "account_id": account_id,
                    "at": at.isoformat(),
                    "cycle_start": card.cycle_start(at).isoformat(),
                    "cycle_bytes": card.cycle_bytes(at),
                    "network": card.network(at).value,
                    "realname": card.realname(at).value,
                }
                return _json(truth)
        return _json({"error": "no such card"}, 404)


def _refusal(faults: Faults, dice: Dice, *, is_over: bool) -> web.Response | None:
    if faults.outage:
        return _json({"error": "out of service"}, 503)
    if faults.refuse:
        return _json({"error": "unauthorized"}, 401)
    if (is_over and faults.enforce_limits) or dice.happens(faults.throttle_rate):
        headers = {"Retry-After": str(faults.retry_after_seconds)}
        return _json({"error": "too many requests"}, 429, headers)
    if dice.happens(faults.error_rate):
        return _json({"error": "internal error"}, 500)
    return None


def _response(answer: Answer) -> web.Response:
    return web.Response(status=204) if answer.body is None else _json(answer.body, answer.status)


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    encoded = json.dumps(body, separators=(",", ":")).encode()
    return web.Response(body=encoded, status=status, headers=headers, content_type="application/json")


async def _object(request: web.Request) -> dict[str, Any]:
    try:
        values = await request.json()
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise web.HTTPBadRequest(text="the body must be a JSON object")
    return values
