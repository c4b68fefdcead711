"""What the use-cases need from outside."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol, TypeAlias
from uuid import UUID

from task_api.domain.model import (
    Attempt,
    AuditRow,
    ChannelLoad,
    ChannelPolicy,
    Claimed,
    ClaimKey,
    ClaimRequest,
    Completion,
    DueTask,
    EndedClaim,
    Failure,
    NewTask,
    ProgressReport,
    Renewed,
    Route,
    Slot,
    Task,
    TaskState,
    TextPiece,
    Unstored,
)

Place: TypeAlias = Callable[[Sequence[DueTask]], Awaitable[Sequence[int]]]
"""Gives tasks their places in their channels' queues."""


class TaskStore(Protocol):
    """Keeps tasks. Every method may raise ServiceError DEPENDENCY_AWAY or TIME_IS_UP."""

    async def create(self, tasks: Sequence[NewTask]) -> Sequence[Task | Unstored]:
        """Store tasks by one statement; answer each as stored, or why it is not."""
        ...

    async def find_keys(
        self, keys: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], tuple[UUID, bytes]]:
        """Return the tasks of idempotency keys, given as (tenant, key), and the hashes of their requests."""
        ...

    async def exists(self, task_id: UUID) -> bool:
        """Tell whether there is a task, whoever's it is."""
        ...

    async def get(self, task_id: UUID, tenant: str) -> Task | None:
        """Return a task of this tenant."""
        ...

    async def list(
        self, tenant: str, *, channel: str, state: TaskState | None, before: UUID | None, limit: int
    ) -> Sequence[Task]:
        """Return tasks, newest first; an empty channel and no state mean all."""
        ...

    async def attempts(self, task_id: UUID, tenant: str) -> Sequence[Attempt]:
        """Return the ended attempts in order."""
        ...

    async def cancel_waiting(self, task_id: UUID, tenant: str, reason: str) -> bool:
        """End a task that waits; False when it does not."""
        ...

    async def cancel_running(self, task_id: UUID, tenant: str, reason: str) -> bool:
        """Ask a running task to stop; False when it does not run."""
        ...

    async def retry(self, task_id: UUID, tenant: str, run_order: int) -> str | Unstored | None:
        """Let an ended task wait again; answer its channel, OVER_QUOTA, or None when it can't be run again."""
        ...


class ClaimStore(Protocol):
    """Claims and the writes that they fence: each answers per claim, and None for one that is not held."""

    async def count_ready(self, channel: str, request: ClaimRequest, limit: int, start: int) -> int:
        """Count what could be claimed now from a place of the queue, up to a limit."""
        ...

    async def claim(
        self,
        channel: str,
        request: ClaimRequest,
        owner: str,
        *,
        slots: Sequence[Slot],
        lease: timedelta,
        start: int,
    ) -> Sequence[Claimed]:
        """Claim at most one task per slot, looking from a place of the queue."""
        ...

    async def renew(self, keys: Sequence[ClaimKey], lease: timedelta) -> Sequence[Renewed | None]:
        """Extend claims."""
        ...

    async def expire(self, keys: Sequence[ClaimKey]) -> None:
        """End claims whose slots are gone; the sweeper does the rest."""
        ...

    async def append_text(self, pieces: Sequence[TextPiece]) -> Sequence[bool | None]:
        """Store text events; False for one that came after a greater one and is not stored."""
        ...

    async def report_progress(self, reports: Sequence[ProgressReport]) -> Sequence[bool | None]:
        """Store progress."""
        ...

    async def complete(self, completions: Sequence[Completion]) -> Sequence[EndedClaim | None]:
        """End claims well."""
        ...

    async def fail(self, failures: Sequence[Failure]) -> Sequence[EndedClaim | None]:
        """End claims badly."""
        ...

    async def release(self, keys: Sequence[ClaimKey]) -> Sequence[EndedClaim | None]:
        """Hand claims back."""
        ...

    async def own_ends(self, keys: Sequence[ClaimKey]) -> Sequence[str | None]:
        """Return the outcomes that the claims' own workers have written before."""
        ...

    async def sweep(self, limit: int) -> Sequence[EndedClaim]:
        """End expired claims."""
        ...

    async def promote(self, limit: int, place: Place) -> Sequence[tuple[str, int]]:
        """Make due tasks runnable at the places that ``place`` gives them; answer channel and place of each."""
        ...

    async def expire_deadlines(self, limit: int) -> Sequence[UUID]:
        """End waiting tasks whose deadline has passed."""
        ...


class ChannelStore(Protocol):
    """Keeps channels and the audit."""

    async def read(self) -> Sequence[ChannelPolicy]:
        """Return every channel."""
        ...

    async def routes(self) -> Sequence[Route]:
        """Return every route."""
        ...

    async def loads(self) -> dict[str, ChannelLoad]:
        """Return what waits and runs, by channel."""
        ...

    async def backlog(self, name: str, limit: int) -> int:
        """Count the waiting tasks of a channel, up to a limit."""
        ...

    async def oldest(self, name: str) -> timedelta:
        """Return how long the oldest runnable task has waited."""
        ...

    async def save(self, policy: ChannelPolicy, *, actor: str, reason: str) -> ChannelPolicy:
        """Store a channel and its audit row."""
        ...

    async def pause(self, name: str, *, paused: bool, actor: str, reason: str) -> ChannelPolicy | None:
        """Pause or resume a channel and write its audit row; None when there is none of that name."""
        ...

    async def audit(self, *, before: int | None, limit: int) -> Sequence[AuditRow]:
        """Return audit rows, newest first."""
        ...


class Slots(Protocol):
    """The slots of the pool ``tasks``. Every method may raise ServiceError; each call ends within seconds."""

    async def acquire(self, channel: str, *, count: int, owner: str) -> tuple[Sequence[Slot], timedelta]:
        """Take up to ``count`` slots; answer them, and when to try again for the rest."""
        ...

    async def renew(self, tokens: Sequence[str]) -> set[str]:
        """Extend slots; answer the tokens that are lost."""
        ...

    async def release(self, tokens: Sequence[str]) -> None:
        """Give slots back."""
        ...

    async def save_limit(self, channel: str, concurrency: int, *, actor: str, reason: str) -> None:
        """Store the limit of a channel."""
        ...


class Wakes(Protocol):
    """Hints for this and other processes; they never block, and may be lost."""

    def ready(self, channels: Sequence[str]) -> None:
        """Say that tasks or slots may be free in channels."""
        ...

    def text(self, task_ids: Sequence[UUID]) -> None:
        """Say that tasks have new events."""
        ...
