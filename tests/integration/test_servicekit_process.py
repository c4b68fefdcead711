"""A whole process: how it starts, says what is wrong, and stops."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
Start = Callable[..., Coroutine[Any, Any, "Process"]]


class Process:
    def __init__(self, process: asyncio.subprocess.Process, marks: Path) -> None:
        self._process = process
        self._marks = marks
        self.errors: list[str] = []
        self.output = b""
        self._readers = [asyncio.create_task(self._read_errors()), asyncio.create_task(self._read_output())]

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.errors.append(line.decode())

    async def _read_output(self) -> None:
        assert self._process.stdout is not None
        self.output = await self._process.stdout.read()

    def event(self, name: str) -> dict[str, Any] | None:
        events = [json.loads(line) for line in self.errors if line.startswith("{")]
        return next((event for event in events if event["event"] == name), None)

    async def serving(self) -> str:
        event = await eventually(lambda: self.event("started") and self.event("serving"), within=30)
        return str(event["address"])

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        code = await asyncio.wait_for(self._process.wait(), 30)
        await asyncio.gather(*self._readers)
        return code

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    def marks(self) -> list[str]:
        return self._marks.read_text().split() if self._marks.exists() else []


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    started: list[Process] = []

    async def begin(*arguments: str, **variables: str) -> Process:
        marks = tmp_path / "marks"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.tiny_service",
            *arguments,
            cwd=ROOT,
            env={"TINY_SERVICE_MARKS": str(marks), **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(Process(process, marks))
        return started[-1]

    yield begin
    for process in started:
        await process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_stops(start: Start, number: signal.Signals) -> None:
    process = await start()
    await process.serving()
    process.signal(number)
    assert await process.ended() == 0
    assert process.marks() == ["start", "drain", "stop"]
    assert process.event("stopped")


async def test_a_second_signal_leaves_at_once(start: Start) -> None:
    process = await start(TINY_SERVICE_HOLD_SECONDS="600")
    await process.serving()
    process.signal(signal.SIGTERM)
    await eventually(lambda: "drain" in process.marks())
    process.signal(signal.SIGTERM)
    assert await process.ended() == 128 + signal.SIGTERM
    assert process.marks() == ["start", "drain"]


async def test_a_drain_ends_with_its_budget(start: Start) -> None:
    process = await start(TINY_SERVICE_HOLD_SECONDS="600", TINY_SERVICE_DRAIN_TIMEOUT="200ms")
    await process.serving()
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0
    assert process.marks() == ["start", "drain", "stop"]


async def test_a_taken_port_is_one_clear_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await start(TINY_SERVICE_GRPC__PORT=str(port))
        assert await process.ended() == 1
    assert process.errors[-1] == (
        f"cannot start: grpc_server: port {port} on 127.0.0.1 is taken: "
        "stop what uses it or set TINY_SERVICE_GRPC__PORT\n"
    )
    assert "Traceback" not in "".join(process.errors)
    assert process.marks() == ["start", "stop"]


async def test_a_taken_metrics_port_is_one_clear_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await start(TINY_SERVICE_METRICS_PORT=str(port))
        assert await process.ended() == 1
    assert "TINY_SERVICE_METRICS_PORT" in process.errors[-1]


async def test_an_engine_that_stays_away_is_one_clear_line(start: Start) -> None:
    process = await start(
        TINY_SERVICE_NEEDS_REDIS="true",
        TINY_SERVICE_START_TIMEOUT="1s",
        SLUICEGATE_REDIS_URL="redis://:canary-4477@127.0.0.1:9/0",
    )
    assert await process.ended() == 1
    text = "".join(process.errors)
    assert process.errors[-1] == (
        "cannot start: redis: Redis at 127.0.0.1:9/0 does not answer; start it or set SLUICEGATE_REDIS_URL\n"
    )
    assert text.count("waiting for a dependency") == 1
    assert "Traceback" not in text
    assert "canary-4477" not in text


async def test_a_wrong_environment_is_exit_code_2(start: Start) -> None:
    process = await start(TINY_SERVICE_GRPC__PORT="many")
    assert await process.ended() == 2
    assert len(process.errors) == 1
    assert process.errors[0].startswith("tiny_service: TINY_SERVICE_GRPC__PORT: ")


async def test_check_config_prints_redacted_json(start: Start) -> None:
    process = await start("--check-config", SLUICEGATE_REDIS_URL="redis://:canary-4477@h/0")
    assert await process.ended() == 0
    assert json.loads(process.output)["redis"]["url"] == "redis://:***@h/0"
