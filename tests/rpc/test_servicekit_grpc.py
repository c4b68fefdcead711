"""The server's chain and the client's channel, over a real connection."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import grpc
import pytest
import redis.exceptions
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from servicekit import deadline, principal, telemetry
from servicekit.errors import Reason, ServiceError
from servicekit.grpc_client import Channel
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.settings import AuthSettings, GrpcServerSettings, ServiceSettings, TelemetrySettings
from sluicegate.lease.v1 import lease_pb2, lease_pb2_grpc
from sluicegate.task.v1 import task_pb2, task_pb2_grpc
from tests.support.waiting import eventually

SECRET = "canary-5d1f0c"


def a_request(**changes: Any) -> lease_pb2.AcquireRequest:
    fields: dict[str, Any] = {
        "pool": "tasks",
        "token": "a" * 32,
        "scopes": ["workers"],
        "weight": 1,
        "ttl_ms": 30_000,
        "owner": "test",
    }
    return lease_pb2.AcquireRequest(**(fields | changes))


class Leases(lease_pb2_grpc.LeaseServiceServicer):
    """Answers what the test put in."""

    def __init__(self) -> None:
        self.act: Callable[[], Any] = lease_pb2.AcquireResponse
        self.calls = 0
        self.cancelled = asyncio.Event()
        self.entered = asyncio.Event()
        self.seen: dict[str, Any] = {}

    async def Acquire(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls += 1
        self.entered.set()
        self.seen = {"principal": principal.current(), "left": deadline.remaining()}
        try:
            answer = self.act()
            return await answer if asyncio.iscoroutine(answer) else answer
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class Tasks(task_pb2_grpc.TaskServiceServicer):
    """Streams without end until it is told to fail."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.closed = asyncio.Event()
        self.left: float | None = -1.0

    async def WatchTask(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.left = deadline.remaining()
        try:
            yield task_pb2.WatchTaskResponse()
            yield task_pb2.WatchTaskResponse()
            if self.failure is not None:
                raise self.failure
            await asyncio.Event().wait()
        finally:
            self.closed.set()


@pytest.fixture
async def leases() -> Leases:
    return Leases()


@pytest.fixture
async def tasks() -> Tasks:
    return Tasks()


@pytest.fixture
def grpc_servicers(leases: Leases, tasks: Tasks) -> list[Any]:
    return [
        (lease_pb2_grpc.add_LeaseServiceServicer_to_server, leases),
        (task_pb2_grpc.add_TaskServiceServicer_to_server, tasks),
    ]


@pytest.fixture
def grpc_stub_cls() -> Any:
    return lease_pb2_grpc.LeaseServiceStub


@pytest.fixture
def grpc_idempotent() -> frozenset[str]:
    return frozenset({"Renew"})


@pytest.fixture
async def plain(grpc_server: GrpcServer) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(grpc_server.address) as channel:
        yield lease_pb2_grpc.LeaseServiceStub(channel)


@pytest.fixture
def spans() -> Any:
    exporter = InMemorySpanExporter()
    telemetry.setup("test", TelemetrySettings(), exporter=exporter)

    def finished() -> list[ReadableSpan]:
        telemetry.flush()
        return list(exporter.get_finished_spans())

    yield finished
    telemetry.shutdown()


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


EXPECTED_CODES = [
    (Reason.INVALID_FIELD, grpc.StatusCode.INVALID_ARGUMENT),
    (Reason.SLOT_UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Reason.BACKLOG_FULL, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Reason.RATE_LIMITED, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Reason.PAUSED, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Reason.SLOT_LOST, grpc.StatusCode.FAILED_PRECONDITION),
    (Reason.CLAIM_LOST, grpc.StatusCode.FAILED_PRECONDITION),
    (Reason.KEY_REUSED, grpc.StatusCode.FAILED_PRECONDITION),
    (Reason.WRONG_STATE, grpc.StatusCode.FAILED_PRECONDITION),
    (Reason.STALE_VERSION, grpc.StatusCode.FAILED_PRECONDITION),
    (Reason.NOT_FOUND, grpc.StatusCode.NOT_FOUND),
    (Reason.NOT_SIGNED_IN, grpc.StatusCode.UNAUTHENTICATED),
    (Reason.NOT_ALLOWED, grpc.StatusCode.PERMISSION_DENIED),
    (Reason.DEPENDENCY_AWAY, grpc.StatusCode.UNAVAILABLE),
    (Reason.TIME_IS_UP, grpc.StatusCode.DEADLINE_EXCEEDED),
    (Reason.INTERNAL, grpc.StatusCode.INTERNAL),
    (Reason.CANCELLED, grpc.StatusCode.CANCELLED),
    (Reason.QUOTA_EXHAUSTED, grpc.StatusCode.RESOURCE_EXHAUSTED),
]


@pytest.mark.parametrize(("reason", "code"), EXPECTED_CODES)
async def test_a_reason_travels_as_its_code_and_comes_back_whole(
    grpc_stub: Any, plain: Any, leases: Leases, reason: Reason, code: grpc.StatusCode
) -> None:
    leases.act = raising(
        ServiceError(reason, "said", retry_after=timedelta(seconds=1.5), metadata={"scope": "poll"})
    )
    with pytest.raises(ServiceError) as ours:
        await grpc_stub.Acquire(a_request())
    with pytest.raises(grpc.aio.AioRpcError) as raw:
        await plain.Acquire(a_request())
    assert raw.value.code() is code
    assert ours.value.reason is reason
    assert ours.value.message == "said"
    assert ours.value.retry_after == timedelta(seconds=1.5)
    assert ours.value.metadata == {"scope": "poll"}


def test_every_reason_is_in_the_table() -> None:
    assert {reason for reason, _ in EXPECTED_CODES} == set(Reason)


async def test_the_status_carries_google_details(plain: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plain.Acquire(a_request(pool="", weight=0))
    trailing = dict(caught.value.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("INVALID_FIELD", "sluicegate")
    assert status.details[1].Unpack(bad)
    assert {violation.field for violation in bad.field_violations} == {"pool", "weight"}


async def test_a_field_out_of_bounds_is_refused_before_the_servicer(grpc_stub: Any, leases: Leases) -> None:
    with pytest.raises(ServiceError) as caught:
        await grpc_stub.Acquire(a_request(token=""))
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.metadata == {"token": "is required"}
    assert leases.calls == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (asyncpg.CannotConnectNowError("starting"), Reason.DEPENDENCY_AWAY),
        (asyncpg.ConnectionDoesNotExistError("gone"), Reason.DEPENDENCY_AWAY),
        (asyncpg.QueryCanceledError("slow"), Reason.TIME_IS_UP),
        (redis.exceptions.ConnectionError("gone"), Reason.DEPENDENCY_AWAY),
        (redis.exceptions.TimeoutError("slow"), Reason.DEPENDENCY_AWAY),
        (ConnectionRefusedError(111, "no"), Reason.DEPENDENCY_AWAY),
        (KeyError("oops"), Reason.INTERNAL),
    ],
)
async def test_driver_errors_become_reasons(
    grpc_stub: Any, leases: Leases, error: Exception, reason: Reason
) -> None:
    leases.act = raising(error)
    with pytest.raises(ServiceError) as caught:
        await grpc_stub.Acquire(a_request())
    assert caught.value.reason is reason


async def test_a_bug_tells_the_caller_nothing(plain: Any, leases: Leases) -> None:
    leases.act = raising(RuntimeError(f"password={SECRET}"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plain.Acquire(a_request())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in str(caught.value)


async def test_the_server_ends_a_call_before_its_client_gives_up(plain: Any, leases: Leases) -> None:
    leases.act = lambda: asyncio.Event().wait()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plain.Acquire(a_request(), timeout=0.4)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    trailing = dict(caught.value.trailing_metadata() or ())
    assert "grpc-status-details-bin" in trailing, "the server said it, not the client's own timer"


async def test_a_call_with_too_little_time_is_refused(plain: Any, leases: Leases) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plain.Acquire(a_request(), timeout=0.09)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert leases.calls == 0


async def test_deadlines_by_default(
    plain: Any, grpc_server: GrpcServer, leases: Leases, tasks: Tasks
) -> None:
    await plain.Acquire(a_request())
    assert 25 < leases.seen["left"] <= 30
    await plain.Acquire(a_request(), timeout=5)
    assert 4 < leases.seen["left"] < 4.99
    async with grpc.aio.insecure_channel(grpc_server.address) as channel:
        call = task_pb2_grpc.TaskServiceStub(channel).WatchTask(a_watch())
        await call.read()
        call.cancel()
    assert tasks.left is None


async def test_what_is_left_of_a_call_limits_the_calls_it_makes(grpc_stub: Any, leases: Leases) -> None:
    async def inside() -> None:
        deadline.use(0.5)
        await grpc_stub.Acquire(a_request(), timeout=20)

    await asyncio.create_task(inside())
    assert leases.seen["left"] < 0.5

    async def too_late() -> None:
        deadline.use(0)
        await grpc_stub.Acquire(a_request())

    with pytest.raises(ServiceError) as caught:
        await asyncio.create_task(too_late())
    assert caught.value.reason is Reason.TIME_IS_UP
    assert leases.calls == 1


async def test_cancelling_the_caller_cancels_the_servicer(grpc_stub: Any, leases: Leases, spans: Any) -> None:
    leases.act = lambda: asyncio.Event().wait()
    call = asyncio.create_task(grpc_stub.Acquire(a_request()))
    await asyncio.wait_for(leases.entered.wait(), 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(leases.cancelled.wait(), 10)
    await eventually(lambda: len(spans()) == 2, within=10)
    server_span = next(span for span in spans() if span.kind is telemetry.SpanKind.SERVER)
    assert server_span.attributes["rpc.grpc.status_code"] == grpc.StatusCode.CANCELLED.value[0]
    assert server_span.attributes["sluicegate.cancelled"] is True


async def test_a_servicer_that_is_cancelled_from_inside_answers_cancelled(plain: Any, leases: Leases) -> None:
    leases.act = raising(asyncio.CancelledError())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plain.Acquire(a_request(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.CANCELLED


def a_watch() -> task_pb2.WatchTaskRequest:
    return task_pb2.WatchTaskRequest(task_id="01890a5d-ac96-774b-bcce-b302099a8057")


async def test_a_stream_delivers_then_fails_with_its_reason(grpc_channel: Channel, tasks: Tasks) -> None:
    tasks.failure = ServiceError(Reason.CLAIM_LOST, "lost")
    received: list[Any] = []

    async def receive() -> None:
        call = task_pb2_grpc.TaskServiceStub(grpc_channel.raw).WatchTask(a_watch())
        async for response in call:
            received.append(response)  # noqa: PERF401 - what came before the failure counts

    with pytest.raises(ServiceError) as caught:
        await receive()
    assert len(received) == 2
    assert caught.value.reason is Reason.CLAIM_LOST
    assert tasks.closed.is_set()


async def test_cancelling_a_stream_closes_the_generator_on_the_server(
    grpc_channel: Channel, tasks: Tasks, spans: Any
) -> None:
    call = task_pb2_grpc.TaskServiceStub(grpc_channel.raw).WatchTask(a_watch())
    await call.read()
    call.cancel()
    await asyncio.wait_for(tasks.closed.wait(), 10)
    await eventually(lambda: len(spans()) == 2, within=10)


async def test_a_cancelled_reader_of_a_stream_cancels_it_on_the_server(
    grpc_channel: Channel, tasks: Tasks
) -> None:
    first = asyncio.Event()

    async def read() -> None:
        async for _ in task_pb2_grpc.TaskServiceStub(grpc_channel.raw).WatchTask(a_watch()):
            first.set()

    reader = asyncio.create_task(read())
    await asyncio.wait_for(first.wait(), 10)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await asyncio.wait_for(tasks.closed.wait(), 10)


async def test_one_trace_from_caller_to_callee(grpc_stub: Any, leases: Leases, spans: Any) -> None:
    def act() -> Any:
        with telemetry.traced("inside", card_id="c1"):
            return lease_pb2.AcquireResponse()

    leases.act = act
    with telemetry.traced("outside"):
        await grpc_stub.Acquire(a_request())
    by_name = {(span.name, span.kind.name): span for span in spans()}
    outside = by_name["outside", "INTERNAL"]
    client = by_name["sluicegate.lease.v1.LeaseService/Acquire", "CLIENT"]
    server = by_name["sluicegate.lease.v1.LeaseService/Acquire", "SERVER"]
    inside = by_name["inside", "INTERNAL"]
    assert [client.parent.span_id, server.parent.span_id, inside.parent.span_id] == [
        outside.context.span_id,
        client.context.span_id,
        server.context.span_id,
    ]
    assert len({span.context.trace_id for span in by_name.values()}) == 1
    assert server.attributes["rpc.method"] == "Acquire"
    assert inside.attributes["sluicegate.card_id"] == "c1"


async def test_tenant_and_actor_reach_the_servicer(grpc_server: GrpcServer, leases: Leases) -> None:
    channel = Channel(grpc_server.address, tenant="blue", actor="alice")
    await lease_pb2_grpc.LeaseServiceStub(channel.raw).Acquire(a_request())
    await channel.stop()
    assert (leases.seen["principal"].tenant, leases.seen["principal"].subject) == ("blue", "alice")


class TestToken:
    @pytest.fixture
    def grpc_settings(self) -> ServiceSettings:
        return ServiceSettings.from_environment(
            {"SLUICEGATE_AUTH_MODE": "token", "SLUICEGATE_AUTH_TOKEN": SECRET}
        )

    async def test_the_right_token_passes(self, grpc_stub: Any) -> None:
        await grpc_stub.Acquire(a_request())

    @pytest.mark.parametrize("token", [None, "wrong"])
    async def test_no_or_a_wrong_token_does_not(
        self, grpc_server: GrpcServer, leases: Leases, token: str | None
    ) -> None:
        auth = AuthSettings(mode="token", token=token) if token else None
        channel = Channel(grpc_server.address, auth=auth)
        with pytest.raises(ServiceError) as caught:
            await lease_pb2_grpc.LeaseServiceStub(channel.raw).Acquire(a_request())
        await channel.stop()
        assert caught.value.reason is Reason.NOT_SIGNED_IN
        assert leases.calls == 0


async def test_nobody_there_is_dependency_away() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{free.getsockname()[1]}"
    channel = Channel(target, name="lease_service")
    with pytest.raises(ServiceError) as caught:
        await lease_pb2_grpc.LeaseServiceStub(channel.raw).Acquire(a_request())
    await channel.stop()
    assert caught.value.reason is Reason.DEPENDENCY_AWAY
    assert caught.value.message == "lease_service can't be reached"


async def test_only_idempotent_methods_are_sent_again(grpc_server: GrpcServer, leases: Leases) -> None:
    leases.act = raising(ServiceError(Reason.DEPENDENCY_AWAY, "away"))
    once, again = Channel(grpc_server.address), Channel(grpc_server.address, idempotent={"Acquire"})
    for channel, calls in ((once, 1), (again, 4)):
        leases.calls = 0
        with pytest.raises(ServiceError):
            await lease_pb2_grpc.LeaseServiceStub(channel.raw).Acquire(a_request())
        await channel.stop()
        assert leases.calls == calls


async def test_a_restarted_server_is_found_again(
    grpc_server: GrpcServer, grpc_stub: Any, grpc_servicers: Any, grpc_health: Health
) -> None:
    await grpc_stub.Acquire(a_request())
    await grpc_server.stop()
    settings = ServiceSettings(grpc=GrpcServerSettings(port=grpc_server.port))
    second = GrpcServer(settings, grpc_servicers, grpc_health)
    await second.start()

    async def answers() -> bool:
        try:
            await grpc_stub.Acquire(a_request())
        except ServiceError:
            return False
        return True

    await eventually(answers, within=10)
    await second.stop()


async def test_a_taken_port_is_said_clearly(
    grpc_server: GrpcServer, grpc_servicers: Any, grpc_health: Health
) -> None:
    settings = ServiceSettings(grpc=GrpcServerSettings(port=grpc_server.port))
    with pytest.raises(ServiceError) as caught:
        await GrpcServer(settings, grpc_servicers, grpc_health).start()
    assert caught.value.message == (
        f"port {grpc_server.port} on 127.0.0.1 is taken: stop what uses it or set SERVICE_GRPC__PORT"
    )


async def test_draining_finishes_calls_and_takes_no_new_ones(
    grpc_server: GrpcServer, grpc_stub: Any, leases: Leases
) -> None:
    release = asyncio.Event()

    async def wait() -> Any:
        await release.wait()
        return lease_pb2.AcquireResponse()

    leases.act = wait
    held = asyncio.create_task(grpc_stub.Acquire(a_request()))
    await asyncio.wait_for(leases.entered.wait(), 10)
    draining = asyncio.create_task(grpc_server.drain())

    async def refused() -> bool:
        channel = Channel(grpc_server.address)
        try:
            await lease_pb2_grpc.LeaseServiceStub(channel.raw).Acquire(a_request(), timeout=0.3)
        except ServiceError as error:
            return error.reason is Reason.DEPENDENCY_AWAY
        finally:
            await channel.stop()
        return False

    await eventually(refused, within=10)
    assert not draining.done()
    release.set()
    assert await held == lease_pb2.AcquireResponse()
    await asyncio.wait_for(draining, 10)


async def test_health_follows_the_dependencies(grpc_server: GrpcServer, grpc_health: Health) -> None:
    works = True

    async def check() -> bool:
        return works

    grpc_health.add_check("redis", check)
    async with grpc.aio.insecure_channel(grpc_server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)

        async def statuses() -> list[int]:
            names = ("", "sluicegate.lease.v1.LeaseService", "redis")
            return [(await stub.Check(health_pb2.HealthCheckRequest(service=name))).status for name in names]

        response = health_pb2.HealthCheckResponse
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == response.NOT_SERVING
        await grpc_health.start()
        assert await statuses() == [response.SERVING] * 3
        works = False
        await grpc_health.check_now()
        assert await statuses() == [response.NOT_SERVING] * 3
        works = True
        await grpc_health.check_now()
        await grpc_health.turn_off()
        assert await statuses() == [response.NOT_SERVING] * 3
        await grpc_health.stop()
