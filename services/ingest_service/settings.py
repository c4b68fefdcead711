"""Settings of ingest_service."""

from datetime import timedelta
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from servicekit.settings import Block, GrpcServerSettings, PostgresSettings, ServiceSettings
from servicekit.values import Duration, Port

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class IngestSettings(Block):
    """How much is in hand at once, and which observations are accepted.

    ``concurrency`` observations come from the broker at once, worked on by ``lanes`` database connections, whatever the
    number of accounts. ``max_connections`` is what the database gives to all, ``reserve`` what others need of it.
    """

    concurrency: Annotated[int, Field(ge=1, le=400)] = 30
    lanes: Annotated[int, Field(ge=1, le=16)] = 2
    most_waiting: Annotated[int, Field(ge=200, le=100_000)] = 4_000
    max_connections: Annotated[int, Field(ge=1, le=10_000)] = 60
    reserve: Annotated[int, Field(ge=0, le=10_000)] = 20
    remembered: Annotated[Duration, Field(ge=_DAY, le=60 * _DAY)] = 8 * _DAY
    ahead: Annotated[Duration, Field(ge=timedelta(minutes=1), le=7 * _DAY)] = _DAY

    @property
    def over_budget(self) -> bool:
        """Whether the work in hand could ask for more connections than the database has to give."""
        return self.concurrency + 1 > self.max_connections - self.reserve


class LoopSettings(Block):
    """How often the timed roles run and how much they take at once."""

    outbox_every: Annotated[Duration, Field(ge=timedelta(milliseconds=20), le=timedelta(minutes=1))] = (
        timedelta(milliseconds=500)
    )
    outbox_batch: Annotated[int, Field(ge=1, le=1_000)] = 200
    outbox_kept: Annotated[Duration, Field(ge=timedelta(hours=1))] = 8 * _DAY
    retry_every: Annotated[Duration, Field(ge=timedelta(milliseconds=20), le=timedelta(minutes=5))] = _SECOND
    retry_batch: Annotated[int, Field(ge=1, le=200)] = 50
    partitions_every: Annotated[Duration, Field(ge=_SECOND, le=_DAY)] = timedelta(hours=1)
    partitions_ahead_days: Annotated[int, Field(ge=1, le=60)] = 3
    policies_every: Annotated[Duration, Field(ge=timedelta(milliseconds=20), le=timedelta(hours=1))] = (
        5 * _SECOND
    )


class Settings(ServiceSettings):
    """What ingest_service is told; its own variables start with ``INGEST_SERVICE_``."""

    service_name: ClassVar[str] = "ingest_service"

    grpc: GrpcServerSettings = GrpcServerSettings(port=7103)
    postgres: PostgresSettings = PostgresSettings(
        max_size=8, statement_timeout=timedelta(seconds=5), lock_timeout=timedelta(seconds=2)
    )
    metrics_port: Port = 7193
    ingest: IngestSettings = IngestSettings()
    loops: LoopSettings = LoopSettings()

    @model_validator(mode="after")
    def _lanes_have_connections(self) -> Self:
        if self.postgres.max_size < self.ingest.lanes + 1:
            raise ValueError(
                "postgres.max_size should be greater than ingest.lanes: each lane holds one connection"
            )
        return self
