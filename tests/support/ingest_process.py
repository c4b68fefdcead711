"""ingest_service as a process of its own, with stand-ins for the services that it calls."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from devengines.nsqd import BrokerProcess
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.nsq import Consumer, Message, NsqAdmin
from servicekit.settings import ServiceSettings
from sluicegate.collection.v1 import collection_pb2, collection_pb2_grpc
from sluicegate.ingest.v1 import ingest_pb2_grpc
from sluicegate.lease.v1 import lease_pb2, lease_pb2_grpc
from sluicegate_client.messages import CardEventMessage, CollectionMessage
from tests.support.broker import addresses
from tests.support.waiting import eventually


class FakePeers(lease_pb2_grpc.LeaseServiceServicer, collection_pb2_grpc.CollectionServiceServicer):
    """Stands in for lease_service and collection_writer: remembers what it was given; away on demand."""

    def __init__(self) -> None:
        self.policies: dict[tuple[str, str], int] = {}
        self.records: dict[str, collection_pb2.Record] = {}
        self.lease_away = False
        self.collection_away = False

    async def SetPolicy(self, request: Any, context: Any) -> lease_pb2.SetPolicyResponse:  # noqa: N802
        _check(self.lease_away)
        self.policies[request.pool, request.scope] = request.capacity
        return lease_pb2.SetPolicyResponse()

    async def GetPolicy(self, request: Any, context: Any) -> lease_pb2.GetPolicyResponse:  # noqa: N802
        _check(self.lease_away)
        return lease_pb2.GetPolicyResponse(
            policies=[
                lease_pb2.Policy(pool=pool, scope=scope, capacity=capacity)
                for (pool, scope), capacity in self.policies.items()
            ]
        )

    async def WriteRecords(self, request: Any, context: Any) -> collection_pb2.WriteRecordsResponse:  # noqa: N802
        _check(self.collection_away)
        for record in request.records:
            self.records.setdefault(record.observation_id, record)
        return collection_pb2.WriteRecordsResponse()

    async def GetRecord(self, request: Any, context: Any) -> collection_pb2.GetRecordResponse:  # noqa: N802
        _check(self.collection_away)
        if request.observation_id not in self.records:
            raise ServiceError(Reason.NOT_FOUND, "no record")
        return collection_pb2.GetRecordResponse(record=self.records[request.observation_id])


def _check(away: bool) -> None:  # noqa: FBT001
    if away:
        raise ServiceError(Reason.DEPENDENCY_AWAY, "away")


@asynccontextmanager
async def fake_peers() -> AsyncIterator[tuple[FakePeers, str]]:
    """Serve the stand-ins; yields them and their address."""
    peers = FakePeers()
    health = Health()
    server = GrpcServer(
        ServiceSettings.from_environment({}),
        [
            (lease_pb2_grpc.add_LeaseServiceServicer_to_server, peers),
            (collection_pb2_grpc.add_CollectionServiceServicer_to_server, peers),
        ],
        health,
    )
    await server.start()
    await health.start()
    try:
        yield peers, server.address
    finally:
        await health.stop()
        await server.stop()


class IngestProcess:
    """One ingest_service; `start` may be called again after a kill."""

    def __init__(self, variables: dict[str, str], folder: Path) -> None:
        self._variables = variables
        self._log = folder / "ingest_service.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = 0

    async def start(self) -> str:
        """Start it and return its gRPC address once it has started."""
        self._seen = len(self.log())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "ingest_service"],
                env={"PATH": os.environ["PATH"], **self._variables},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        await eventually(lambda: '"event":"started"' in self._new().replace(" ", ""), within=30)
        rows = [json.loads(line) for line in self._new().splitlines() if line.startswith("{")]
        return str(next(row["address"] for row in rows if row["event"] == "serving"))

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """Ask it to end and wait; returns its exit code."""
        return self._end(signal.SIGTERM)

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def events(self, level: str) -> list[str]:
        """Return the events logged at a level."""
        rows = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [row["event"] for row in rows if row.get("level") == level]

    def _new(self) -> str:
        return self.log()[self._seen :]

    def _end(self, number: int) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(number)
        return process.wait(60)


class Topics:
    """Everything that came out on ``card.collection`` and ``card.event``."""

    def __init__(self) -> None:
        self.collection: Counter[str] = Counter()
        self.messages: dict[str, CollectionMessage] = {}
        self.events: dict[str, CardEventMessage] = {}

    async def on_collection(self, message: Message) -> None:
        decoded = CollectionMessage.decode(message.body)
        self.collection[str(decoded.observation_id)] += 1
        self.messages[str(decoded.observation_id)] = decoded
        await message.finish()

    async def on_event(self, message: Message) -> None:
        decoded = CardEventMessage.decode(message.body)
        self.events[str(decoded.event_id)] = decoded
        await message.finish()


@asynccontextmanager
async def listening(broker: BrokerProcess) -> AsyncIterator[Topics]:
    """Create the topics and collect what comes out of them."""
    place = addresses(broker)
    admin = NsqAdmin(place)
    for topic, channel in (
        ("card.ingest", "ingest_service"),
        ("card.collection", "test"),
        ("card.event", "test"),
    ):
        await admin.create(topic, channel)
    topics = Topics()
    consumers = [
        Consumer(place, "card.collection", "test", topics.on_collection, 200),
        Consumer(place, "card.event", "test", topics.on_event, 200),
    ]
    for consumer in consumers:
        await consumer.start()
    try:
        yield topics
    finally:
        await asyncio.gather(*(consumer.stop() for consumer in consumers))


@asynccontextmanager
async def calling(address: str) -> AsyncIterator[Any]:
    """Yield a stub of IngestService."""
    channel = Channel(address, name="ingest_service")
    try:
        yield ingest_pb2_grpc.IngestServiceStub(channel.raw)
    finally:
        await channel.stop()


def variables(*, dsn: str, redis_url: str, broker: BrokerProcess, peers: str, **more: str) -> dict[str, str]:
    """Return the environment of an ingest_service that uses these engines."""
    return {
        "SLUICEGATE_POSTGRES_DSN": dsn,
        "SLUICEGATE_REDIS_URL": redis_url,
        "SLUICEGATE_NSQD": broker.tcp_address,
        "SLUICEGATE_NSQD_HTTP": broker.http_address,
        "SLUICEGATE_LEASE_SERVICE": peers,
        "SLUICEGATE_COLLECTION_WRITER": peers,
        "INGEST_SERVICE_GRPC__PORT": "0",
        "INGEST_SERVICE_METRICS_PORT": "0",
        "INGEST_SERVICE_LOOPS__OUTBOX_EVERY": "50ms",
        "INGEST_SERVICE_LOOPS__POLICIES_EVERY": "100ms",
        **more,
    }
