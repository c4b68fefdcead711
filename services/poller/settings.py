"""Settings of poller."""

from datetime import timedelta
from typing import Annotated, ClassVar, Self

from pydantic import Field, SecretStr, model_validator

from servicekit.settings import Block, GrpcServerSettings, ServiceSettings
from servicekit.values import Duration, Port

_SECOND = timedelta(seconds=1)


class StepSettings(Block):
    """How cards are claimed and asked for.

    ``claim_lease`` is how long a card stays away when the process that claimed it dies; a step ends before that.
    ``downtime`` is the time without claims after which late cards are spread over their interval again. ``ahead`` is
    how many cards are claimed beyond the slots held, as a share of them.
    """

    claim_lease: Annotated[Duration, Field(ge=_SECOND, le=timedelta(hours=1))] = timedelta(seconds=90)
    step_timeout: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(seconds=45)
    gateway_timeout: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(seconds=10)
    downtime: Annotated[Duration, Field(ge=_SECOND)] = timedelta(seconds=30)
    retry_after: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(seconds=5)
    slot_ttl: Annotated[Duration, Field(ge=_SECOND, le=timedelta(minutes=10))] = timedelta(seconds=30)
    manual_wait: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(seconds=5)
    connections: Annotated[int, Field(ge=1, le=20_000)] = 1000

    @model_validator(mode="after")
    def _step_ends_before_claim(self) -> Self:
        if self.step_timeout >= self.claim_lease:
            raise ValueError("step_timeout must be shorter than claim_lease")
        return self


class SyncSettings(Block):
    """How often the schedule is compared with the fleet; a large fleet stretches it to 20 times what it takes.

    Cards whose observations were lost are polled again at once, at most ``repoll_limit`` per account and round, and
    none while ``repoll_below`` or more messages wait for ingest_service: then they are late, not lost.
    """

    accounts_every: Annotated[Duration, Field(ge=timedelta(milliseconds=100))] = timedelta(seconds=5)
    cards_every: Annotated[Duration, Field(ge=timedelta(milliseconds=100))] = timedelta(seconds=15)
    page_size: Annotated[int, Field(ge=1, le=1000)] = 1000
    repoll_below: Annotated[int, Field(ge=0)] = 1000
    repoll_limit: Annotated[int, Field(ge=0, le=100_000)] = 1000


class BacklogSettings(Block):
    """How often the brokers' backlog is read and from which depth of a topic on it matters."""

    every: Annotated[Duration, Field(ge=_SECOND)] = timedelta(minutes=1)
    alert_depth: Annotated[int, Field(ge=1)] = 200_000
    pause_depth: Annotated[int, Field(ge=2)] = 500_000
    pause_lease: Annotated[Duration, Field(ge=_SECOND)] = timedelta(minutes=3)


class Settings(ServiceSettings):
    """What poller is told; its own variables start with ``POLLER_``.

    ``credentials`` maps the credential names of accounts to secrets, as a JSON object.
    """

    service_name: ClassVar[str] = "poller"

    grpc: GrpcServerSettings = GrpcServerSettings(port=7102)
    metrics_port: Port = 7192
    step: StepSettings = StepSettings()
    sync: SyncSettings = SyncSettings()
    backlog: BacklogSettings = BacklogSettings()
    credentials: dict[str, SecretStr] = Field(default_factory=dict)
