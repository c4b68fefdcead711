"""Settings that every service shares, read once from the environment.

The pattern that every service follows::

    class Settings(ServiceSettings):
        \"\"\"Settings of lease_service.\"\"\"

        service_name: ClassVar[str] = "lease_service"  # prefix of the variables: LEASE_SERVICE_

        grpc: GrpcServerSettings = GrpcServerSettings(port=7101)
        metrics_port: Port = 7191
        slots: SlotSettings = SlotSettings()  # a block of its own, a subclass of ``Block``

``Settings()`` reads the process's environment: ``LEASE_SERVICE_SLOTS__REAP_EVERY=5s`` sets ``slots.reap_every``, and
what is not set keeps its default, also inside a block that is set in part. ``Settings.from_environment({...})`` reads
the given variables and nothing else: what tests use.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from servicekit.environment import EnvironmentSource, VariableError, environment, variable_names
from servicekit.values import Duration, HostPort, Port, SecretUrl, is_loopback

_LOOPBACK = "127.0.0.1"


class Block(BaseModel):
    """A group of settings; frozen, and a field that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class GrpcServerSettings(Block):
    """Where a service listens for gRPC calls and how long it lets them run."""

    host: str = _LOOPBACK
    port: Port = 0
    drain_seconds: Annotated[float, Field(ge=0, le=86400)] = 600
    default_deadline: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(seconds=30)
    max_message_bytes: Annotated[int, Field(ge=65536, le=64 * 1024 * 1024)] = 8 * 1024 * 1024
    max_concurrent_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000


class PostgresSettings(Block):
    """The database, the size of the pool, and how long a statement may run or wait for a lock."""

    dsn: SecretUrl = SecretUrl("postgresql://sluicegate@127.0.0.1:5432/sluicegate")
    min_size: Annotated[int, Field(ge=0, le=500)] = 1
    max_size: Annotated[int, Field(ge=1, le=500)] = 10
    statement_timeout: Annotated[Duration, Field(le=timedelta(hours=2))] = timedelta(seconds=10)
    lock_timeout: Annotated[Duration, Field(le=timedelta(hours=1))] = timedelta(seconds=2)
    idle_in_transaction_timeout: Annotated[Duration, Field(le=timedelta(hours=1))] = timedelta(seconds=30)
    acquire_timeout: Annotated[Duration, Field(gt=timedelta(0), le=timedelta(minutes=5))] = timedelta(
        seconds=5
    )
    connect_timeout: Annotated[Duration, Field(gt=timedelta(0), le=timedelta(minutes=5))] = timedelta(
        seconds=5
    )

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.min_size > self.max_size:
            raise ValueError("min_size must not be greater than max_size")
        return self


class RedisSettings(Block):
    """Redis or Valkey; a command that gets no answer within ``socket_timeout`` has failed and is not repeated."""

    url: SecretUrl = SecretUrl("redis://127.0.0.1:6379/0")
    socket_timeout: Annotated[Duration, Field(gt=timedelta(0), le=timedelta(milliseconds=800))] = timedelta(
        milliseconds=800
    )
    max_connections: Annotated[int, Field(ge=1, le=10_000)] = 64


class NsqSettings(Block):
    """The nsqd that this process publishes to and consumes from."""

    nsqd_tcp: HostPort = "127.0.0.1:4150"
    nsqd_http: HostPort = "127.0.0.1:4151"


class TelemetrySettings(Block):
    """Where spans go; with neither a store nor an endpoint, tracing is off and costs nothing."""

    enabled: bool = True
    span_store_path: Path | None = None
    span_store_max_rows: Annotated[int, Field(ge=100, le=100_000_000)] = 500_000
    span_store_max_age: Annotated[Duration, Field(ge=timedelta(minutes=1))] = timedelta(days=7)
    otlp_endpoint: str | None = None
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0


class LogSettings(Block):
    """How much is logged and in which form."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    as_json: bool = True


class AuthSettings(Block):
    """Who may call: anybody on this machine (``none``), or who shows the bearer token."""

    mode: Literal["none", "token"] = "none"
    token: SecretStr | None = None

    @model_validator(mode="after")
    def _token_is_there(self) -> Self:
        if self.mode == "token" and not (self.token and self.token.get_secret_value()):
            raise ValueError("mode is token but no token is set")
        return self


class PeerSettings(Block):
    """Addresses of the other services."""

    lease_service: HostPort = "127.0.0.1:7101"
    poller: HostPort = "127.0.0.1:7102"
    ingest_service: HostPort = "127.0.0.1:7103"
    collection_writer: HostPort = "127.0.0.1:7104"
    task_api: HostPort = "127.0.0.1:7105"


class ServiceSettings(BaseSettings):
    """What every service is told; subclasses add blocks of their own. Frozen. See the module for the pattern."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", validate_default=True, nested_model_default_partial_update=True
    )

    service_name: ClassVar[str] = "service"

    grpc: GrpcServerSettings = GrpcServerSettings()
    postgres: PostgresSettings = PostgresSettings()
    redis: RedisSettings = RedisSettings()
    nsq: NsqSettings = NsqSettings()
    peers: PeerSettings = PeerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    log: LogSettings = LogSettings()
    auth: AuthSettings = AuthSettings()
    metrics_host: str = _LOOPBACK
    metrics_port: Port = 0
    start_timeout: Annotated[Duration, Field(le=timedelta(hours=1))] = timedelta(seconds=30)
    drain_timeout: Annotated[Duration, Field(le=timedelta(days=1))] = timedelta(minutes=10)

    @classmethod
    def env_prefix(cls) -> str:
        """Return the prefix of this service's own variables, such as ``LEASE_SERVICE_``."""
        return cls.service_name.upper() + "_"

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        """Read the given variables and nothing else.

        Raises:
            pydantic.ValidationError: a value is missing or out of bounds; see :func:`problems`.
            VariableError: a name belongs to no setting, or a file can't be read.
        """
        mark = environment.set(variables)
        try:
            return cls()
        finally:
            environment.reset(mark)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments first, then the environment in this project's way."""
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, EnvironmentSource(settings_cls, cls.env_prefix())

    @model_validator(mode="after")
    def _open_only_on_loopback(self) -> Self:
        if self.auth.mode == "none" and not is_loopback(self.grpc.host):
            raise ValueError(
                f"auth.mode none is allowed on loopback only, but grpc.host is {self.grpc.host}: "
                "set SLUICEGATE_AUTH_MODE=token and SLUICEGATE_AUTH_TOKEN, or listen on 127.0.0.1"
            )
        return self


def problems(settings_class: type[ServiceSettings], error: ValidationError | VariableError) -> list[str]:
    """Say what is wrong with the environment: one line per problem, each naming the variable, no value shown."""
    if isinstance(error, VariableError):
        return [str(error)]
    return [_problem(settings_class, item) for item in error.errors(include_url=False, include_input=False)]


def redacted(settings: BaseModel) -> str:
    """Return the settings as indented JSON in which every secret is hidden."""
    return settings.model_dump_json(indent=2)


def _problem(settings_class: type[ServiceSettings], item: Any) -> str:
    path = tuple(str(part) for part in item["loc"] if not re.match(r"function-|.*\[", str(part)))
    message = str(item["msg"]).removeprefix("Value error, ")
    if not path:
        return message
    return f"{variable_names(settings_class, settings_class.env_prefix(), path)}: {message}"
