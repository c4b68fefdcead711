"""Settings of collection_writer."""

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from servicekit.settings import Block, GrpcServerSettings, ServiceSettings
from servicekit.values import Duration, Port


class BatchSettings(Block):
    """How messages become statements."""

    max_in_flight: Annotated[int, Field(ge=1, le=2500)] = 500
    max_rows: Annotated[int, Field(ge=1, le=5000)] = 200
    max_age: Annotated[Duration, Field(ge=timedelta(milliseconds=1), le=timedelta(minutes=1))] = timedelta(
        seconds=1
    )


class PartitionSettings(Block):
    """Which months exist: made ahead, made on demand inside the window, dropped after the retention.

    A record outside the window (older than ``oldest_days``, further ahead than ``newest_days``) is quarantined.
    ``retention_months`` counts whole months that stay beside the present one; 0 keeps everything.
    """

    ahead_months: Annotated[int, Field(ge=0, le=24)] = 2
    oldest_days: Annotated[int, Field(ge=1, le=3650)] = 400
    newest_days: Annotated[int, Field(ge=1, le=366)] = 3
    retention_months: Annotated[int, Field(ge=0, le=1200)] = 0
    check_every: Annotated[Duration, Field(ge=timedelta(seconds=1))] = timedelta(hours=1)


class Settings(ServiceSettings):
    """What collection_writer is told; its own variables start with ``COLLECTION_WRITER_``."""

    service_name: ClassVar[str] = "collection_writer"

    grpc: GrpcServerSettings = GrpcServerSettings(port=7104)
    metrics_port: Port = 7194
    batch: BatchSettings = BatchSettings()
    partitions: PartitionSettings = PartitionSettings()
