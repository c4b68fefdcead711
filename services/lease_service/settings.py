"""Settings of the lease service."""

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field, SecretStr

from servicekit.settings import Block, GrpcServerSettings, PostgresSettings, ServiceSettings
from servicekit.values import Duration, Port

_SECOND = timedelta(seconds=1)


class SlotSettings(Block):
    """How often the timed roles run, and how old a policy may be."""

    policy_ttl: Annotated[Duration, Field(le=2 * _SECOND)] = 2 * _SECOND
    reap_every: Annotated[Duration, Field(ge=timedelta(milliseconds=20), le=30 * _SECOND)] = _SECOND
    dispatch_every: Annotated[Duration, Field(ge=timedelta(milliseconds=5), le=_SECOND)] = _SECOND / 20
    """How often this process looks at its own clock for pools that are due; it asks Redis only about those."""
    recount_every: Annotated[Duration, Field(ge=_SECOND, le=timedelta(hours=1))] = 10 * _SECOND
    recount_most: Annotated[int, Field(ge=0, le=100_000)] = 20_000
    audit_every: Annotated[Duration, Field(ge=timedelta(milliseconds=20), le=timedelta(minutes=1))] = _SECOND
    audit_batch: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    relearn_after_restart: bool = True
    """Whether another run or replication id starts to relearn. False only for a single Redis that keeps everything."""
    confirm_within: Annotated[Duration, Field(ge=timedelta(milliseconds=1), le=_SECOND / 2)] | None = None
    """How long a grant waits until a replica has it (50ms is usual); unset: not at all."""
    ticket_key: SecretStr | None = None
    """Signs tickets, the same for all replicas; unset: one that they share in PostgreSQL."""
    audit_retention: Annotated[Duration, Field(ge=timedelta(hours=1))] = timedelta(days=30)


class Settings(ServiceSettings):
    """Settings of the lease service; variables start with ``LEASE_SERVICE_``."""

    service_name: ClassVar[str] = "lease_service"

    grpc: GrpcServerSettings = GrpcServerSettings(port=7101, drain_seconds=30)
    postgres: PostgresSettings = PostgresSettings(
        max_size=8,
        statement_timeout=timedelta(milliseconds=1500),
        lock_timeout=timedelta(seconds=1),
        acquire_timeout=timedelta(milliseconds=1500),
        connect_timeout=timedelta(milliseconds=1500),
    )
    metrics_port: Port = 7191
    slots: SlotSettings = SlotSettings()
