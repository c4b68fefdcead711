"""Leases in Redis: every operation is one script; see ``lua/``."""

import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lease_service.domain.model import (
    AcquireResult,
    Attempt,
    AuditEvent,
    Claim,
    DispatchResult,
    Holder,
    Outcome,
    Policy,
    PoolPolicies,
    PoolState,
    QueuedRequest,
    ReapResult,
    ReleaseResult,
    Renewal,
    RenewItem,
    RenewResult,
    ScopeState,
    Wait,
    Waiter,
)
from lease_service.domain.tickets import KEY_BYTES, Ticket, Tickets
from lease_service.store import redis_metrics
from lease_service.store.keys import EVERYBODY, PROBE_POOL, audit_key, pool_keys, wake_channel
from lease_service.store.redis_scripts import ScriptRunner, load_script, unconfirmed
from lease_service.store.redis_watch import ServerWatch
from servicekit.errors import Reason, ServiceError
from servicekit.ids import new_token
from servicekit.redis import Redis

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOMBSTONES_PER_CALL = 1000
_EXPLAINED_LEASES = 10_000
_WAITERS_PER_CALL = 500


class RedisSlots:
    """The leases of every pool. A Component: refuses to start on a server that evicts keys.

    Args:
        server: where the leases live; greets with `identify` or `trust` of :mod:`lease_service.store.redis_identity`.
        tickets: signs what holders show after a failover; by default only this process knows its tickets again.
        confirm_within: how long a grant waits until a replica has it; None: not at all.
    """

    name = "slots"

    def __init__(
        self, server: Redis, *, tickets: Tickets | None = None, confirm_within: timedelta | None = None
    ) -> None:
        self.channel = wake_channel(new_token())
        """Where this process is told of grants to its waiters."""
        self._server = server
        self._tickets = tickets or Tickets(secrets.token_bytes(KEY_BYTES))
        self._runner = ScriptRunner(server, confirm_within=confirm_within)
        self._watch = ServerWatch(server)
        self._unfit = ""
        self._acquire = load_script("acquire")
        self._renew = load_script("renew")
        self._restore = load_script("restore")
        self._release = load_script("release")
        self._force_release = load_script("force_release")
        self._set_policy = load_script("set_policy")
        self._reap = load_script("reap")
        self._dispatch = load_script("dispatch")
        self._recount = load_script("recount")
        self._held = load_script("held")
        self._holders = load_script("holders")
        self._waiters = load_script("waiters")
        self._explain = load_script("explain")
        self._audit_trim = load_script("audit_trim")
        self._probe = load_script("probe")

    async def start(self) -> None:
        """Make sure that the server keeps what it is given.

        Raises:
            ServiceError: WRONG_STATE when it may evict keys; says what to do.
        """
        await self.health_check()
        if self._unfit:
            raise ServiceError(Reason.WRONG_STATE, self._unfit)

    async def drain(self) -> None:
        """Do nothing: whoever calls waits for the answer."""

    async def stop(self) -> None:
        """Do nothing: the client is closed by its owner."""

    async def health_check(self) -> bool:
        """Run a script that writes, and look at the eviction policy; False stops new grants until it is right again."""
        await self._runner.run(self._probe, keys=pool_keys(PROBE_POOL), arguments=[])
        self._unfit = await self._watch.problem()
        return not self._unfit

    async def acquire(
        self, claim: Claim, tokens: Sequence[str], policies: PoolPolicies, wait: Wait | None = None
    ) -> AcquireResult:
        """Take one lease per token, in order, until a scope is full; with ``wait`` the others wait.

        Raises:
            ServiceError: DEPENDENCY_AWAY when the server may evict keys, or no replica confirmed: nothing is held
                then. Driver errors leave the outcome unknown.
        """
        if self._unfit:
            raise ServiceError(Reason.DEPENDENCY_AWAY, self._unfit)
        arguments: list[str | int] = [
            claim.owner,
            claim.job,
            claim.weight,
            claim.ttl_ms,
            max(policies.longest_ttl_ms, claim.ttl_ms),
            "" if wait is None else self._wait_terms(claim, wait, policies),
            "" if wait is None else wait.tenant,
            self.channel,
            len(claim.scopes),
        ]
        for scope in claim.scopes:
            arguments += [scope, pack_policy(policies.scopes[scope])]
        answer, confirmed = await self._runner.run_confirmed(
            self._acquire, keys=pool_keys(claim.pool), arguments=[*arguments, *tokens], wrote=_granted
        )
        if not confirmed:
            granted = zip(tokens, answer[5::5], strict=True)
            await self.release(claim.pool, [token for token, code in granted if code == Outcome.GRANTED])
            raise unconfirmed()
        scope, used, capacity, retry_after, now = answer[:5]
        attempts = [
            Attempt(
                token,
                Outcome(code),
                fence,
                remaining,
                weight,
                self._ticket(claim.pool, token, now + remaining, record),
            )
            for token, (code, fence, remaining, weight, record) in zip(
                tokens, _rows(answer[5:], 5), strict=True
            )
        ]
        result = AcquireResult(attempts, scope.decode(), used, capacity, retry_after)
        redis_metrics.note_acquired(claim.pool, result)
        return result

    async def renew(self, pool: str, items: Sequence[RenewItem]) -> list[RenewResult]:
        """Extend leases; one result per item, in order. One that the server has lost comes back with its ticket."""
        arguments = [value for item in items for value in (item.token, item.ttl_ms, item.weight)]
        answer = await self._run(self._renew, pool, arguments)
        results = self._renewed(pool, items, answer)
        forgotten = [place for place, result in enumerate(results) if result.outcome is Renewal.FORGOTTEN]
        if forgotten:
            restored = await self._bring_back(pool, [items[place] for place in forgotten])
            for place, result in zip(forgotten, restored, strict=True):
                results[place] = result
            redis_metrics.note_restored(pool, restored)
        redis_metrics.note_renewed(pool, results)
        return results

    async def _bring_back(self, pool: str, items: Sequence[RenewItem]) -> list[RenewResult]:
        arguments: list[str | int | bytes] = []
        for item in items:
            ticket = self._tickets.read(pool, item.token, item.ticket)
            if ticket is not None:
                arguments += [item.token, ticket.until_ms, ticket.record, item.ttl_ms, item.weight]
        found: dict[str, RenewResult] = {}
        if arguments:
            shown = [RenewItem(str(token)) for token in arguments[::5]]
            answer = await self._run(self._restore, pool, arguments)
            found = {result.token: result for result in self._renewed(pool, shown, answer)}
        return [found.get(item.token, RenewResult(item.token, Renewal.LOST, 0, 0)) for item in items]

    def _renewed(self, pool: str, items: Sequence[RenewItem], answer: Sequence[Any]) -> list[RenewResult]:
        now = answer[0]
        return [
            RenewResult(
                item.token,
                Renewal(code),
                remaining,
                weight,
                self._ticket(pool, item.token, now + remaining, record),
            )
            for item, (code, remaining, weight, record) in zip(items, _rows(answer[1:], 4), strict=True)
        ]

    def _ticket(self, pool: str, token: str, until_ms: int, record: bytes) -> bytes:
        return self._tickets.sign(pool, token, Ticket(until_ms, record)) if record else b""

    async def release(self, pool: str, tokens: Sequence[str]) -> list[ReleaseResult]:
        """Give leases back; one result per token, in order."""
        answer = await self._run(self._release, pool, tokens)
        results = [
            ReleaseResult(token, freed=freed == 1, late=freed < 0, held_ms=held)
            for token, (freed, held) in zip(tokens, _rows(answer, 2), strict=True)
        ]
        redis_metrics.note_released(pool, results)
        return results

    async def force_release(self, pool: str, token: str, note: str) -> tuple[bool, int]:
        """Take a lease away; returns whether it was live, and the pool's fence afterwards."""
        freed, fence = await self._run(self._force_release, pool, [token, note, EVERYBODY])
        return freed == 1, fence

    async def push_policies(self, pool: str, policies: Sequence[Policy], *, pool_is_new: bool) -> None:
        """Make Redis know policies, so that no replica can use older ones."""
        packed = [text for policy in policies for text in (policy.scope, pack_policy(policy))]
        await self._run(self._set_policy, pool, ["1" if pool_is_new else "0", *packed])

    async def reap(self, pool: str) -> ReapResult:
        """Remove some expired leases and tombstones."""
        reaped, more, held = await self._run(self._reap, pool, [_TOMBSTONES_PER_CALL])
        return ReapResult(reaped, more == 1, held)

    async def dispatch(self, pool: str, longest_ttl_ms: int = 0) -> DispatchResult:
        """Grant to waiters what is free; says when there will be something to do again.

        Args:
            pool: which one.
            longest_ttl_ms: as in its policies; without it the call can't end a relearning.
        """
        reaped, more, held, next_ms, waiting = await self._run(self._dispatch, pool, [longest_ttl_ms])
        return DispatchResult(reaped, more == 1, held, next_ms, waiting)

    async def recount(self, pool: str, most: int) -> int:
        """Repair used weights that differ from the leases; returns how many, or -1 for a pool larger than ``most``."""
        repaired: int = await self._run(self._recount, pool, [most])
        return repaired

    async def holders(self, pool: str, after: tuple[int, str], page_size: int) -> list[Holder]:
        """Return a page of live leases after (expires_ms, token), soonest to expire first."""
        rows = await self._run(self._holders, pool, [after[0], after[1], page_size])
        return [_holder(row) for row in rows]

    async def held(self, pool: str, tokens: Sequence[str]) -> list[int]:
        """Return how many milliseconds each lease lives yet; 0 for none."""
        left: list[int] = await self._run(self._held, pool, tokens)
        return left

    async def waiters(self, pool: str) -> list[QueuedRequest]:
        """Return everybody who waits, in no order; reads a few hundred at a time."""
        found: list[QueuedRequest] = []
        mark: bytes = b""
        while rows := await self._run(self._waiters, pool, [mark, _WAITERS_PER_CALL]):
            found += [_queued_request(row) for row in rows]
            mark = rows[-1][0]
        return found

    async def explain(self, policies: PoolPolicies) -> PoolState:
        """Return what a pool holds; holders are counted among the 10,000 leases that expire first."""
        scopes = sorted(policies.scopes)
        answer = await self._run(self._explain, policies.pool, [_EXPLAINED_LEASES - 1, *scopes])
        states = [
            _scope_state(policies.scopes[scope], row)
            for scope, row in zip(scopes, _rows(answer[2:], 5), strict=True)
        ]
        return PoolState(states, answer[0], answer[1])

    async def read_audit(self, pool: str, most: int) -> list[AuditEvent]:
        """Return the oldest audit events of a pool that are not stored elsewhere yet."""
        entries: Any = await self._server.client.xrange(audit_key(pool), count=most)
        return [_audit_event(pool, identifier, fields) for identifier, fields in entries]

    async def pools_with_audit(self, pools: Sequence[str]) -> list[str]:
        """Return those pools that have audit events to store."""
        async with self._server.client.pipeline(transaction=False) as pipeline:
            for pool in pools:
                pipeline.exists(audit_key(pool))
            present = await pipeline.execute()
        return [pool for pool, there in zip(pools, present, strict=True) if there]

    async def trim_audit(self, pool: str, last_id: str) -> int:
        """Forget audit events up to an id, and the stream once it is empty; returns how many are left."""
        left: int = await self._run(self._audit_trim, pool, [last_id])
        return left

    def _wait_terms(self, claim: Claim, wait: Wait, policies: PoolPolicies) -> str:
        rules = [policies.scopes[scope] for scope in claim.scopes]
        share = min(rule.share_of(wait.tenant) for rule in rules)
        most = min(rule.max_waiting for rule in rules)
        most_of_tenant = min(rule.max_waiting_per_tenant for rule in rules)
        exact = int(not self._server.is_cluster)  # a node of a cluster counts its own listeners alone
        return f"{wait.wait_ms} {wait.priority} {share} {exact} {most} {most_of_tenant} {wait.place}"

    async def _run(self, script: Any, pool: str, arguments: Sequence[str | int | bytes]) -> Any:
        return await self._runner.run(script, keys=pool_keys(pool), arguments=arguments)


def _granted(answer: Sequence[Any]) -> bool:
    return Outcome.GRANTED in answer[5::5]


def pack_policy(policy: Policy) -> str:
    """Write a policy as the scripts read it."""
    return f"{policy.version} {policy.capacity} {policy.max_lifetime_ms} {int(policy.paused)}"


def _rows(values: Sequence[Any], width: int) -> list[tuple[Any, ...]]:
    return [tuple(values[start : start + width]) for start in range(0, len(values), width)]


def _holder(row: Sequence[Any]) -> Holder:
    return Holder(
        token=row[0].decode(),
        expires_ms=row[1],
        remaining_ms=row[2],
        age_ms=row[3],
        fence=row[4],
        owner=row[5].decode(),
        job=row[6].decode(),
        weight=row[7],
        scopes=row[8].decode().split(","),
    )


def _queued_request(row: Sequence[Any]) -> QueuedRequest:
    _, token, tenant, tag, place, shape, owner, job, age, remaining, cost = row
    priority, weight, scopes = shape.decode().split(" ")
    waiter = Waiter(
        token=token.decode(),
        owner=owner.decode(),
        job=job.decode(),
        tenant=tenant.decode(),
        priority=int(priority),
        scopes=scopes.split(","),
        weight=int(weight),
        age_ms=age,
        remaining_ms=remaining,
    )
    return QueuedRequest(waiter, int(tag), int(place), cost)


def _scope_state(policy: Policy, row: Sequence[Any]) -> ScopeState:
    packed, used, holders, next_expiry, waiting_count = row
    version, capacity, _, paused = (int(part) for part in packed.split()[:4]) if packed else (0, 0, 0, 0)
    newer = version > policy.version
    return ScopeState(
        scope=policy.scope,
        capacity=capacity if newer else policy.capacity,
        used=used,
        holder_count=holders,
        next_expiry_ms=next_expiry,
        paused=bool(paused) if newer else policy.paused,
        waiting_count=waiting_count,
    )


def _audit_event(pool: str, identifier: bytes, fields: dict[bytes, bytes]) -> AuditEvent:
    kind, token, fence, weight, scopes, owner, job, note = json.loads(fields[b"e"].decode(errors="replace"))
    return AuditEvent(
        pool=pool,
        event_id=identifier.decode(),
        kind=kind,
        at=_EPOCH + timedelta(milliseconds=int(identifier.split(b"-")[0])),
        token=token,
        fence=int(fence),
        weight=int(weight),
        scopes=tuple(filter(None, scopes.split(","))),
        owner=owner,
        job=job,
        note=note,
    )
