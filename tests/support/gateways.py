"""A gateway simulator and mock servers as processes, and what tests say about accounts."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import SecretStr

from gateways.adapter import GatewayAccount
from gateways.simulator.fleet import DemoAccount, DemoCard, demo_fleet

START_SECONDS = 30.0
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RunningSimulator:
    """A simulator process that serves, and its fleet."""

    address: str
    accounts: dict[str, DemoAccount]
    cards: list[DemoCard]
    session: aiohttp.ClientSession
    process: asyncio.subprocess.Process

    def account(self, account_id: str, kind: str | None = None, credentials: str = "") -> GatewayAccount:
        """Return a demo account as adapters need it, spoken to in its own shape or another."""
        demo = self.accounts[account_id]
        return GatewayAccount(
            account_id=account_id,
            kind=kind or demo.gateway_kind,
            base_url=demo.gateway_url,
            credentials=SecretStr(credentials),
            reset_day=demo.reset_day,
            time_zone=demo.time_zone,
        )

    def cards_of(self, account_id: str) -> list[str]:
        """Return the ids of an account's cards."""
        return [card.card_id for card in self.cards if card.account_id == account_id]

    async def control(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Use the control interface; raises when it refuses."""
        async with self.session.request(method, f"{self.address}/_control/{path}", json=body) as response:
            response.raise_for_status()
            answer: dict[str, Any] = await response.json()
            return answer

    async def faults(self, **values: Any) -> None:
        """Set faults, of one account (`account_id=`) or all."""
        await self.control("POST", "faults", values)

    async def stats(self, account_id: str) -> dict[str, Any]:
        """Return one account's counters."""
        answer: dict[str, Any] = (await self.control("GET", "stats"))["accounts"][account_id]
        return answer


@asynccontextmanager
async def running_simulator(cards: int = 30, seed: int = 7) -> AsyncIterator[RunningSimulator]:
    """Start a simulator without latency or faults on a free port, and stop it with SIGTERM."""
    arguments = ["--port", "0", "--cards", str(cards), "--seed", str(seed), "--scenario", "calm"]
    command = [sys.executable, "-m", "gateways.simulator", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        address = json.loads(line)["address"]
        accounts, fleet = demo_fleet(seed, cards, address)
        by_id = {account.account_id: account for account in accounts}
        async with aiohttp.ClientSession() as session:
            yield RunningSimulator(address, by_id, fleet, session, process)
    finally:
        await _end(process)


@asynccontextmanager
async def running_mock(prism: Path, specification: Path, log: Path) -> AsyncIterator[str]:
    """Serve an OpenAPI file with prism on a free port; yields its address once it answers."""
    port = _free_port()
    command: Sequence[str] = [str(prism), "mock", "-h", "127.0.0.1", "-p", str(port), str(specification)]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, start_new_session=True
        )
    try:
        await _until_connects(port, process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
        await _end(process)


async def _until_connects(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"the mock server ended; see {log}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            return


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
