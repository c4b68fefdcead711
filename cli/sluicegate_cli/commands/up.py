"""`sluicegate up`: everything on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from sluicegate_cli.addresses import find_data_dir
from sluicegate_cli.up.lock import DataLock
from sluicegate_cli.up.options import Broker, Scenario, UpOptions


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up(
    data_dir: Annotated[Path | None, typer.Option(help="Where data is kept; default: .sluicegate.")] = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port of the web console; 0: 7180, or any when that is taken."),
    ] = 0,
    cards: Annotated[int, typer.Option(min=0, help="Size of the demo fleet, on a first run.")] = 1000,
    poll_interval: Annotated[
        int | None, typer.Option(min=1, help="Seconds between polls of a demo card, on a first run.")
    ] = None,
    broker: Annotated[Broker, typer.Option(help="Which broker; auto: nsqd if it can be had.")] = Broker.AUTO,
    demo: Annotated[
        bool, typer.Option("--demo/--no-demo", help="Run simulator, fleet and demo worker.")
    ] = True,
    scenario: Annotated[Scenario, typer.Option(help="How the simulated gateways behave.")] = Scenario.DEMO,
    run_for: Annotated[float | None, typer.Option("--for", min=1, help="Stop after so many seconds.")] = None,
) -> None:
    """Run engines, services and a demo fleet on this machine; Ctrl-C drains and stops all. Data is kept.

    SLUICEGATE_POSTGRES_DSN, SLUICEGATE_REDIS_URL and SLUICEGATE_NSQD replace the embedded engines, one by one.
    """
    options = UpOptions(
        data_dir=find_data_dir(data_dir),
        port=port,
        cards=cards,
        poll_interval=poll_interval,
        broker=broker,
        demo=demo,
        scenario=scenario,
        run_for=run_for,
    )
    with DataLock(options.data_dir):  # before all else: who may not start learns it at once
        # Only this command needs the engines' drivers: the others start faster without them.
        from sluicegate_cli.up.run import up as run  # noqa: PLC0415

        raise typer.Exit(run(options))
