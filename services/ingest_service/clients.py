"""Calls to other services: capacities go to lease_service, collection records to collection_writer."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ingest_service.domain.fleet import slot_pool
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from sluicegate.collection.v1 import collection_pb2, collection_pb2_grpc
from sluicegate.lease.v1 import lease_pb2, lease_pb2_grpc
from sluicegate_client.messages import CollectionMessage


class PolicyClient:
    """Stores and reads the capacities of accounts. Methods raise ServiceError."""

    def __init__(self, channel: Channel) -> None:
        self._stub: Any = lease_pb2_grpc.LeaseServiceStub(channel.raw)

    async def set_capacity(self, account_id: str, scope: str, capacity: int, *, actor: str) -> None:
        """Store how many units of a scope an account's callers may hold at once."""
        await self._stub.SetPolicy(
            lease_pb2.SetPolicyRequest(
                pool=slot_pool(account_id),
                scope=scope,
                capacity=capacity,
                actor=actor,
                reason="account saved",
            )
        )

    async def capacities(self) -> Mapping[tuple[str, str], int]:
        """Return the capacity of every (pool, scope)."""
        answer = await self._stub.GetPolicy(lease_pb2.GetPolicyRequest())
        return {(policy.pool, policy.scope): policy.capacity for policy in answer.policies}


class CollectionClient:
    """Writes collection records while nsqd is away, and looks them up. Methods raise ServiceError."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stub: Any = collection_pb2_grpc.CollectionServiceStub(channel.raw)

    async def write(self, messages: Sequence[CollectionMessage]) -> None:
        """Store records; those that are stored already stay as they are. Blocks until they are stored."""
        records = [_record(message) for message in messages]
        await self._stub.WriteRecords(collection_pb2.WriteRecordsRequest(records=records))

    async def stored_at(self, observation_id: str) -> datetime | None:
        """Return when an observation's record was stored, or None when there is none."""
        try:
            answer = await self._stub.GetRecord(
                collection_pb2.GetRecordRequest(observation_id=observation_id)
            )
        except ServiceError as error:
            if error.reason is Reason.NOT_FOUND:
                return None
            raise
        stored: datetime = answer.record.stored_at.ToDatetime(UTC)
        return stored

    async def probe(self) -> bool:
        """Say whether records can be stored through this client now."""
        return await self._channel.health_check()


def _record(message: CollectionMessage) -> collection_pb2.Record:
    reading = "" if message.reading is None else json.dumps(dict(message.reading), separators=(",", ":"))
    return collection_pb2.Record(
        observation_id=str(message.observation_id),
        observed_at=message.observed_at,
        card_id=message.card_id,
        account_id=message.account_id,
        kind=message.kind,
        outcome=message.outcome,
        reading_json=reading,
        raw=message.raw,
        error=message.error or "",
        latency_ms=message.latency_ms,
        traceparent=message.traceparent,
    )
