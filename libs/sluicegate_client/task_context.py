"""What a handler sees of the task that it runs."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sluicegate_client.task_errors import PermanentError, TransientError, said
from sluicegate_client.text_writer import TextWriter, storable
from sluicegate_client.worker_calls import ClaimedTask, ExportPointer

MAX_RESULT_CHARACTERS = 262_144
"""Most characters of a result's JSON; keep larger results in an outside store and return where they are."""

_MAX_MESSAGE_CHARACTERS = 200


class StopReason(StrEnum):
    """Why a running handler is cancelled."""

    CANCEL_REQUESTED = "cancel_requested"
    CLAIM_LOST = "claim_lost"
    DRAIN = "drain"
    BUDGET = "budget"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A handler's result that carries more than a JSON object.

    Attributes:
        value: the JSON object.
        export: set by the export worker alone: the pointer that is stored with the completion.
    """

    value: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    export: ExportPointer | None = None


class TaskFacts:
    """What an attempt knows about its task, whichever way its handler runs."""

    def __init__(self, claimed: ClaimedTask, *, ends_at: float | None = None) -> None:
        self._claimed = claimed
        self._ends_at = ends_at
        self._payload: Mapping[str, Any] | None = None

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._claimed.claim.task_id

    @property
    def epoch(self) -> int:
        """The claim's epoch: rises by one with every attempt of the task."""
        return self._claimed.claim.epoch

    @property
    def owner_token(self) -> str:
        """The claim's token; send it to outside systems together with the epoch."""
        return self._claimed.claim.owner_token

    @property
    def slot_fence(self) -> int:
        """The fence of the slot that the attempt runs under."""
        return self._claimed.slot_fence

    @property
    def tenant(self) -> str:
        """Whose task it is."""
        return self._claimed.tenant

    @property
    def channel(self) -> str:
        """Where it runs."""
        return self._claimed.channel

    @property
    def kind(self) -> str:
        """What it is."""
        return self._claimed.kind

    @property
    def payload_version(self) -> int:
        """Version of the payload's shape."""
        return self._claimed.payload_version

    @property
    def max_attempts(self) -> int:
        """Attempts allowed."""
        return self._claimed.max_attempts

    @property
    def deadline_at(self) -> datetime | None:
        """After this no further attempt starts."""
        return self._claimed.deadline_at

    @property
    def traceparent(self) -> str:
        """W3C trace context of the task's creation."""
        return self._claimed.traceparent

    @property
    def payload(self) -> Mapping[str, Any]:
        """The payload: a JSON object."""
        if self._payload is None:
            self._payload = json.loads(self._claimed.payload_json or "{}")
        return self._payload

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds left of the attempt's budget and the task's deadline, whichever ends first; None for no limit."""
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def call_seconds(self, most: float) -> float:
        """Return the timeout of one call to the outside: ``most`` seconds, or what is left when that is less.

        Raises:
            TransientError: nothing is left.
        """
        remaining = self.remaining_seconds
        if remaining is not None and remaining <= 0:
            raise TransientError("the time of the attempt is used up")
        return most if remaining is None else min(most, remaining)


class TaskContext(TaskFacts):
    """One attempt of one task, as its handler sees it.

    Attributes:
        text: writes the task's text events.
        stop_reason: why the handler is being cancelled; None while nobody asked it to stop.
    """

    def __init__(
        self,
        claimed: ClaimedTask,
        *,
        text: TextWriter,
        report: Callable[[int, str], Awaitable[None]],
        ends_at: float | None = None,
    ) -> None:
        super().__init__(claimed, ends_at=ends_at)
        self._report = report
        self.text = text
        self.stop_reason: StopReason | None = None

    @property
    def claimed(self) -> ClaimedTask:
        """The task as it was claimed."""
        return self._claimed

    @property
    def ends_at(self) -> float | None:
        """When the attempt's time is used up, by this machine's monotonic clock."""
        return self._ends_at

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """Limit one call to the outside; it never gets more than is left of the whole attempt.

        Raises:
            TransientError: the call took too long, or nothing is left.
        """
        allowed = self.call_seconds(seconds)
        try:
            async with asyncio.timeout(allowed) as limited:
                yield
        except TimeoutError as error:
            if limited.expired():
                raise TransientError(f"a call took more than {allowed:.3g} s") from error
            raise

    async def progress(self, percent: float, message: str = "") -> None:
        """Report the fraction done, 0 to 100; silently skipped while the server is away.

        Raises:
            ClaimLostError: the claim was lost; stop the work.
        """
        whole = min(100, max(0, int(percent)))
        await self._report(whole, storable(message)[:_MAX_MESSAGE_CHARACTERS])


def encode_result(result: object) -> TaskResult:
    """Check what a handler returned and bring it into one form.

    Raises:
        PermanentError: it is no JSON object, holds NaN, an infinity or what no store can hold, or is too large.
    """
    if result is None:
        result = {}
    wrapped = result if isinstance(result, TaskResult) else TaskResult(result)  # type: ignore[arg-type]
    if not isinstance(wrapped.value, Mapping):
        raise PermanentError(f"a handler must return a mapping, not {type(wrapped.value).__name__}")
    return wrapped


def result_json(value: Mapping[str, Any]) -> str:
    """Return a result as JSON text; raises PermanentError as :func:`encode_result` does."""
    try:
        text = json.dumps(dict(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except BaseException as error:  # a result may run code of its own while it is read
        raise PermanentError(f"the result can't be written as JSON: {said(error)}") from error
    if len(text) > MAX_RESULT_CHARACTERS:
        raise PermanentError(
            f"the result has {len(text)} characters, at most {MAX_RESULT_CHARACTERS} are allowed"
        )
    return text
