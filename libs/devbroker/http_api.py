"""Answer nsqd's HTTP interface, and set faults at `/faults`."""

import json
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from devbroker.identify import NSQD_VERSION
from devbroker.options import BrokerOptions
from devbroker.topic import Topic
from devbroker.wire import CommandError, is_valid_name, split_bodies

if TYPE_CHECKING:
    from devbroker.server import DevBroker

_MILLISECONDS = 1000
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiError(Exception):
    """End a request with a status and nsqd's own error name."""

    def __init__(self, status: int, name: str) -> None:
        super().__init__(name)
        self.status = status
        self.name = name


class HttpApi:
    """Map the HTTP interface to one broker."""

    def __init__(self, server: "DevBroker") -> None:
        self._server = server
        self._broker = server.broker

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        limit = self._broker.options.max_body_size
        application = web.Application(middlewares=[_errors], client_max_size=limit + 1)
        application.add_routes(
            [
                web.get("/ping", self._ping),
                web.get("/info", self._info),
                web.get("/stats", self._stats),
                web.get("/config/{option}", self._config),
                web.post("/pub", self._publish),
                web.post("/mpub", self._publish_many),
                web.post("/topic/create", self._create_topic),
                web.post("/topic/delete", self._delete_topic),
                web.post("/topic/empty", self._empty_topic),
                web.post("/channel/create", self._create_channel),
                web.post("/channel/delete", self._delete_channel),
                web.post("/channel/empty", self._empty_channel),
                web.get("/faults", self._show_faults),
                web.post("/faults", self._set_faults),
                web.delete("/faults", self._reset_faults),
            ]
        )
        return application

    async def _ping(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _info(self, _request: web.Request) -> web.Response:
        hostname = socket.gethostname()
        return web.json_response(
            {
                "version": NSQD_VERSION,
                "broadcast_address": hostname,
                "hostname": hostname,
                "http_port": self._server.http_port,
                "tcp_port": self._server.tcp_port,
                "start_time": int(self._server.started_at),
                "durable": False,
            }
        )

    async def _stats(self, request: web.Request) -> web.Response:
        wanted = request.query.get("topic")
        topics = [
            topic.stats()
            for name, topic in sorted(self._broker.topics.items())
            if not wanted or name == wanted
        ]
        channel = request.query.get("channel")
        if channel:
            for topic in topics:
                topic["channels"] = [c for c in topic["channels"] if c["channel_name"] == channel]
        return web.json_response(
            {
                "version": NSQD_VERSION,
                "health": "OK",
                "start_time": int(self._server.started_at),
                "topics": topics,
                "producers": [],
            }
        )

    async def _config(self, request: web.Request) -> web.Response:
        name = request.match_info["option"]
        if name not in {"max_msg_size", "max_body_size", "max_rdy_count"}:
            raise ApiError(400, "INVALID_OPTION")
        return web.json_response(getattr(self._broker.options, name))

    async def _publish(self, request: web.Request) -> web.Response:
        body = await request.read()
        if len(body) > self._broker.options.max_msg_size:
            raise ApiError(413, "MSG_TOO_BIG")
        if not body:
            raise ApiError(400, "MSG_EMPTY")
        topic = _topic_name(request)
        delay = request.query.get("defer", "0")
        limit = self._broker.options.max_req_timeout * _MILLISECONDS
        if not delay.isdigit() or int(delay) > limit:
            raise ApiError(400, "INVALID_DEFER")
        self._broker.publish(topic, [body], int(delay) / _MILLISECONDS)
        return web.Response(text="OK")

    async def _publish_many(self, request: web.Request) -> web.Response:
        body = await request.read()
        if len(body) > self._broker.options.max_body_size:
            raise ApiError(413, "BODY_TOO_BIG")
        topic = _topic_name(request)
        limit = self._broker.options.max_msg_size
        if request.query.get("binary", "false") in {"false", "0"}:
            bodies = [line for line in body.split(b"\n") if line]
            if any(len(line) > limit for line in bodies):
                raise ApiError(413, "MSG_TOO_BIG")
        else:
            bodies = _binary_bodies(body, self._broker.options)
        self._broker.publish(topic, bodies)
        return web.Response(text="OK")

    async def _create_topic(self, request: web.Request) -> web.Response:
        self._broker.topic(_topic_name(request))
        return web.Response()

    async def _delete_topic(self, request: web.Request) -> web.Response:
        if not self._broker.remove_topic(_topic_name(request)):
            raise ApiError(404, "TOPIC_NOT_FOUND")
        return web.Response()

    async def _empty_topic(self, request: web.Request) -> web.Response:
        self._existing_topic(request).empty()
        return web.Response()

    async def _create_channel(self, request: web.Request) -> web.Response:
        name = _channel_name(request)
        self._existing_topic(request).channel(name)
        return web.Response()

    async def _delete_channel(self, request: web.Request) -> web.Response:
        name = _channel_name(request)
        if not self._existing_topic(request).remove_channel(name):
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        return web.Response()

    async def _empty_channel(self, request: web.Request) -> web.Response:
        name = _channel_name(request)
        channel = self._existing_topic(request).channels.get(name)
        if channel is None:
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        channel.empty()
        return web.Response()

    async def _show_faults(self, _request: web.Request) -> web.Response:
        return web.json_response(self._server.faults.snapshot())

    async def _set_faults(self, request: web.Request) -> web.Response:
        try:
            result = self._apply_faults(json.loads(await request.read()))
        except (ValueError, TypeError, KeyError) as error:
            raise ApiError(400, f"INVALID_FAULT {error}") from error
        return web.json_response(result)

    async def _reset_faults(self, _request: web.Request) -> web.Response:
        self._server.faults.reset()
        return web.json_response(self._server.faults.snapshot())

    def _apply_faults(self, wanted: Any) -> dict[str, Any]:
        if not isinstance(wanted, dict):
            raise TypeError("an object is expected")
        drop = wanted.pop("drop_connections", "none")
        lose = wanted.pop("lose_in_flight", False)
        if drop not in {"none", "all", "consumers", "publishers"}:
            raise ValueError("drop_connections must be all, consumers or publishers")
        self._server.faults.set(**wanted)
        result: dict[str, Any] = self._server.faults.snapshot()
        if lose:
            result["lost"] = self._server.lose_in_flight()
        if drop != "none":
            result["dropped"] = self._server.drop_connections(
                consumers=drop in {"all", "consumers"}, publishers=drop in {"all", "publishers"}
            )
        return result

    def _existing_topic(self, request: web.Request) -> Topic:
        topic = self._broker.topics.get(_topic_name(request))
        if topic is None:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        return topic


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return web.json_response({"message": error.name}, status=error.status)


def _topic_name(request: web.Request) -> str:
    name = request.query.get("topic")
    if name is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_TOPIC")
    return name


def _channel_name(request: web.Request) -> str:
    _topic_name(request)
    name = request.query.get("channel")
    if name is None:
        raise ApiError(400, "MISSING_ARG_CHANNEL")
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_ARG_CHANNEL")
    return name


def _binary_bodies(body: bytes, options: BrokerOptions) -> list[bytes]:
    try:
        return split_bodies(body, limit=options.max_msg_size, total_limit=options.max_body_size)
    except CommandError as error:
        raise ApiError(413, error.code.removeprefix("E_")) from error
