"""What a handler sees of the task that it runs."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sluicegate_client.task_errors import PermanentError
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


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A handler's result that carries more than a JSON object.

    Attributes:
        value: the JSON object.
        export: set by the export worker alone: the pointer that is stored with the completion.
    """

    value: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    export: ExportPointer | None = None


class TaskContext:
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
    ) -> None:
        self._claimed = claimed
        self._report = report
        self.text = text
        self.stop_reason: StopReason | None = None
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
    except (TypeError, ValueError, RecursionError) as error:
        raise PermanentError(f"the result can't be written as JSON: {error}") from error
    if len(text) > MAX_RESULT_CHARACTERS:
        raise PermanentError(
            f"the result has {len(text)} characters, at most {MAX_RESULT_CHARACTERS} are allowed"
        )
    return text
