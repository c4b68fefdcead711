"""The simulator's command line: serve a fleet, or write it as files."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from aiohttp import web

from gateways.simulator.faults import SCENARIOS
from gateways.simulator.fleet import DEFAULT_URL, demo_fleet, write_accounts, write_cards
from gateways.simulator.server import Simulator
from gateways.simulator.world import World

DEFAULT_PORT = 7190
MOST_CARDS = 2_000_000
STOP_SECONDS = 2.0


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    if arguments[:1] == ["fleet"]:
        return _write_fleet(_fleet_parser().parse_args(arguments[1:]))
    options = _serve_parser().parse_args(arguments)
    try:
        return uvloop.run(_serve(options))
    except OSError as error:
        print(f"cannot start: {options.host}:{options.port}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 1


async def _serve(options: argparse.Namespace) -> int:
    accounts, cards = demo_fleet(options.seed, options.cards)
    world = World(options.seed, accounts, cards, lambda: datetime.now(UTC))
    simulator = Simulator(world, options.seed, SCENARIOS[options.scenario])
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(
        simulator.application(), access_log=None, handler_cancellation=True, shutdown_timeout=STOP_SECONDS
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, options.host, options.port, reuse_address=True, backlog=1024).start()
        host, port = runner.addresses[0][:2]
        serving = {
            "event": "serving",
            "address": f"http://{host}:{port}",
            "accounts": len(accounts),
            "cards": len(cards),
            "seed": options.seed,
            "scenario": options.scenario,
        }
        print(json.dumps(serving), flush=True)  # noqa: T201 - whoever started this reads its address here
        await stop.wait()
    finally:
        await runner.cleanup()
    return 0


def _write_fleet(options: argparse.Namespace) -> int:
    accounts, cards = demo_fleet(options.seed, options.cards, options.gateway_url)
    try:
        write_cards(options.out, cards)
        if options.accounts_out is not None:
            write_accounts(options.accounts_out, accounts)
    except OSError as error:
        print(f"cannot write {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _serve_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gateways.simulator",
        description="Serve a demo fleet behind every implemented platform's shape.",
        epilog="`python -m gateways.simulator fleet --help` writes the same fleet as CSV files.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes any free one")
    _add_fleet_options(parser)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="demo")
    return parser


def _fleet_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gateways.simulator fleet")
    parser.add_argument("--out", type=Path, required=True, help="cards, CSV")
    parser.add_argument("--accounts-out", type=Path, help="accounts, CSV")
    parser.add_argument("--gateway-url", default=DEFAULT_URL, help="address of the simulator")
    _add_fleet_options(parser)
    return parser


def _add_fleet_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cards", type=_card_count, default=1000)
    parser.add_argument("--seed", type=int, default=1)


def _card_count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= MOST_CARDS:
        raise argparse.ArgumentTypeError(f"must be from 0 to {MOST_CARDS}")
    return count
