"""Settings of task_api."""

from datetime import timedelta
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from servicekit.settings import Block, GrpcServerSettings, PostgresSettings, ServiceSettings
from servicekit.values import Duration, Port, is_loopback


class ClaimSettings(Block):
    """How long claims and their slots live."""

    lease: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=10))] = timedelta(
        seconds=45
    )
    slot_life: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=15))] = timedelta(
        seconds=60
    )
    poll: Annotated[Duration, Field(ge=timedelta(milliseconds=20), le=timedelta(minutes=1))] = timedelta(
        seconds=1
    )
    sweep_every: Annotated[Duration, Field(ge=timedelta(milliseconds=50), le=timedelta(minutes=1))] = (
        timedelta(seconds=2)
    )
    promote_every: Annotated[Duration, Field(ge=timedelta(milliseconds=20), le=timedelta(minutes=1))] = (
        timedelta(milliseconds=250)
    )
    worker_limit: Annotated[int, Field(ge=1, le=1_000_000)] = 256

    @model_validator(mode="after")
    def _slots_outlive_claims(self) -> Self:
        if self.slot_life <= self.lease:
            raise ValueError("slot_life must be longer than lease: a slot must not end before its claim")
        return self


class HttpSettings(Block):
    """Where browsers and HTTP clients connect, and how event streams behave."""

    host: str = "127.0.0.1"
    port: Port = 7180
    heartbeat: Annotated[Duration, Field(ge=timedelta(milliseconds=50), le=timedelta(minutes=1))] = timedelta(
        seconds=15
    )
    send_timeout: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=5))] = timedelta(
        seconds=20
    )
    reconnect: Annotated[Duration, Field(ge=timedelta(milliseconds=10), le=timedelta(minutes=1))] = timedelta(
        seconds=1
    )
    max_streams: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    drain: Annotated[Duration, Field(le=timedelta(minutes=5))] = timedelta(seconds=10)
    allowed_origins: tuple[str, ...] = ()


class Settings(ServiceSettings):
    """Settings of task_api."""

    service_name: ClassVar[str] = "task_api"

    grpc: GrpcServerSettings = GrpcServerSettings(port=7105, default_deadline=timedelta(seconds=60))
    postgres: PostgresSettings = PostgresSettings(
        max_size=16, statement_timeout=timedelta(seconds=5), lock_timeout=timedelta(seconds=1)
    )
    metrics_port: Port = 7195
    claims: ClaimSettings = ClaimSettings()
    http: HttpSettings = HttpSettings()

    @model_validator(mode="after")
    def _http_open_only_on_loopback(self) -> Self:
        if self.auth.mode == "none" and not is_loopback(self.http.host):
            raise ValueError(
                f"auth.mode none is allowed on loopback only, but http.host is {self.http.host}: "
                "set SLUICEGATE_AUTH_MODE=token and SLUICEGATE_AUTH_TOKEN, or listen on 127.0.0.1"
            )
        return self
