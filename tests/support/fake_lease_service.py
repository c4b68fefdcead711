"""A lease service without engines whose replies a test can delay, lose, refuse or falsify."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from servicekit import grpc_status
from servicekit.errors import Reason, ServiceError
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc


class FakeLeaseService(lease_pb2_grpc.LeaseServiceServicer):
    """Grants up to ``capacity`` and notes every call."""

    def __init__(self) -> None:
        self.capacity = 100
        self.ttl_ms = 60_000
        self.held: dict[str, int] = {}
        self.acquired: list[str] = []
        self.renewed: list[str] = []
        self.tickets: list[bytes] = []
        self.released: list[str] = []
        self.lost: set[str] = set()
        self.hang_renew = False
        self.fail_renew = False
        self.fail_release = 0
        self.late_grant: asyncio.Event | None = None
        self.granted = asyncio.Event()

    @property
    def used(self) -> int:
        return sum(self.held.values())

    async def Acquire(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.acquired.append(request.token)
        if self.used + request.weight > self.capacity:
            await self._refuse(request, context)
        self.held[request.token] = request.weight
        self.ttl_ms = request.ttl_ms
        self.granted.set()
        if self.late_grant is not None:
            await self.late_grant.wait()
        lease = wire.Lease(
            token=request.token,
            fence=len(self.acquired),
            remaining_ms=request.ttl_ms,
            weight=request.weight,
            ticket=b"granted",
        )
        return wire.AcquireResponse(lease=lease)

    async def _refuse(self, request: Any, context: Any) -> None:
        facts = {
            "pool": request.pool,
            "scope": "poll",
            "used": str(self.used),
            "capacity": str(self.capacity),
        }
        error = ServiceError(Reason.SLOT_UNAVAILABLE, "full", metadata=facts)
        details = ((grpc_status.DETAILS_KEY, grpc_status.details_of(error)),)
        await context.abort(grpc_status.code_of(error.reason), error.message, details)

    async def Renew(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.renewed += [item.token for item in request.items]
        if self.hang_renew:
            await asyncio.sleep(60)
        if self.fail_renew:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        return wire.RenewResponse(results=[self._renew(item) for item in request.items])

    def _renew(self, item: Any) -> Any:
        self.tickets.append(item.ticket)
        if item.token in self.lost or item.token not in self.held:
            self.held.pop(item.token, None)
            return wire.RenewResult(token=item.token, outcome=wire.RENEW_OUTCOME_LOST)
        if item.weight:
            self.held[item.token] = min(item.weight, self.held[item.token])
        return wire.RenewResult(
            token=item.token,
            outcome=wire.RENEW_OUTCOME_OK,
            remaining_ms=self.ttl_ms,
            weight=self.held[item.token],
            ticket=b"renewed %d" % len(self.tickets),
        )

    async def Release(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.fail_release:
            self.fail_release -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        self.released += request.tokens
        freed = [self.held.pop(token, 0) > 0 for token in request.tokens]
        return wire.ReleaseResponse(
            results=[wire.ReleaseResult(token=t, freed=f) for t, f in zip(request.tokens, freed, strict=True)]
        )


@asynccontextmanager
async def running_fake(fake: FakeLeaseService) -> AsyncIterator[str]:
    """Serve it and give its address."""
    server = grpc.aio.server()
    lease_pb2_grpc.add_LeaseServiceServicer_to_server(fake, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
