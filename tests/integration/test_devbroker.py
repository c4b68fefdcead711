"""What only the development broker does: say that it is not durable, and go wrong on demand."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from devbroker import DevBroker
from devengines.nsqd import DevbrokerProcess, EngineError
from tests.support.broker import ERROR, RESPONSE, RawClient, new_topic
from tests.support.waiting import eventually


@pytest.fixture
async def broker() -> AsyncIterator[DevBroker]:
    server = DevBroker()
    await server.start()
    yield server
    await server.stop()


def test_it_warns_and_ends_cleanly(tmp_path: Path) -> None:
    process = DevbrokerProcess(tmp_path)
    process.start()
    assert process.stop() == 0
    assert "NOT DURABLE" in process.log_path.read_text()


def test_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    first = DevbrokerProcess(tmp_path / "first")
    first.start()
    second = DevbrokerProcess(tmp_path / "second", first.tcp_port, first.http_port)
    with pytest.raises(EngineError, match=f"port {first.tcp_port} is taken"):
        second.start()
    arguments = [f"--tcp-address={first.tcp_address}", "--http-address=127.0.0.1:0"]
    result = subprocess.run(
        [sys.executable, "-m", "devbroker", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    first.stop()
    assert result.returncode == 1
    assert result.stderr.startswith("cannot start devbroker: ")
    assert "Traceback" not in result.stderr


async def test_dropped_reply_still_stores(broker: DevBroker) -> None:
    broker.faults.set(drop_replies=1)
    client = await RawClient.connect(broker.tcp_address)
    topic = new_topic()
    client.send(f"PUB {topic}", b"stored, not answered")
    assert await client.ask(f"PUB {topic}", b"answered") == (RESPONSE, b"OK")
    assert broker.broker.topics[topic].stats()["message_count"] == 2
    await client.close()


async def test_refused_publish_is_fatal_and_stores_nothing(broker: DevBroker) -> None:
    broker.faults.set(refuse_publishes=1)
    client = await RawClient.connect(broker.tcp_address)
    kind, data = await client.ask("PUB t", b"x")
    assert (kind, data.split()[0]) == (ERROR, b"E_PUB_FAILED")
    assert await client.is_closed()
    assert broker.broker.topics == {}


async def test_refused_connections(broker: DevBroker) -> None:
    broker.faults.set(refuse_connections=True)
    assert await (await RawClient.connect(broker.tcp_address)).is_closed()
    broker.faults.reset()
    client = await RawClient.connect(broker.tcp_address)
    assert await client.ask("PUB t", b"x") == (RESPONSE, b"OK")
    await client.close()


async def test_connections_drop_by_kind(broker: DevBroker) -> None:
    consumer, publisher = [await RawClient.connect(broker.tcp_address) for _ in range(2)]
    await consumer.subscribe("t")
    await publisher.ask("PUB t", b"x")
    assert broker.drop_connections(publishers=False) == 1
    assert await consumer.is_closed()
    assert await publisher.ask("PUB t", b"x") == (RESPONSE, b"OK")
    await publisher.close()


async def test_delayed_delivery_and_mute(broker: DevBroker) -> None:
    broker.faults.set(delay_deliveries=0.1)
    client = await RawClient.connect(broker.tcp_address)
    await client.subscribe("t", ready=5)
    broker.broker.publish("t", [b"late"])
    assert (await client.message()).body == b"late"
    broker.faults.set(mute=True, delay_deliveries=0)
    broker.broker.publish("t", [b"unsent"])
    client.send("PUB t", b"unanswered")
    await eventually(lambda: broker.broker.topics["t"].stats()["message_count"] == 3)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.reader.read(1)
    await client.close()


async def test_faults_over_http(broker: DevBroker) -> None:
    url = f"http://{broker.http_address}/faults"
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json={"drop_replies": 2, "lose_in_flight": True}) as response:
            answer = await response.json()
            assert (answer["drop_replies"], answer["lost"]) == (2, 0)
        for bad in ({"nonsense": 1}, {"drop_replies": -1}, {"drop_connections": "some"}, []):
            async with session.post(url, json=bad) as response:
                assert response.status == 400
        async with session.delete(url) as response:
            assert (await response.json())["drop_replies"] == 0


async def test_stop_hangs_up_on_everybody(broker: DevBroker) -> None:
    client = await RawClient.connect(broker.tcp_address)
    await client.subscribe("t")
    await broker.stop()
    assert await client.is_closed()
