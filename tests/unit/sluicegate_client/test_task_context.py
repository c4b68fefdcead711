import asyncio
import time
from datetime import timedelta

import pytest

from sluicegate_client.claim_keeper import ClaimKey
from sluicegate_client.task_context import TaskContext
from sluicegate_client.task_errors import TransientError
from sluicegate_client.text_writer import TextWriter
from sluicegate_client.worker import SyncTaskContext, Worker
from sluicegate_client.worker_calls import ClaimedTask

CLAIMED = ClaimedTask(
    claim=ClaimKey("t", "o", 1),
    tenant="",
    channel="c",
    kind="k",
    payload_json="{}",
    payload_version=1,
    max_attempts=1,
    remaining=timedelta(seconds=45),
    deadline_at=None,
    traceparent="",
    slot_fence=1,
)


async def nothing(*_: object) -> None:
    """Stand for the server."""


def context(left: float | None) -> TaskContext:
    ends_at = None if left is None else time.monotonic() + left
    return TaskContext(CLAIMED, text=TextWriter(nothing, gather_seconds=0), report=nothing, ends_at=ends_at)


def test_a_call_gets_its_own_limit_or_what_is_left_of_the_attempt() -> None:
    assert context(None).call_seconds(30) == 30
    assert context(1000).call_seconds(30) == 30
    assert context(10).call_seconds(30) <= 10
    with pytest.raises(TransientError, match="used up"):
        context(0).call_seconds(30)


async def test_a_call_over_its_limit_is_transient_and_the_handlers_own_timeout_is_not_touched() -> None:
    with pytest.raises(TransientError, match=r"more than 0\.01 s"):
        async with context(None).limit(0.01):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError, match="its own"):
        async with context(1000).limit(30):
            raise TimeoutError("its own")


def test_what_can_not_run_in_a_process_is_refused_when_it_is_registered() -> None:
    worker = Worker("127.0.0.1:1", channels=["c"], name="w")

    def inside(_: SyncTaskContext) -> None:
        """Be where no other process finds it."""

    with pytest.raises(TypeError, match="top of a module"):
        worker.handler("k", process=True)(inside)
    with pytest.raises(TypeError, match="only a plain function"):
        worker.handler("k", process=True)(nothing)
