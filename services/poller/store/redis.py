"""The schedule, the accounts' rests, roles, the pause and card facts in Redis."""

from collections.abc import Sequence
from datetime import timedelta

from poller.domain.model import CardFacts, Claim, ClaimedCard, Completion
from poller.store import keys
from servicekit.redis import Redis, Script

_PACKAGE = "poller"
_MOST_REALIGNED = 1000
_SCAN_COUNT = 1000
_FACT_FIELDS = ("account_id", "lifecycle", "polling_enabled")


class RedisSchedule:
    """When each card of each account is due, shared by all replicas; Redis time is the only clock.

    Every call ends within the socket timeout and raises what the driver raises.

    Args:
        redis: the process's client.
        claim_lease: how long a claimed card stays away.
        downtime: the time without claims after which late cards are spread over their interval again.
    """

    def __init__(self, redis: Redis, *, claim_lease: timedelta, downtime: timedelta) -> None:
        self._client = redis.client
        self._claim_lease_ms = claim_lease // timedelta(milliseconds=1)
        self._downtime_ms = downtime // timedelta(milliseconds=1)
        self._claim = Script(_PACKAGE, "claim", redis)
        self._complete = Script(_PACKAGE, "complete", redis)
        self._schedule = Script(_PACKAGE, "schedule", redis)
        self._hasten = Script(_PACKAGE, "hasten", redis)
        self._block = Script(_PACKAGE, "block", redis)

    async def claim(self, account_id: str, interval_ms: int, limit: int) -> Claim:
        """Claim at most ``limit`` due cards; with 0 it only shows that the account is looked after."""
        answer = await self._claim(
            keys=[keys.due(account_id), keys.state(account_id)],
            args=[limit, self._claim_lease_ms, interval_ms, self._downtime_ms, _MOST_REALIGNED],
        )
        now_ms, blocked_ms, next_due_ms, realigned, lease_until_ms = answer[:5]
        pairs = zip(answer[5::2], answer[6::2], strict=True)
        return Claim(
            cards=[ClaimedCard(card.decode(), due_ms, lease_until_ms) for card, due_ms in pairs],
            now_ms=now_ms,
            blocked_ms=blocked_ms,
            next_due_ms=None if next_due_ms < 0 else next_due_ms,
            realigned=realigned,
        )

    async def complete(
        self, account_id: str, interval_ms: int, completions: Sequence[Completion]
    ) -> list[bool]:
        """End claims; False, in order, for each that was not held any more."""
        arguments: list[str | int] = [interval_ms]
        for item in completions:
            arguments += [
                item.card.card_id,
                item.card.lease_until_ms,
                item.what.value,
                item.instant_ms,
                item.published_ms,
            ]
        held = await self._complete(keys=[keys.due(account_id), keys.published(account_id)], args=arguments)
        return [bool(value) for value in held]

    async def add(self, account_id: str, interval_ms: int, card_ids: Sequence[str]) -> int:
        """Put cards on the schedule that are not on it, at their regular turns; returns how many were new or moved."""
        if not card_ids:
            return 0
        return int(
            await self._schedule(
                keys=[keys.due(account_id)], args=[interval_ms, self._claim_lease_ms, *card_ids]
            )
        )

    async def hasten(self, account_id: str, card_ids: Sequence[str]) -> int:
        """Make scheduled cards due now that are not claimed and not due soon anyway; returns how many that were."""
        if not card_ids:
            return 0
        names = [keys.due(account_id), keys.published(account_id)]
        return int(await self._hasten(keys=names, args=[self._claim_lease_ms, *card_ids]))

    async def keep_only(self, account_id: str, card_ids: set[str]) -> int:
        """Take every other card off the schedule; returns how many that were."""
        gone: list[bytes] = []
        async for card, _ in self._client.zscan_iter(keys.due(account_id), count=_SCAN_COUNT):
            if card.decode() not in card_ids:
                gone.append(card)
        for start in range(0, len(gone), _SCAN_COUNT):
            part = gone[start : start + _SCAN_COUNT]
            await self._client.zrem(keys.due(account_id), *part)
            await self._client.hdel(keys.published(account_id), *part)
        return len(gone)

    async def published(self, account_id: str, card_ids: Sequence[str]) -> list[int | None]:
        """Return when the last observation handed on of each card was made, Unix milliseconds."""
        if not card_ids:
            return []
        values = await self._client.hmget(keys.published(account_id), list(card_ids))
        return [None if value is None else int(value) for value in values]

    async def rest(self, account_id: str, duration: timedelta) -> None:
        """Let an account rest: no replica claims anything of it meanwhile; never shortens a rest."""
        await self._block(keys=[keys.state(account_id)], args=[max(0, duration // timedelta(milliseconds=1))])

    async def counts(self, account_id: str) -> tuple[int, int, int]:
        """Return cards on the schedule, cards whose due time has passed, and how late the latest is, milliseconds."""
        seconds, microseconds = await self._client.time()
        now_ms = seconds * 1000 + microseconds // 1000
        name = keys.due(account_id)
        async with self._client.pipeline(transaction=False) as pipeline:
            pipeline.zcard(name)
            pipeline.zcount(name, "-inf", now_ms)
            pipeline.zrange(name, 0, 0, withscores=True)
            total, due, first = await pipeline.execute()
        late_ms = max(0, now_ms - int(first[0][1])) if first else 0
        return int(total), int(due), late_ms


class RedisRoles:
    """Roles that one replica has at a time, who is there, and the pause.

    Args:
        redis: the process's client.
        owner: this replica's name.
    """

    def __init__(self, redis: Redis, owner: str) -> None:
        self._client = redis.client
        self._owner = owner
        self._lead = Script(_PACKAGE, "lead", redis)

    async def lead_backlog(self, duration: timedelta) -> bool:
        """Become or stay the replica that reads the brokers' backlog."""
        return await self._take(keys.LEADER, duration)

    async def take_sync_turn(self, duration: timedelta) -> bool:
        """Become or stay the replica that compares the schedule with the fleet."""
        return await self._take(keys.SYNC_TURN, duration)

    async def replica_count(self, alive: timedelta) -> int:
        """Say that this replica is there, and return how many were within ``alive``."""
        seconds, _ = await self._client.time()
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.zadd(keys.REPLICAS, {self._owner: seconds})
            pipeline.zremrangebyscore(keys.REPLICAS, "-inf", seconds - alive.total_seconds())
            pipeline.zcard(keys.REPLICAS)
            answers = await pipeline.execute()
        return max(1, int(answers[-1]))

    async def leave(self) -> None:
        """Say that this replica goes."""
        await self._client.zrem(keys.REPLICAS, self._owner)

    async def pause(self, reason: str, duration: timedelta) -> None:
        """Stop every replica from claiming, for that long."""
        await self._client.set(keys.PAUSED, reason, px=duration)

    async def unpause(self) -> bool:
        """Let every replica claim again; False when nothing was paused."""
        return bool(await self._client.delete(keys.PAUSED))

    async def pause_reason(self) -> str:
        """Return why nothing is claimed; empty when it is."""
        value = await self._client.get(keys.PAUSED)
        return "" if value is None else value.decode() if isinstance(value, bytes) else value

    async def _take(self, role: str, duration: timedelta) -> bool:
        answer = await self._lead(keys=[role], args=[self._owner, duration // timedelta(milliseconds=1)])
        return bool(answer)


class RedisFacts:
    """Card facts as ingest_service writes them; only read.

    Args:
        redis: the process's client.
    """

    def __init__(self, redis: Redis) -> None:
        self._client = redis.client

    async def read(self, card_ids: Sequence[str]) -> dict[str, CardFacts]:
        """Return the facts that are there, in one round trip."""
        async with self._client.pipeline(transaction=False) as pipeline:
            for card_id in card_ids:
                pipeline.hmget(keys.card(card_id), list(_FACT_FIELDS))
            rows = await pipeline.execute()
        return {
            card_id: CardFacts(
                card_id=card_id,
                account_id=account_id.decode(),
                lifecycle=(lifecycle or b"").decode(),
                polling_enabled=polling_enabled != b"0",
            )
            for card_id, (account_id, lifecycle, polling_enabled) in zip(card_ids, rows, strict=True)
            if account_id is not None
        }
