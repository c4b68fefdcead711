"""What every connection of ingest_service is told once."""

from typing import Any

from servicekit.postgres import load_sql


async def prepare_session(connection: Any) -> None:
    """Prepare a new connection; raises what the driver raises."""
    await connection.execute(load_sql("ingest_service", "prepare_session"))
