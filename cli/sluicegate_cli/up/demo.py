"""What a first run gets: the demo fleet, the demo's channels, mode async."""

from dataclasses import replace
from pathlib import Path

from gateways.simulator.fleet import demo_fleet, write_accounts, write_cards
from sluicegate.ingest.v1 import ingest_pb2
from sluicegate.operator.v1 import operator_pb2
from sluicegate_cli.clients import Clients, actor
from sluicegate_cli.commands.accounts import all_accounts
from sluicegate_cli.commands.cards import import_files
from sluicegate_cli.commands.channels import save_channel
from sluicegate_cli.commands.mode import Mode, switch_mode
from sluicegate_cli.files import Report, counted
from sluicegate_cli.up.options import UpOptions

_SEED = 1
_REASON = "demo of `sluicegate up`"
_CHANNELS = (
    operator_pb2.Channel(name="text-demo", concurrency=4, max_backlog=10_000, max_attempts=3),
    operator_pb2.Channel(name="export-small", concurrency=2, max_backlog=1_000, max_attempts=3),
)


async def prepare(clients: Clients, options: UpOptions, simulator_url: str) -> str:
    """Bring the demo in on a first run, later only move its accounts when the simulator has moved; says what it did."""
    folder = options.data_dir / "fleet"
    marker = folder / "imported"
    if marker.exists():
        moved = await _move_accounts(clients, marker.read_text().strip(), simulator_url)
        marker.write_text(simulator_url)
        return f"the kept data continues{f'; {moved} accounts follow the simulator' if moved else ''}"
    report = await _import_fleet(clients, options, folder, simulator_url)
    for channel in _CHANNELS:
        await save_channel(clients, channel, _REASON)
    await switch_mode(clients, Mode.ASYNC, _REASON)
    marker.write_text(simulator_url)
    return (
        f"first run: {', '.join(counted(count, name) for name, count in report.counts.items())}, mode async"
    )


async def _import_fleet(clients: Clients, options: UpOptions, folder: Path, simulator_url: str) -> Report:
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs on this loop
    accounts, cards = demo_fleet(_SEED, options.cards, simulator_url)
    if options.poll_interval is not None:
        accounts = [replace(account, poll_interval_seconds=options.poll_interval) for account in accounts]
    write_accounts(folder / "accounts.csv", accounts)
    write_cards(folder / "cards.csv", cards)
    report = Report()
    await import_files(clients, folder / "cards.csv", folder / "accounts.csv", report, hidden=True)
    return report


async def _move_accounts(clients: Clients, before: str, now: str) -> int:
    if before == now:
        return 0
    moved = []
    for account in await all_accounts(clients):
        if account.gateway_url.startswith(before + "/"):
            account.gateway_url = now + account.gateway_url.removeprefix(before)
            moved.append(account)
    if moved:
        await clients.ingest.SaveAccounts(ingest_pb2.SaveAccountsRequest(accounts=moved, actor=actor()))
    return len(moved)
