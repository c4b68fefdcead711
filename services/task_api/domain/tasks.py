"""What clients do with tasks once they are stored: read, cancel, run again."""

from collections.abc import Sequence
from uuid import UUID

from servicekit.errors import Reason, ServiceError
from task_api.domain.creation import over_quota, refuse_unstorable_field
from task_api.domain.low_water import LowWater
from task_api.domain.model import Attempt, Task, TaskState, Unstored
from task_api.domain.ports import TaskStore, Wakes
from task_api.domain.turns import Pair, Turns

_CANCEL_ROUNDS = 3
_DEFAULT_PAGE = 50


class Tasks:
    """The use-cases of ``TaskService`` on stored tasks."""

    def __init__(self, store: TaskStore, wakes: Wakes, *, turns: Turns, low_water: LowWater) -> None:
        self._store = store
        self._wakes = wakes
        self._turns = turns
        self._low_water = low_water

    async def exists(self, task_id: UUID) -> bool:
        """Tell whether there is a task, whoever's it is."""
        return await self._store.exists(task_id)

    async def get(self, tenant: str, task_id: UUID) -> Task:
        """Return a task; raises ServiceError NOT_FOUND, also for another tenant's."""
        task = await self._store.get(task_id, tenant)
        if task is None:
            raise not_found(str(task_id))
        return task

    async def list(
        self, tenant: str, *, channel: str, state: TaskState | None, before: UUID | None, limit: int
    ) -> Sequence[Task]:
        """Return a page of tasks, newest first; a limit of 0 means 50."""
        return await self._store.list(
            tenant, channel=channel, state=state, before=before, limit=limit or _DEFAULT_PAGE
        )

    async def attempts(self, tenant: str, task_id: UUID) -> Sequence[Attempt]:
        """Return the ended attempts of a task; raises ServiceError NOT_FOUND."""
        await self.get(tenant, task_id)
        return await self._store.attempts(task_id, tenant)

    async def cancel(self, tenant: str, task_id: UUID, reason: str) -> Task:
        """End a waiting task at once and ask a running one to stop; an ended one stays as it is.

        Raises:
            ServiceError: NOT_FOUND, INVALID_FIELD.
        """
        refuse_unstorable_field("reason", reason)
        for _ in range(_CANCEL_ROUNDS):  # a task may move between waiting and running meanwhile
            if await self._store.cancel_waiting(task_id, tenant, reason):
                self._wakes.text([task_id])
                break
            if await self._store.cancel_running(task_id, tenant, reason):
                break
            task = await self.get(tenant, task_id)
            if task.finished_at is not None:
                return task
        return await self.get(tenant, task_id)

    async def retry(self, tenant: str, task_id: UUID) -> Task:
        """Run a failed or cancelled task again; raises ServiceError NOT_FOUND, WRONG_STATE or QUOTA_EXHAUSTED."""
        task = await self.get(tenant, task_id)
        [run_order] = await self._turns.place([(Pair(task.channel, tenant), task.priority)])
        channel = await self._store.retry(task_id, tenant, run_order)
        if channel is Unstored.OVER_QUOTA:
            raise over_quota(tenant)
        task = await self.get(tenant, task_id)
        if channel is None:
            raise ServiceError(
                Reason.WRONG_STATE,
                f"the task is {task.state.value}: only failed and cancelled tasks whose deadline has not passed "
                "can be run again",
                metadata={"state": task.state.value},
            )
        self._low_water.came(task.channel, run_order)
        self._wakes.ready([task.channel])
        return task


def not_found(task_id: str) -> ServiceError:
    """Describe a task that does not exist for this caller."""
    return ServiceError(Reason.NOT_FOUND, f"there is no task {task_id}", metadata={"task_id": task_id})


def parse_task_id(text: str) -> UUID:
    """Return the id in a text; what is no id belongs to no task: raises ServiceError NOT_FOUND."""
    try:
        return UUID(text)
    except ValueError:
        raise not_found(text[:64]) from None
