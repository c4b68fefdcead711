"""Token and fence travel with the calls of a block that asks for it, and tickets with renewals."""

from datetime import timedelta
from typing import Any

import grpc

from servicekit.grpc_client import Channel
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from sluicegate_client.slots import Slots
from tests.support.fake_lease_service import FakeLeaseService, running_fake
from tests.support.waiting import eventually

POOL = "gateway:acme"


class Listener(lease_pb2_grpc.LeaseServiceServicer):
    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    async def GetPolicy(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.seen.append(dict(context.invocation_metadata()))
        return wire.GetPolicyResponse()


async def test_calls_inside_an_attached_hold_carry_pool_token_and_fence() -> None:
    listener = Listener()
    server = grpc.aio.server()
    lease_pb2_grpc.add_LeaseServiceServicer_to_server(listener, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = Channel(f"127.0.0.1:{port}")
    stub: Any = lease_pb2_grpc.LeaseServiceStub(channel.raw)
    async with running_fake(FakeLeaseService()) as address:
        slots = Slots(address, owner="test")
        async with slots.hold(POOL, scopes=["poll"], attach=True) as slot:
            await stub.GetPolicy(wire.GetPolicyRequest())
            async with slots.hold(POOL, scopes=["poll"], attach=True) as inner:
                await stub.GetPolicy(wire.GetPolicyRequest())
        async with slots.hold(POOL, scopes=["poll"]):
            await stub.GetPolicy(wire.GetPolicyRequest())
        await slots.stop()
    await channel.stop()
    await server.stop(0)
    held, nested, silent = listener.seen
    assert held["sluicegate-slot-pool"] == POOL
    assert held["sluicegate-slot-token"] == slot.token
    assert held["sluicegate-slot-fence"] == str(slot.fence)
    assert nested["sluicegate-slot-token"] == inner.token
    assert not any(key.startswith("sluicegate-slot") for key in silent)


async def test_every_renewal_shows_the_newest_ticket() -> None:
    fake = FakeLeaseService()
    async with running_fake(fake) as address:
        slots = Slots(address, owner="test")
        async with slots.hold(POOL, scopes=["poll"], ttl=timedelta(milliseconds=400)):
            await eventually(lambda: len(fake.tickets) >= 3)
        await slots.stop()
    assert fake.tickets[:3] == [b"granted", b"renewed 1", b"renewed 2"]
