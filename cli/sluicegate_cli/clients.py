"""Typed clients of every service, connected when first used: the only place where the CLI builds channels."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeVar

from servicekit.grpc_client import Channel
from sluicegate.collection.v1 import collection_pb2_grpc
from sluicegate.ingest.v1 import ingest_pb2_grpc
from sluicegate.lease.v1 import lease_pb2_grpc
from sluicegate.operator.v1 import operator_pb2_grpc
from sluicegate.poller.v1 import poller_pb2_grpc
from sluicegate.task.v1 import task_pb2_grpc
from sluicegate_cli.addresses import Addresses, find

if TYPE_CHECKING:
    from sluicegate.collection.v1.collection_pb2_grpc import CollectionServiceAsyncStub
    from sluicegate.ingest.v1.ingest_pb2_grpc import IngestServiceAsyncStub
    from sluicegate.lease.v1.lease_pb2_grpc import LeaseServiceAsyncStub
    from sluicegate.operator.v1.operator_pb2_grpc import OperatorServiceAsyncStub
    from sluicegate.poller.v1.poller_pb2_grpc import PollerServiceAsyncStub
    from sluicegate.task.v1.task_pb2_grpc import TaskServiceAsyncStub

Answer = TypeVar("Answer")

_READS = frozenset(
    {
        *("GetPolicy", "ListHolders", "Explain", "ListAccounts", "GetCards", "ListCards", "ListQuarantine"),
        *("GetMode", "GetBacklog", "GetStatus", "GetRecord", "ListRecords", "CountRecords"),
        *("GetTask", "ListTasks", "ListAttempts", "ListChannels", "ListAudit"),
        *("ApplyObservations", "Submit", "SaveCards", "SaveAccounts"),  # the same again changes nothing
    }
)


class Clients:
    """Stubs of the services; leave the context to close their connections."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self._channels: dict[str, Channel] = {}

    @cached_property
    def lease(self) -> "LeaseServiceAsyncStub":
        """Slots."""
        return lease_pb2_grpc.LeaseServiceStub(self.channel("lease_service").raw)

    @cached_property
    def poller(self) -> "PollerServiceAsyncStub":
        """Polling."""
        return poller_pb2_grpc.PollerServiceStub(self.channel("poller").raw)

    @cached_property
    def ingest(self) -> "IngestServiceAsyncStub":
        """Accounts, cards, observations."""
        return ingest_pb2_grpc.IngestServiceStub(self.channel("ingest_service").raw)

    @cached_property
    def collection(self) -> "CollectionServiceAsyncStub":
        """Collection records."""
        return collection_pb2_grpc.CollectionServiceStub(self.channel("collection_writer").raw)

    @cached_property
    def task(self) -> "TaskServiceAsyncStub":
        """Tasks."""
        return task_pb2_grpc.TaskServiceStub(self.channel("task_api").raw)

    @cached_property
    def operator(self) -> "OperatorServiceAsyncStub":
        """Channels and audit."""
        return operator_pb2_grpc.OperatorServiceStub(self.channel("task_api").raw)

    def channel(self, service: str) -> Channel:
        """Return the connection to one service."""
        if service not in self._channels:
            target = self.addresses.services[service]
            self._channels[service] = Channel(
                target,
                auth=self.addresses.auth,
                name=f"{service} at {target}",
                idempotent=_READS,
                tenant=self.addresses.tenant,
                actor=actor(),
            )
        return self._channels[service]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        for channel in self._channels.values():
            await channel.stop()


def ask(work: Callable[[Clients], Awaitable[Answer]]) -> Answer:
    """Run one command's calls against the found services; raises ServiceError."""

    async def whole() -> Answer:
        async with Clients(find()) as clients:
            return await work(clients)

    return asyncio.run(whole())


def actor() -> str:
    """Return who acts, for audit rows."""
    try:
        return f"cli:{getpass.getuser()}"[:128]
    except (OSError, KeyError):
        return "cli"
