"""Channels: what operators have set, read through a short memory, and the cap on what may wait."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta

from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError, invalid_field
from task_api.domain.model import AuditRow, Channel, ChannelLoad, ChannelPolicy, Route
from task_api.domain.ports import ChannelStore, Slots, Wakes

POLICY_SECONDS = 2.0
"""A change reaches every process within this time."""
BACKLOG_SECONDS = 1.0
"""How long a count of waiting tasks is used; a full channel is counted again before a task is refused."""
_READ_SECONDS = 3.0
_FULL_RETRY = timedelta(seconds=1)


class Channels:
    """Reads and changes channels.

    The cap on waiting tasks counts this process's own additions exactly; another process's become visible with the
    next count, so together they may exceed the cap by what they take in within a second.
    """

    def __init__(self, store: ChannelStore, slots: Slots, wakes: Wakes, *, clock: Clock) -> None:
        self._store = store
        self._slots = slots
        self._wakes = wakes
        self._clock = clock
        self._policies: dict[str, ChannelPolicy] = {}
        self._routes: dict[str, str] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._backlogs: dict[str, tuple[float, int]] = {}
        self._admitted: Counter[str] = Counter()
        self._ages: dict[str, tuple[float, timedelta]] = {}

    async def find(self, name: str) -> ChannelPolicy | None:
        """Return a channel's policy, at most 2 s old; an unread policy is an error, never a default."""
        await self._refresh()
        return self._policies.get(name)

    async def get(self, name: str) -> ChannelPolicy:
        """Return a channel's policy; raises ServiceError NOT_FOUND when there is none."""
        policy = await self.find(name)
        if policy is None:
            raise ServiceError(Reason.NOT_FOUND, f"there is no channel {name}", metadata={"channel": name})
        return policy

    async def routed(self, model: str) -> ChannelPolicy:
        """Return the policy of the channel that a model's tasks run in; raises ServiceError NOT_FOUND."""
        await self._refresh()
        if model not in self._routes:
            raise ServiceError(Reason.NOT_FOUND, f"there is no route for {model}", metadata={"model": model})
        return await self.get(self._routes[model])

    async def routes(self) -> Sequence[Route]:
        """Return every route as stored now."""
        return await self._store.routes()

    def read_again(self) -> None:
        """Read channels and routes before they are used next."""
        self._read_at = None

    async def admit(self, policy: ChannelPolicy) -> None:
        """Count one more waiting task until it is ``settled``; raises ServiceError BACKLOG_FULL over a cap."""
        now = self._clock.monotonic()
        counted_at, count = self._backlogs.get(policy.name, (-BACKLOG_SECONDS, 0))
        if policy.max_age:
            await self._refuse_old(policy, now)
        if now - counted_at >= BACKLOG_SECONDS or count >= policy.max_backlog:
            stored = await self._store.backlog(policy.name, policy.max_backlog)
            count, counted_at = stored + self._admitted[policy.name], now
        if count >= policy.max_backlog:
            self._backlogs[policy.name] = (counted_at, count)
            raise ServiceError(
                Reason.BACKLOG_FULL,
                f"channel {policy.name} holds {policy.max_backlog} waiting tasks, no more are taken",
                retry_after=_FULL_RETRY,
                metadata={"channel": policy.name, "max_backlog": str(policy.max_backlog)},
            )
        self._backlogs[policy.name] = (counted_at, count + 1)
        self._admitted[policy.name] += 1

    def settled(self, names: Iterable[str]) -> None:
        """Say that tasks which were admitted to channels are stored, or will not be."""
        self._admitted.subtract(names)

    async def _refuse_old(self, policy: ChannelPolicy, now: float) -> None:
        seen_at, age = self._ages.get(policy.name, (-BACKLOG_SECONDS, timedelta()))
        if now - seen_at >= BACKLOG_SECONDS:
            age = await self._store.oldest(policy.name)
            self._ages[policy.name] = (now, age)
        if age >= policy.max_age:
            raise ServiceError(
                Reason.BACKLOG_FULL,
                f"a task of channel {policy.name} has waited for {age.total_seconds():.1f} s, no more are taken until "
                f"none has waited for {policy.max_age.total_seconds():g} s",
                retry_after=_FULL_RETRY,
                metadata={
                    "channel": policy.name,
                    "max_age_ms": str(policy.max_age // timedelta(milliseconds=1)),
                },
            )

    async def list(self) -> Sequence[Channel]:
        """Return every channel with its load, by name."""
        policies = await self._store.read()
        loads = await self._store.loads()
        return [Channel(policy, loads.get(policy.name, ChannelLoad())) for policy in policies]

    async def save(self, policy: ChannelPolicy, *, actor: str, reason: str) -> ChannelPolicy:
        """Create or change a channel; its limit is stored as the slot policy first."""
        if policy.max_backlog < 1 or policy.max_attempts < 1:
            raise invalid_field("channel", "max_backlog and max_attempts must be at least 1")
        await self._slots.save_limit(policy.name, policy.concurrency, actor=actor, reason=reason)
        saved = await self._store.save(policy, actor=actor, reason=reason)
        self._remember(saved)
        return saved

    async def pause(self, name: str, *, paused: bool, actor: str, reason: str) -> ChannelPolicy:
        """Stop or allow new attempts; raises ServiceError NOT_FOUND when there is no such channel."""
        saved = await self._store.pause(name, paused=paused, actor=actor, reason=reason)
        if saved is None:
            raise ServiceError(Reason.NOT_FOUND, f"there is no channel {name}", metadata={"channel": name})
        self._remember(saved)
        return saved

    async def audit(self, *, before: int | None, limit: int) -> Sequence[AuditRow]:
        """Return audit rows, newest first."""
        return await self._store.audit(before=before, limit=limit)

    def _remember(self, policy: ChannelPolicy) -> None:
        self._policies[policy.name] = policy
        self._read_at = None
        self._wakes.ready([policy.name])

    async def _refresh(self) -> None:
        if self._fresh():
            return
        async with self._reading:
            if self._fresh():
                return
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    policies = await self._store.read()
                    routes = await self._store.routes()
            except TimeoutError:
                raise ServiceError(Reason.DEPENDENCY_AWAY, "the channels can't be read in time") from None
            self._policies = {policy.name: policy for policy in policies}
            self._routes = {route.model: route.channel for route in routes}
            self._read_at = self._clock.monotonic()

    def _fresh(self) -> bool:
        return self._read_at is not None and self._clock.monotonic() - self._read_at < POLICY_SECONDS
