"""How a gateway call fails: each kind of failure from a real socket, named and bounded."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from gateways.adapter import FailureKind, GatewayAccount, GatewayAdapter, GatewayError, Kind
from gateways.http_call import BODY_LIMIT_BYTES
from gateways.registry import Gateways
from servicekit.clock import SystemClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Build = Callable[..., Awaitable[GatewayAdapter]]
CARD = "89860040010000000002"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as shared:
        yield shared


@pytest.fixture
async def gateway(session: aiohttp.ClientSession) -> AsyncIterator[Build]:
    servers: list[TestServer] = []

    async def build(
        handler: Handler,
        kind: str = "generic_http",
        credentials: str = "",
        limit: timedelta = timedelta(seconds=5),
    ) -> GatewayAdapter:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(application)
        await server.start_server()
        servers.append(server)
        account = GatewayAccount("a", kind, str(server.make_url("/")), SecretStr(credentials))
        return Gateways(session, SystemClock(), limit).adapter(account)

    yield build
    for server in servers:
        await server.close()


async def failure(adapter: GatewayAdapter, kind: Kind = "traffic") -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        await adapter.fetch(kind, CARD)
    return raised.value


def answering(status: int, body: bytes = b"", **headers: str) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return handle


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (302, FailureKind.MALFORMED),
        (400, FailureKind.REFUSED),
        (401, FailureKind.REFUSED),
        (403, FailureKind.REFUSED),
        (404, FailureKind.NOT_FOUND),
        (422, FailureKind.REFUSED),
        (429, FailureKind.THROTTLED),
        (500, FailureKind.SERVER_ERROR),
        (503, FailureKind.SERVER_ERROR),
    ],
)
async def test_each_status_has_its_failure(gateway: Build, status: int, expected: FailureKind) -> None:
    error = await failure(await gateway(answering(status, b"why", Location="/elsewhere", Retry_After="7")))
    assert (error.failure, error.http_status, error.raw) == (expected, status, "why")
    assert error.retry_after == timedelta(seconds=7)


async def test_an_answer_says_when_and_what(gateway: Build) -> None:
    before = datetime.now(UTC)
    answer = await (await gateway(answering(200, b'{"total_bytes": 5}'))).fetch("traffic", CARD)
    assert before <= answer.observed_at <= datetime.now(UTC)
    assert answer.observed_at.tzinfo is UTC
    assert answer.reading == {"total_bytes": 5}
    assert answer.raw == '{"total_bytes": 5}'
    assert answer.latency_ms >= 0


async def test_a_malformed_answer_is_kept_cut_to_its_size(gateway: Build) -> None:
    error = await failure(await gateway(answering(200, "語".encode() * 3000)))
    assert error.failure is FailureKind.MALFORMED
    assert 4090 < len(error.raw.encode()) <= 4096


async def test_an_oversized_answer_is_not_read_to_its_end(gateway: Build) -> None:
    sent = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)
            sent += 65_536

    error = await failure(await gateway(pour))
    assert error.failure is FailureKind.MALFORMED
    assert str(BODY_LIMIT_BYTES) in error.message


async def test_silence_is_a_time_out(gateway: Build) -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    assert (await failure(await gateway(hang, limit=timedelta(seconds=0.2)))).failure is FailureKind.TIMEOUT


async def test_a_body_that_never_ends_is_a_time_out(gateway: Build) -> None:
    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        await asyncio.Event().wait()
        return response

    assert (await failure(await gateway(stall, limit=timedelta(seconds=0.2)))).failure is FailureKind.TIMEOUT


async def test_a_cut_connection_is_named(gateway: Build) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    assert (await failure(await gateway(cut))).failure is FailureKind.UNREACHABLE


async def test_a_body_cut_short_is_malformed(gateway: Build) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"total')
        assert request.transport is not None
        request.transport.close()
        return response

    assert (await failure(await gateway(cut))).failure is FailureKind.MALFORMED


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::", "gateway", "ftp://127.0.0.1/", ""])
async def test_an_address_that_leads_nowhere_is_unreachable(session: aiohttp.ClientSession, url: str) -> None:
    adapter = Gateways(session, SystemClock()).adapter(GatewayAccount("a", "generic_http", url))
    assert (await failure(adapter)).failure is FailureKind.UNREACHABLE


async def test_cancelling_a_call_cancels_it(gateway: Build) -> None:
    arrived = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    call = asyncio.create_task((await gateway(hang)).fetch("traffic", CARD))
    await asyncio.wait_for(arrived.wait(), 5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_token_is_bought_once_and_again_when_refused(gateway: Build) -> None:
    bought = 0
    good = "token-1"

    async def platform(request: web.Request) -> web.StreamResponse:
        nonlocal bought
        if request.path == "/oauth/token":
            bought += 1
            return web.json_response({"access_token": f"token-{bought}", "expires_in": 3600})
        if request.headers["Authorization"] != f"Bearer {good}":
            return web.Response(status=401)
        return web.json_response({"status": "ONLINE"})

    adapter = await gateway(platform, "onence", '{"client_id": "i", "client_secret": "s"}')
    answers = await asyncio.gather(*(adapter.fetch("network", CARD) for _ in range(10)))
    assert all(answer.reading == {"status": "online"} for answer in answers)
    assert bought == 1

    good = "token-2"
    assert (await adapter.fetch("network", CARD)).reading == {"status": "online"}
    assert bought == 2

    good = "none"
    error = await failure(adapter, "network")
    assert (error.failure, bought) == (FailureKind.REFUSED, 3)


@pytest.mark.parametrize(
    ("kind", "credentials", "header", "value"),
    [
        ("generic_http", "abc", "Authorization", "Bearer abc"),
        ("onence", "abc", "Authorization", "Bearer abc"),
        ("cisco_control_center", '{"username": "u", "api_key": "k"}', "Authorization", "Basic dTpr"),
        ("soracom", '{"api_key": "k", "token": "t"}', "X-Soracom-Token", "t"),
    ],
)
async def test_credentials_are_sent(
    gateway: Build, kind: str, credentials: str, header: str, value: str
) -> None:
    seen: list[str | None] = []

    async def look(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get(header))
        return web.Response(status=500)

    await failure(await gateway(look, kind, credentials))
    assert seen == [value]


async def test_asking_a_platform_for_what_it_lacks_makes_no_call(gateway: Build) -> None:
    adapter = await gateway(answering(200, b"{}"), "onence")
    assert "realname" not in adapter.kinds
    assert (await failure(adapter, "realname")).http_status is None
