"""Gives every channel its limit in lease_service when it has none yet."""

from task_api.clients import WORKERS_SCOPE, TaskSlots, channel_scope
from task_api.domain.ports import ChannelStore

_ACTOR = "task_api"
_REASON = "no limit was stored"


class PolicySeeder:
    """Stores missing limits; a limit that is there is never changed.

    Args:
        worker_limit: how many tasks may run at once, all channels together, until somebody sets it.
    """

    def __init__(self, channels: ChannelStore, slots: TaskSlots, *, worker_limit: int) -> None:
        self._channels = channels
        self._slots = slots
        self._worker_limit = worker_limit

    async def run_once(self) -> None:
        """Store what is missing."""
        known = await self._slots.stored_scopes()
        if WORKERS_SCOPE not in known:
            await self._slots.save_worker_limit(self._worker_limit, actor=_ACTOR, reason=_REASON)
        for policy in await self._channels.read():
            if channel_scope(policy.name) not in known:
                await self._slots.save_limit(policy.name, policy.concurrency, actor=_ACTOR, reason=_REASON)
