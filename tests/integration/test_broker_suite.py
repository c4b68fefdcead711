"""What both brokers must do alike: the same tests against the development broker and the real nsqd."""

import json
import struct
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from devengines.nsqd import BrokerProcess
from tests.support.broker import BROKERS, ERROR, RESPONSE, RawClient, bodies_of, new_topic, started
from tests.support.waiting import eventually


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    yield from started(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[RawClient]:
    raw = await RawClient.connect(broker.tcp_address)
    yield raw
    await raw.close()


@pytest.fixture
async def other(broker: BrokerProcess) -> AsyncIterator[RawClient]:
    raw = await RawClient.connect(broker.tcp_address)
    yield raw
    await raw.close()


@pytest.fixture
async def http(broker: BrokerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(base_url=f"http://{broker.http_address}") as session:
        yield session


async def topic_stats(http: aiohttp.ClientSession, topic: str) -> dict[str, Any]:
    async with http.get("/stats", params={"format": "json", "topic": topic}) as response:
        topics = (await response.json())["topics"]
    return dict(topics[0]) if topics else {}


async def channel_stats(http: aiohttp.ClientSession, topic: str, channel: str = "c") -> dict[str, Any]:
    found = (await topic_stats(http, topic)).get("channels", [])
    return next((dict(row) for row in found if row["channel_name"] == channel), {})


async def post(http: aiohttp.ClientSession, path: str, body: bytes = b"", **query: str) -> tuple[int, str]:
    async with http.post(path, params=query, data=body) as response:
        return response.status, await response.text()


async def test_identify_negotiates_what_clients_need(client: RawClient) -> None:
    answer = await client.identify(heartbeat_interval=5000, msg_timeout=2000)
    assert answer["max_rdy_count"] == 2500
    assert answer["msg_timeout"] == 2000
    assert answer["max_msg_timeout"] == 900_000
    assert answer["version"] == "1.3.0"
    assert {answer[name] for name in ("tls_v1", "snappy", "deflate", "auth_required")} == {False}


async def test_identify_without_negotiation_is_just_ok(client: RawClient) -> None:
    assert await client.ask("IDENTIFY", b'{"client_id": "a"}') == (RESPONSE, b"OK")


@pytest.mark.parametrize("body", [b"no json", b'{"heartbeat_interval": 5}', b'{"msg_timeout": 9999999}'])
async def test_bad_identify_is_fatal(client: RawClient, body: bytes) -> None:
    kind, data = await client.ask("IDENTIFY", body)
    assert (kind, data.split()[0]) == (ERROR, b"E_BAD_BODY")
    assert await client.is_closed()


async def test_published_message_reaches_the_subscriber(client: RawClient, other: RawClient) -> None:
    topic = new_topic()
    await client.subscribe(topic)
    before = time.time_ns()
    assert await other.ask(f"PUB {topic}", b"body \x00\xff") == (RESPONSE, b"OK")
    message = await client.message()
    assert (message.body, message.attempts) == (b"body \x00\xff", 1)
    assert before <= message.timestamp_ns <= time.time_ns()
    assert len(message.id) == 16


async def test_mpub_delivers_all(client: RawClient, other: RawClient) -> None:
    topic = new_topic()
    await client.subscribe(topic, ready=10)
    assert await other.ask(f"MPUB {topic}", bodies_of(b"1", b"22", b"333")) == (RESPONSE, b"OK")
    assert sorted([(await client.message()).body for _ in range(3)]) == [b"1", b"22", b"333"]


async def test_every_channel_gets_its_copy_and_a_topic_keeps_what_has_no_channel(
    client: RawClient, other: RawClient, http: aiohttp.ClientSession
) -> None:
    topic = new_topic()
    await client.ask(f"PUB {topic}", b"early")
    stats = await topic_stats(http, topic)
    assert (stats["depth"], stats["message_count"], stats["channels"]) == (1, 1, [])
    await post(http, "/channel/create", topic=topic, channel="c")

    async def copied() -> bool:
        return bool((await channel_stats(http, topic)).get("depth") == 1)

    await eventually(copied)
    await post(http, "/channel/create", topic=topic, channel="d")
    await client.ask(f"PUB {topic}", b"late")
    await client.subscribe(topic, "c", ready=5)
    await other.subscribe(topic, "d", ready=5)
    assert sorted([(await client.message()).body, (await client.message()).body]) == [b"early", b"late"]
    assert (await other.message()).body == b"late"


async def test_ready_count_limits_what_is_in_flight(
    client: RawClient, other: RawClient, http: aiohttp.ClientSession
) -> None:
    topic = new_topic()
    await client.subscribe(topic, ready=2)
    await other.ask(f"MPUB {topic}", bodies_of(b"1", b"2", b"3"))
    first, _ = await client.message(), await client.message()

    async def counts() -> dict[str, Any]:
        return await channel_stats(http, topic)

    async def settled() -> bool:
        stats = await counts()
        return bool(stats["depth"] == 1 and stats["in_flight_count"] == 2)

    await eventually(settled)
    assert (await counts())["clients"][0]["ready_count"] == 2
    client.send(f"FIN {first.id.decode()}")
    assert (await client.message()).body == b"3"


async def test_requeue_delivers_again_and_counts_attempts(
    client: RawClient, other: RawClient, http: aiohttp.ClientSession
) -> None:
    topic = new_topic()
    await client.subscribe(topic)
    await other.ask(f"PUB {topic}", b"again")
    first = await client.message()
    client.send(f"REQ {first.id.decode()} 0")
    second = await client.message()
    assert (second.id, second.attempts) == (first.id, 2)
    client.send(f"REQ {first.id.decode()} 600000")

    async def deferred() -> bool:
        stats = await channel_stats(http, topic)
        return bool(stats["deferred_count"] == 1 and stats["requeue_count"] == 2)

    await eventually(deferred)


async def test_held_message_times_out_unless_touched(
    client: RawClient, other: RawClient, http: aiohttp.ClientSession
) -> None:
    topic = new_topic()
    await client.identify(msg_timeout=1500)
    await client.subscribe(topic)
    await other.ask(f"PUB {topic}", b"held")
    first = await client.message()
    until = time.monotonic() + 2.5

    def touched_long_enough() -> bool:
        client.send(f"TOUCH {first.id.decode()}")
        return time.monotonic() > until

    await eventually(touched_long_enough)
    assert (await channel_stats(http, topic))["timeout_count"] == 0
    again = await client.message()
    assert (again.id, again.attempts) == (first.id, 2)
    assert (await channel_stats(http, topic))["timeout_count"] == 1


async def test_deferred_publish_waits(
    client: RawClient, other: RawClient, http: aiohttp.ClientSession
) -> None:
    topic = new_topic()
    await client.subscribe(topic, ready=5)
    assert await other.ask(f"DPUB {topic} 600000", b"later") == (RESPONSE, b"OK")
    assert await other.ask(f"DPUB {topic} 100", b"soon") == (RESPONSE, b"OK")
    assert (await client.message()).body == b"soon"
    assert (await channel_stats(http, topic))["deferred_count"] == 1


@pytest.mark.parametrize(
    ("line", "body", "code"),
    [
        ("PUB bad/name", b"x", b"E_BAD_TOPIC"),
        ("PUB " + "n" * 65, b"x", b"E_BAD_TOPIC"),
        ("PUB good", b"", b"E_BAD_MESSAGE"),
        ("PUB good", 1024 * 1024 + 1, b"E_BAD_MESSAGE"),
        ("PUB", None, b"E_INVALID"),
        ("MPUB good", bodies_of(), b"E_BAD_BODY"),
        ("MPUB good", bodies_of(b"a", b""), b"E_BAD_MESSAGE"),
        ("MPUB good", 5 * 1024 * 1024 + 1, b"E_BAD_BODY"),
        ("DPUB good 3600001", b"x", b"E_INVALID"),
        ("SUB good bad!", None, b"E_BAD_CHANNEL"),
        ("RDY 1", None, b"E_INVALID"),
        ("FIN 0123456789abcdef", None, b"E_INVALID"),
        ("NONSENSE", None, b"E_INVALID"),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) and value[:1] == b"E" else "",
)
async def test_refused_command_ends_the_connection(
    client: RawClient, line: str, body: bytes | int | None, code: bytes
) -> None:
    if isinstance(body, int):  # only announced: the broker hangs up before it reads so much
        line, body = line + "\n" + struct.pack(">i", body).decode("latin-1"), None
    kind, data = await client.ask(line, body)
    assert (kind, data.split()[0]) == (ERROR, code)
    assert await client.is_closed()


async def test_other_protocol_is_refused(broker: BrokerProcess) -> None:
    client = await RawClient.connect(broker.tcp_address, magic=b"GET ")
    assert await client.frame() == (ERROR, b"E_BAD_PROTOCOL")
    assert await client.is_closed()


async def test_answer_for_an_unknown_message_is_not_fatal(client: RawClient, other: RawClient) -> None:
    topic = new_topic()
    await client.subscribe(topic)
    for command in ("FIN {}", "REQ {} 0", "TOUCH {}"):
        kind, data = await client.ask(command.format("0" * 16))
        assert kind == ERROR
        assert data.split()[0].decode() == f"E_{command.split()[0]}_FAILED"
    await other.ask(f"PUB {topic}", b"still here")
    assert (await client.message()).body == b"still here"


async def test_ready_count_has_an_upper_bound(client: RawClient) -> None:
    await client.subscribe(new_topic())
    kind, data = await client.ask("RDY 2501")
    assert (kind, data.split()[0]) == (ERROR, b"E_INVALID")


async def test_close_lets_a_client_finish_what_it_holds(
    client: RawClient, other: RawClient, http: aiohttp.ClientSession
) -> None:
    topic = new_topic()
    await client.subscribe(topic, ready=1)
    await other.ask(f"MPUB {topic}", bodies_of(b"1", b"2"))
    message = await client.message()
    assert await client.ask("CLS") == (RESPONSE, b"CLOSE_WAIT")
    client.send(f"FIN {message.id.decode()}")

    async def finished() -> bool:
        stats = await channel_stats(http, topic)
        return bool(stats["in_flight_count"] == 0 and stats["depth"] == 1)

    await eventually(finished)


async def test_heartbeats_come_and_silence_is_noticed(client: RawClient) -> None:
    await client.identify(heartbeat_interval=1000)
    assert await client.frame() == (RESPONSE, b"_heartbeat_")
    assert await client.is_closed()


async def test_message_of_a_lost_consumer_stays_in_flight(
    client: RawClient, other: RawClient, http: aiohttp.ClientSession
) -> None:
    topic = new_topic()
    await client.subscribe(topic)
    await other.ask(f"PUB {topic}", b"held")
    await client.message()
    await client.close()

    async def left() -> bool:
        return bool((await channel_stats(http, topic))["client_count"] == 0)

    await eventually(left)
    stats = await channel_stats(http, topic)
    assert (stats["in_flight_count"], stats["depth"]) == (1, 0)


async def test_ping_and_info(broker: BrokerProcess, http: aiohttp.ClientSession) -> None:
    async with http.get("/ping") as response:
        assert (response.status, await response.text()) == (200, "OK")
    async with http.get("/info") as response:
        info = await response.json()
    assert (info["version"], info["tcp_port"], info["http_port"]) == (
        "1.3.0",
        broker.tcp_port,
        broker.http_port,
    )


async def test_http_publishes(client: RawClient, http: aiohttp.ClientSession) -> None:
    topic = new_topic()
    await client.subscribe(topic, ready=10)
    assert await post(http, "/pub", b"one", topic=topic) == (200, "OK")
    assert await post(http, "/mpub", b"two\n\nthree\n", topic=topic) == (200, "OK")
    assert await post(http, "/mpub", bodies_of(b"fo\nur"), topic=topic, binary="true") == (200, "OK")
    assert sorted([(await client.message()).body for _ in range(4)]) == [b"fo\nur", b"one", b"three", b"two"]


@pytest.mark.parametrize(
    ("path", "query", "body", "status", "name"),
    [
        ("/pub", {"topic": "t"}, b"", 400, "MSG_EMPTY"),
        ("/pub", {"topic": "t"}, bytes(1024 * 1024 + 1), 413, "MSG_TOO_BIG"),
        ("/pub", {}, b"x", 400, "MISSING_ARG_TOPIC"),
        ("/pub", {"topic": "a b"}, b"x", 400, "INVALID_TOPIC"),
        ("/pub", {"topic": "t", "defer": "x"}, b"x", 400, "INVALID_DEFER"),
        ("/topic/create", {}, b"", 400, "MISSING_ARG_TOPIC"),
        ("/topic/delete", {"topic": "absent"}, b"", 404, "TOPIC_NOT_FOUND"),
        ("/topic/empty", {"topic": "absent"}, b"", 404, "TOPIC_NOT_FOUND"),
        ("/channel/create", {"topic": "absent", "channel": "c"}, b"", 404, "TOPIC_NOT_FOUND"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_http_refusals(
    http: aiohttp.ClientSession, *, path: str, query: dict[str, str], body: bytes, status: int, name: str
) -> None:
    found, text = await post(http, path, body, **query)
    assert (found, json.loads(text)["message"]) == (status, name)


async def test_topics_and_channels_are_created_emptied_and_deleted(http: aiohttp.ClientSession) -> None:
    topic = new_topic()
    assert (await post(http, "/topic/create", topic=topic))[0] == 200
    assert (await post(http, "/channel/create", topic=topic, channel="c"))[0] == 200
    assert (await post(http, "/pub", b"x", topic=topic))[0] == 200

    async def waiting() -> bool:
        return bool((await channel_stats(http, topic))["depth"] == 1)

    await eventually(waiting)
    assert (await post(http, "/channel/empty", topic=topic, channel="c"))[0] == 200
    assert (await channel_stats(http, topic))["depth"] == 0
    assert (await post(http, "/channel/delete", topic=topic, channel="c"))[0] == 200
    assert (await topic_stats(http, topic))["channels"] == []
    assert (await post(http, "/topic/delete", topic=topic))[0] == 200
    assert await topic_stats(http, topic) == {}


async def test_stats_name_what_operators_watch(client: RawClient, http: aiohttp.ClientSession) -> None:
    topic = new_topic()
    await client.subscribe(topic)
    topic_row = await topic_stats(http, topic)
    channel_row = topic_row["channels"][0]
    assert {"topic_name", "depth", "backend_depth", "message_count", "paused"} <= set(topic_row)
    assert {
        "channel_name",
        "depth",
        "backend_depth",
        "in_flight_count",
        "deferred_count",
        "message_count",
        "requeue_count",
        "timeout_count",
        "client_count",
    } <= set(channel_row)
    assert {"client_id", "remote_address", "ready_count", "in_flight_count", "finish_count"} <= set(
        channel_row["clients"][0]
    )


async def test_split_frames_are_read_whole(client: RawClient, other: RawClient) -> None:
    topic = new_topic()
    await other.subscribe(topic)
    command = f"PUB {topic}\n".encode() + struct.pack(">i", 6) + b"pieces"
    for index in range(len(command)):
        client.writer.write(command[index : index + 1])
        await client.writer.drain()
    assert await client.frame() == (RESPONSE, b"OK")
    assert (await other.message()).body == b"pieces"
