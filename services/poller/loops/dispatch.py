"""The dispatcher of one account: claims due cards, polls them inside the slots held, and ends their claims."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from poller.domain.facts import FactReader, FactsRead
from poller.domain.model import (
    Account,
    Claim,
    ClaimedCard,
    Completion,
    GatewayFailure,
    Next,
    StepResult,
)
from poller.domain.resting import Resting
from poller.domain.step import Gateway, Stepper
from poller.settings import StepSettings
from poller.store.redis import RedisSchedule
from servicekit.clock import Clock
from servicekit.coalescing import Coalescer
from servicekit.errors import Reason, ServiceError
from servicekit.failures import describe, service_error
from servicekit.logs import get_logger
from servicekit.metrics import Metric, counter, histogram
from sluicegate_client.slots import Slots, WeightedLease

_MOST_COMPLETIONS = 200
_LONGEST_WAIT_SECONDS = 1.0
_FAILED_ROUND_SECONDS = 1.0
_THROTTLED_RETRY_SECONDS = 1.0

_log = get_logger(__name__)


class PauseFlag(Protocol):
    """Whether nothing may be claimed."""

    async def pause_reason(self) -> str:
        """Return why nothing is claimed; empty when it is."""
        ...


class GatewaySource(Protocol):
    """Where gateways come from."""

    def gateway(self, account: Account) -> Gateway:
        """Return an account's gateway. Raises ServiceError when it can't be made."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What every account's dispatcher shares."""

    schedule: RedisSchedule
    slots: Slots
    stepper: Stepper
    facts: FactReader
    pause: PauseFlag
    gateways: GatewaySource
    settings: StepSettings
    clock: Clock


class AccountPoller:
    """Polls the cards of one account.

    Cards are claimed a little ahead of the slots held; each is polled in a task of its own that first takes one unit of
    the account's lease, so that never more gateway calls run than units are held, and a lost lease cancels them.

    Args:
        account: which account; replaced by :meth:`change`.
        tools: what is shared.
    """

    def __init__(self, account: Account, tools: Tools) -> None:
        self.account = account
        self.success_count = 0
        self.failure_count = 0
        self._tools = tools
        self._lease: WeightedLease = tools.slots.weighted(
            account.pool,
            scopes=("poll",),
            units=account.poll_limit,
            ttl=tools.settings.slot_ttl,
            job="poll",
        )
        self._resting = Resting(tools.clock)
        self._blocked = ""
        self._outstanding: set[asyncio.Task[None]] = set()
        self._room_again = asyncio.Event()
        self._completing: Coalescer[Completion, bool] = Coalescer(self._complete, max_items=_MOST_COMPLETIONS)
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    @property
    def held_slots(self) -> int:
        """Units of scope ``poll`` held now."""
        return self._lease.held

    @property
    def in_flight_count(self) -> int:
        """Steps that hold a unit now."""
        return self._lease.in_use

    @property
    def blocked_reason(self) -> str:
        """Why nothing is claimed now; empty when something may be."""
        if self._blocked or self._lease.held > 0:
            return self._blocked
        return "no slots" if self._lease.problem is None else f"no slots: {self._lease.problem.message}"

    def change(self, account: Account, replica_count: int) -> None:
        """Go on with changed settings, and with this replica's share of the slots."""
        self.account = account
        share = -(-account.poll_limit // replica_count)
        if share != self._lease.wanted:
            self._lease.resize(share)

    async def start(self) -> None:
        """Begin to take slots and claim cards."""
        await self._lease.start()
        self._task = asyncio.create_task(self._run(), name=f"poll {self.account.account_id}")

    async def drain(self) -> None:
        """Claim nothing new, finish steps that hold a slot, give the other claims and the slots back."""
        self._stopping = True
        self._room_again.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._outstanding:
            await asyncio.wait(set(self._outstanding))
        await self._completing.drain()
        await self._lease.drain()

    async def stop(self) -> None:
        """Let go of everything at once; claims are left to their expiry."""
        self._stopping = True
        tasks = {*self._outstanding, *([self._task] if self._task is not None else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._lease.stop()

    async def poll_now(self, card_id: str) -> StepResult:
        """Ask the gateway about one card outside the schedule, inside the slots.

        Raises:
            ServiceError: SLOT_UNAVAILABLE when no unit is free in time, WRONG_STATE when the gateway can't be made.
        """
        gateway = self._tools.gateways.gateway(self.account)
        wait = self._tools.settings.manual_wait
        try:
            async with asyncio.timeout(wait.total_seconds()) as limit, self._lease.unit():
                limit.reschedule(
                    asyncio.get_running_loop().time() + self._tools.settings.step_timeout.total_seconds()
                )
                result = await self._tools.stepper.ask(self.account, gateway, card_id)
        except TimeoutError:
            raise ServiceError(
                Reason.SLOT_UNAVAILABLE,
                f"no slot of {self.account.pool} was free within {wait.total_seconds():g} s",
                retry_after=wait,
            ) from None
        await self._rest_after(result)
        return result

    async def _run(self) -> None:
        while not self._stopping:
            try:
                pause = await self._round()
            except Exception as error:  # noqa: BLE001 - a loop shell: one failed round must not end the polling
                self._note_failed_round(error)
                pause = _FAILED_ROUND_SECONDS
            await self._wait(pause)

    async def _round(self) -> float:
        """Claim what there is room for and start it; returns how long to wait unless room comes earlier."""
        self._room_again.clear()
        reason = await self._tools.pause.pause_reason()
        if reason:
            self._blocked = f"paused: {reason}"
            return _LONGEST_WAIT_SECONDS
        room = self._room()
        claim = await self._tools.schedule.claim(self.account.account_id, self.account.interval_ms, room)
        self._note_claim(claim)
        if claim.cards:
            await self._start_steps(claim)
        if claim.blocked_ms:
            return min(claim.blocked_ms / 1000, _LONGEST_WAIT_SECONDS)
        if len(claim.cards) >= room or claim.next_due_ms is None:
            return _LONGEST_WAIT_SECONDS
        return min(max((claim.next_due_ms - claim.now_ms) / 1000, 0.0), _LONGEST_WAIT_SECONDS)

    def _room(self) -> int:
        held = self._lease.held
        ahead = max(1, held // 2) if held else 0
        return max(0, held + ahead - len(self._outstanding))

    def _note_claim(self, claim: Claim) -> None:
        self._blocked = (self._resting.reason or "resting") if claim.blocked_ms else ""
        if claim.realigned:
            _log.info(
                "late cards were spread over their interval",
                account_id=self.account.account_id,
                cards=claim.realigned,
            )
        for card in claim.cards:
            histogram(Metric.POLL_LATENESS_SECONDS).observe(max(0, claim.now_ms - card.due_ms) / 1000)

    async def _start_steps(self, claim: Claim) -> None:
        try:
            gateway = self._tools.gateways.gateway(self.account)
            facts = await self._tools.facts.read([card.card_id for card in claim.cards])
        except BaseException:
            await asyncio.shield(self._retry_all(claim.cards))
            raise
        for card in claim.cards:
            task = asyncio.create_task(self._begin(card, gateway, facts))
            self._outstanding.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._outstanding.discard(task)
        if len(self._outstanding) <= self._lease.held:
            self._room_again.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a step failed", account_id=self.account.account_id, exc_info=error)

    async def _begin(self, card: ClaimedCard, gateway: Gateway, facts: FactsRead) -> None:
        found = facts.found.get(card.card_id)
        if card.card_id in facts.undecided:
            await self._end(Completion(card, Next.IN, self._retry_ms()))
        elif found is None or not found.is_polled_for(self.account.account_id):
            await self._end(Completion(card, Next.REMOVE))
        else:
            await self._poll(card, gateway)

    async def _poll(self, card: ClaimedCard, gateway: Gateway) -> None:
        """Make one step over a card and end its claim, whatever happened."""
        completion = Completion(card, Next.IN, self._retry_ms())
        try:
            async with asyncio.timeout(self._tools.settings.step_timeout.total_seconds()):
                completion = await self._step(card, gateway)
        except TimeoutError:
            self._note_failed_step(card, "the step took too long")
        except ServiceError as error:
            self._note_failed_step(card, describe(error))
            if error.reason is Reason.INVALID_FIELD:  # the same again would be refused again
                completion = Completion(card, Next.TURN)
        finally:
            await self._end(completion)

    async def _step(self, card: ClaimedCard, gateway: Gateway) -> Completion:
        async with self._lease.unit():
            if self._stopping or self._resting.now:
                return Completion(card, Next.AT, card.due_ms)
            result = await self._tools.stepper.ask(self.account, gateway, card.card_id)
        await self._tools.stepper.deliver(result)
        rest = await self._rest_after(result)
        if result.failures:
            self.failure_count += 1
        else:
            self.success_count += 1
        if rest is not None and _is_throttled(result.failures):
            delay = rest.total_seconds() + _THROTTLED_RETRY_SECONDS
            return Completion(card, Next.IN, int(delay * 1000), result.published_ms)
        return Completion(card, Next.TURN, 0, result.published_ms)

    async def _rest_after(self, result: StepResult) -> timedelta | None:
        rest = self._resting.after(result)
        if rest is not None:
            _log.warning(
                "the account rests",
                account_id=self.account.account_id,
                seconds=rest.total_seconds(),
                reason=self._resting.reason,
            )
            await self._tools.schedule.rest(self.account.account_id, rest)
        return rest

    async def _end(self, completion: Completion) -> None:
        try:
            await self._completing.submit([completion])
        except Exception as error:  # noqa: BLE001 - the claim ends by itself when its lease is over
            _log.warning(
                "a claim could not be ended; its card comes back when its lease is over",
                card_id=completion.card.card_id,
                problem=describe(error),
            )

    async def _retry_all(self, cards: Sequence[ClaimedCard]) -> None:
        for card in cards:
            await self._end(Completion(card, Next.IN, self._retry_ms()))

    async def _complete(self, completions: Sequence[Completion]) -> list[bool]:
        return await self._tools.schedule.complete(
            self.account.account_id, self.account.interval_ms, completions
        )

    def _retry_ms(self) -> int:
        retry = min(self._tools.settings.retry_after, self.account.poll_interval)
        return retry // timedelta(milliseconds=1)

    def _note_failed_step(self, card: ClaimedCard, problem: str) -> None:
        self.failure_count += 1
        counter(Metric.POLLS).labels(
            account=self.account.account_id, kind="step", outcome="undelivered"
        ).inc()
        _log.warning(
            "a step has to be made again",
            account_id=self.account.account_id,
            card_id=card.card_id,
            problem=problem,
        )

    def _note_failed_round(self, error: Exception) -> None:
        known = service_error(error)
        self._blocked = known.message if known is not None else "a bug: see the log"
        if known is None:
            _log.exception("a round of polling failed", account_id=self.account.account_id)
        else:
            _log.warning(
                "a round of polling failed", account_id=self.account.account_id, problem=describe(known)
            )

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._room_again.wait()


def _is_throttled(failures: Sequence[GatewayFailure]) -> bool:
    return any(failure.kind == "throttled" for failure in failures)
