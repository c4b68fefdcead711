"""`sluicegate explain`: where one observation is."""

from typing import Annotated

import typer

from sluicegate.ingest.v1 import ingest_pb2
from sluicegate_cli.clients import Clients, ask
from sluicegate_cli.output import JsonFlag, plain, print_fields


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    observation_id: Annotated[str, typer.Argument(help="The observation's id.")], as_json: JsonFlag = False
) -> None:
    """Say where one observation is and what it changed: published, applied, collected, quarantined."""

    async def work(clients: Clients) -> ingest_pb2.ExplainResponse:
        return await clients.ingest.Explain(ingest_pb2.ExplainRequest(observation_id=observation_id))

    print_fields(plain(ask(work)), as_json=as_json)
