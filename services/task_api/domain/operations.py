"""What operators do besides channels: tenants, routes, and changes to tasks by hand; every change is audited."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from servicekit.errors import Reason, ServiceError
from task_api.domain.channels import Channels
from task_api.domain.low_water import LowWater
from task_api.domain.model import LedgerEntry, Route, Tenant
from task_api.domain.ports import Wakes
from task_api.domain.tasks import Tasks, not_found
from task_api.domain.turns import ORDINARY_WEIGHT

_PAGE = 200
_DEFAULT_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Which of a tenant's tasks to change; empty texts and None stand for all."""

    tenant: str
    channel: str = ""
    kind: str = ""
    created_from: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes something, and why."""

    actor: str
    reason: str


class OperationStore(Protocol):
    """Keeps what operators set, each with its audit row."""

    async def save_tenant(self, tenant: Tenant, change: Change) -> Tenant:
        """Store a tenant's weight and quota."""
        ...

    async def tenants(self) -> Sequence[Tenant]:
        """Return the tenants that have a weight or a quota."""
        ...

    async def ledger(self, tenant: str, *, before: int | None, limit: int) -> Sequence[LedgerEntry]:
        """Return a tenant's entries, newest first."""
        ...

    async def save_route(self, route: Route, change: Change) -> Route | None:
        """Store a route; None when the version given is not the stored one."""
        ...

    async def delete_route(self, model: str, change: Change) -> bool:
        """Forget a route; False when there was none."""
        ...

    async def dispatch(self, task_id: UUID, change: Change) -> str | None:
        """Put a waiting task first; answer its channel, or None when it does not wait."""
        ...

    async def find(self, tasks: TaskFilter, *, ended: bool, after: UUID | None, limit: int) -> Sequence[UUID]:
        """Return tasks, oldest first: failed and cancelled ones, or those that have not ended."""
        ...

    async def audit(self, action: str, subject: str, after: str, change: Change) -> None:
        """Write an audit row."""
        ...


class Operations:
    """The use-cases of ``OperatorService`` besides channels."""

    def __init__(
        self, store: OperationStore, channels: Channels, tasks: Tasks, wakes: Wakes, low_water: LowWater
    ) -> None:
        self._store = store
        self._channels = channels
        self._tasks = tasks
        self._wakes = wakes
        self._low_water = low_water

    async def save_tenant(self, tenant: Tenant, change: Change) -> Tenant:
        """Set a tenant's weight and quota; they count for tasks created from now on."""
        return await self._store.save_tenant(tenant, change)

    async def tenants(self) -> Sequence[Tenant]:
        """Return the tenants that have a weight or a quota."""
        return await self._store.tenants()

    async def ledger(self, tenant: str, *, before: int | None, limit: int) -> Sequence[LedgerEntry]:
        """Return a tenant's ledger, newest first."""
        return await self._store.ledger(tenant, before=before, limit=limit)

    async def save_route(self, route: Route, change: Change) -> Route:
        """Let a model's tasks run in a channel; raises ServiceError NOT_FOUND or STALE_VERSION."""
        await self._channels.get(route.channel)
        saved = await self._store.save_route(route, change)
        if saved is None:
            raise ServiceError(
                Reason.STALE_VERSION,
                f"the route of {route.model} is not version {route.version} any more: read it again",
                metadata={"model": route.model},
            )
        self._channels.read_again()
        return saved

    async def delete_route(self, model: str, change: Change) -> None:
        """Forget a model's route; raises ServiceError NOT_FOUND."""
        if not await self._store.delete_route(model, change):
            raise ServiceError(Reason.NOT_FOUND, f"there is no route for {model}", metadata={"model": model})
        self._channels.read_again()

    async def routes(self) -> Sequence[Route]:
        """Return every route."""
        return await self._channels.routes()

    async def dispatch(self, task_id: UUID, change: Change) -> None:
        """Put a waiting task before all others of its channel; raises ServiceError WRONG_STATE or NOT_FOUND."""
        channel = await self._store.dispatch(task_id, change)
        if channel is None:
            if not await self._tasks.exists(task_id):
                raise not_found(str(task_id))
            raise ServiceError(Reason.WRONG_STATE, "the task does not wait: it runs or has ended")
        self._low_water.forget(channel)
        self._wakes.ready([channel])

    async def cancel_tasks(self, tasks: TaskFilter, limit: int, change: Change) -> tuple[int, bool]:
        """Cancel what a filter finds; answer how many, and whether there may be more."""
        changed = 0
        async for task_id in self._found(tasks, limit, ended=False):
            await self._tasks.cancel(tasks.tenant, task_id, change.reason)
            changed += 1
        await self._note("tasks.cancel", tasks, changed, change)
        return changed, changed >= (limit or _DEFAULT_LIMIT)

    async def retry_tasks(self, tasks: TaskFilter, limit: int, change: Change) -> tuple[int, bool]:
        """Run what a filter finds again; answer how many, and whether there may be more."""
        changed, seen = 0, 0
        async for task_id in self._found(tasks, limit, ended=True):
            seen += 1
            try:
                await self._tasks.retry(tasks.tenant, task_id)
            except ServiceError as error:
                if error.reason is not Reason.WRONG_STATE:
                    raise
                continue  # its deadline has passed, or somebody else was quicker
            changed += 1
        await self._note("tasks.retry", tasks, changed, change)
        return changed, seen >= (limit or _DEFAULT_LIMIT)

    async def _found(self, tasks: TaskFilter, limit: int, *, ended: bool) -> AsyncIterator[UUID]:
        left, after = limit or _DEFAULT_LIMIT, None
        while left:
            page = await self._store.find(tasks, ended=ended, after=after, limit=min(left, _PAGE))
            for task_id in page:
                yield task_id
            if len(page) < min(left, _PAGE):
                return
            left, after = left - len(page), page[-1]

    async def _note(self, action: str, tasks: TaskFilter, changed: int, change: Change) -> None:
        told = {**asdict(tasks), "changed_count": changed}
        await self._store.audit(action, tasks.tenant, json.dumps(told, default=str), change)


def tenant_of(name: str, weight: int, quota: int | None) -> Tenant:
    """Return a tenant as asked for; a weight of 0 stands for everybody's."""
    return Tenant(name=name, weight=weight or ORDINARY_WEIGHT, quota=quota)
