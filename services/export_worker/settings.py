"""Settings of export_worker."""

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from servicekit.settings import Block, GrpcServerSettings, PostgresSettings, ServiceSettings
from servicekit.values import Duration, Port


class ExportSettings(Block):
    """Where exports go and what one export, and all together, may use."""

    location: Annotated[str, Field(min_length=1)] = ".sluicegate/exports"
    """A folder, ``file:///…``, or ``s3://bucket/prefix`` and the like; credentials: the store's own variables."""

    channels: Annotated[tuple[str, ...], Field(min_length=1)] = ("export-small",)
    concurrency: Annotated[int, Field(ge=1, le=64)] = 2
    batch_rows: Annotated[int, Field(ge=1, le=50_000)] = 2_000
    max_rows: Annotated[int, Field(ge=1)] = 5_000_000
    time_limit: Annotated[Duration, Field(gt=timedelta(0), le=timedelta(hours=24))] = timedelta(minutes=30)


class Settings(ServiceSettings):
    """Settings of export_worker; its variables begin with ``EXPORT_WORKER_``."""

    service_name: ClassVar[str] = "export_worker"

    grpc: GrpcServerSettings = GrpcServerSettings(port=7106)
    metrics_port: Port = 7196
    # A fetch waits while the store takes the batch before it, so an open snapshot may be idle for longer.
    postgres: PostgresSettings = PostgresSettings(
        min_size=1,
        max_size=4,
        statement_timeout=timedelta(minutes=5),
        idle_in_transaction_timeout=timedelta(minutes=5),
    )
    exports: ExportSettings = ExportSettings()
