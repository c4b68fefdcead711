"""What workers do: claim under a slot, renew, write behind the fence, end."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from servicekit.clock import Clock
from servicekit.errors import Reason, ServiceError
from servicekit.ids import new_token
from task_api.domain.channels import Channels
from task_api.domain.json_text import JsonTextError, check_object, refuse_unstorable
from task_api.domain.low_water import BEGINNING, Looker, LowWater
from task_api.domain.model import (
    LOST,
    MAX_JSON_CHARACTERS,
    WRITTEN,
    Claimed,
    ClaimKey,
    ClaimRequest,
    Completion,
    DueTask,
    EndedClaim,
    Failure,
    ProgressReport,
    Renewal,
    TextPiece,
    WriteOutcome,
    WriteResult,
)
from task_api.domain.ports import ClaimStore, Slots, Wakes
from task_api.domain.signals import Signals
from task_api.domain.turns import Pair, Turns

_CLAIM_SECONDS = 5.0
_GREATEST_SEQ = 9_007_199_254_740_990

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """How long claims live and how often an idle claim call looks at the truth."""

    lease: timedelta = timedelta(seconds=45)
    poll: timedelta = timedelta(seconds=1)


class Claims:
    """The use-cases of ``WorkerService``.

    The slot comes before the claim: a full channel never holds a claimed task. A crash between the two costs one
    slot's life and never an oversold slot.
    """

    def __init__(
        self,
        store: ClaimStore,
        slots: Slots,
        channels: Channels,
        wakes: Wakes,
        *,
        turns: Turns,
        low_water: LowWater,
        ready: Signals[str],
        clock: Clock,
        limits: ClaimLimits,
        report: Callable[[str, str], None] = lambda _what, _problem: None,
    ) -> None:
        self._store = store
        self._slots = slots
        self._channels = channels
        self._wakes = wakes
        self._turns = turns
        self._low_water = low_water
        self._ready = ready
        self._clock = clock
        self._limits = limits
        self._report = report
        self._draining = False

    def stop_claiming(self) -> None:
        """Hand out nothing more and end the calls that wait."""
        self._draining = True
        self._ready.notify_all()

    async def claim(self, request: ClaimRequest, wait: timedelta) -> Sequence[Claimed]:
        """Claim tasks, waiting up to ``wait`` for the first; none is no error.

        A caller that gives up meanwhile leaves nothing claimed.
        """
        give_up_at = self._clock.monotonic() + wait.total_seconds()
        with self._ready.watch(request.channels) as watch:
            while not self._draining:
                watch.clear()
                claimed, retry_after = await self._claim_shielded(request)
                left = give_up_at - self._clock.monotonic()
                if claimed or left <= 0:
                    return claimed
                await watch.wait(min(left, self._pause(retry_after)))
        return []

    async def renew(self, keys: Sequence[ClaimKey]) -> Sequence[Renewal]:
        """Extend claims and their slots together; a claim whose slot is lost is lost."""
        rows = await self._store.renew(keys, self._limits.lease)
        lost_slots = await self._slots.renew([row.slot_token for row in rows if row is not None])
        orphans = [
            key
            for key, row in zip(keys, rows, strict=True)
            if row is not None and row.slot_token in lost_slots
        ]
        if orphans:
            await self._store.expire(orphans)
        return [
            Renewal(held=False)
            if row is None or row.slot_token in lost_slots
            else Renewal(held=True, remaining=row.remaining, cancel_requested=row.cancel_requested)
            for row in rows
        ]

    async def append_text(self, pieces: Sequence[TextPiece]) -> Sequence[WriteResult]:
        """Append text events; the same seq again is no error and no second event."""
        refused = {index: problem for index, piece in enumerate(pieces) if (problem := _text_problem(piece))}
        good = [piece for index, piece in enumerate(pieces) if index not in refused]
        stored = iter(await self._store.append_text(good))
        results = [
            WriteResult(WriteOutcome.REFUSED, refused[index]) if index in refused else _appended(next(stored))
            for index in range(len(pieces))
        ]
        self._wakes.text(
            _unique(
                piece.key.task_id for piece, result in zip(pieces, results, strict=True) if result is WRITTEN
            )
        )
        return results

    async def report_progress(self, reports: Sequence[ProgressReport]) -> Sequence[WriteResult]:
        """Store progress."""
        refused = {index: problem for index, item in enumerate(reports) if (problem := _report_problem(item))}
        good = [item for index, item in enumerate(reports) if index not in refused]
        stored_list = await self._store.report_progress(good)
        self._wakes.text(
            _unique(
                item.key.task_id
                for item, stored in zip(good, stored_list, strict=True)
                if stored and item.seq
            )
        )
        stored = iter(stored_list)
        return [
            WriteResult(WriteOutcome.REFUSED, refused[index])
            if index in refused
            else (WRITTEN if next(stored) else LOST)
            for index in range(len(reports))
        ]

    async def complete(self, completions: Sequence[Completion]) -> Sequence[WriteResult]:
        """End tasks well; a repeated completion of the same claim is no error."""
        refused = {
            index: problem
            for index, item in enumerate(completions)
            if (problem := _result_problem(item.result))
        }
        good = [item for index, item in enumerate(completions) if index not in refused]
        ended = iter(
            await self._finish([item.key for item in good], await self._store.complete(good), {"succeeded"})
        )
        return [
            WriteResult(WriteOutcome.REFUSED, refused[index]) if index in refused else next(ended)
            for index in range(len(completions))
        ]

    async def fail(self, failures: Sequence[Failure]) -> Sequence[WriteResult]:
        """End attempts badly; nothing that an error holds is refused."""
        ended = await self._store.fail(failures)
        return await self._finish([item.key for item in failures], ended, {"failed", "cancelled"})

    async def release(self, keys: Sequence[ClaimKey]) -> Sequence[WriteResult]:
        """Hand claims back; their attempts do not count."""
        ended = await self._store.release(keys)
        self._look_again(item for item in ended if item is not None)
        return await self._finish(keys, ended, {"released", "cancelled"})

    async def sweep(self, limit: int) -> int:
        """End expired claims; answer how many."""
        ended = await self._store.sweep(limit)
        self._look_again(ended)
        await self._let_go(ended)
        return len(ended)

    async def promote(self, limit: int) -> int:
        """Make due tasks runnable; answer how many."""
        promoted = await self._store.promote(limit, self._place_due)
        for channel, run_order in promoted:
            self._low_water.came(channel, run_order)
        self._wakes.ready(_unique(channel for channel, _ in promoted))
        return len(promoted)

    async def expire_deadlines(self, limit: int) -> int:
        """End waiting tasks whose deadline has passed; answer how many."""
        task_ids = await self._store.expire_deadlines(limit)
        self._wakes.text(task_ids)
        return len(task_ids)

    async def _place_due(self, due: Sequence[DueTask]) -> Sequence[int]:
        return await self._turns.place([(Pair(task.channel, task.tenant), task.priority) for task in due])

    def _pause(self, retry_after: timedelta) -> float:
        pause = self._limits.poll.total_seconds()
        if retry_after:
            pause = min(pause, max(retry_after.total_seconds(), 0.02))
        return pause * random.uniform(0.7, 1.3)  # noqa: S311 - spreads load

    async def _claim_shielded(self, request: ClaimRequest) -> tuple[list[Claimed], timedelta]:
        work = asyncio.ensure_future(self._claim_now(request))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._return_unwanted)
            raise

    def _return_unwanted(self, work: "asyncio.Future[tuple[list[Claimed], timedelta]]") -> None:
        if work.cancelled() or work.exception() is not None or not work.result()[0]:
            return
        keys = [claimed.key for claimed in work.result()[0]]
        returning = asyncio.ensure_future(self.release(keys))
        returning.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _claim_now(self, request: ClaimRequest) -> tuple[list[Claimed], timedelta]:
        claimed: list[Claimed] = []
        retry_after = timedelta()
        for channel in random.sample(request.channels, len(request.channels)):
            room = request.max_tasks - len(claimed)
            if room <= 0:
                break
            policy = await self._channels.find(channel)
            if policy is None or policy.paused:
                continue
            taken, again = await self._claim_channel(channel, request, room)
            claimed += taken
            retry_after = min(filter(None, (retry_after, again)), default=timedelta())
        return claimed, retry_after

    async def _claim_channel(
        self, channel: str, request: ClaimRequest, room: int
    ) -> tuple[Sequence[Claimed], timedelta]:
        looker = (channel, request.capability_key)
        start = self._low_water.start(looker)
        wanted = await self._store.count_ready(channel, request, room, start)
        if not wanted and start != BEGINNING:
            start = BEGINNING
            wanted = await self._store.count_ready(channel, request, room, start)
        if not wanted:
            return [], timedelta()
        slots, retry_after = await self._slots.acquire(channel, count=wanted, owner=request.worker)
        if not slots:
            return [], retry_after
        claimed: Sequence[Claimed] = []
        try:
            async with asyncio.timeout(_CLAIM_SECONDS):
                claimed = await self._store.claim(
                    channel, request, new_token(), slots=slots, lease=self._limits.lease, start=start
                )
        except TimeoutError:
            raise ServiceError(Reason.TIME_IS_UP, "the claim took too long") from None
        finally:
            used = {item.slot.token for item in claimed}
            await self._release_slots([slot.token for slot in slots if slot.token not in used])
        self._note_places(looker, start, claimed)
        return claimed, retry_after

    def _look_again(self, ended: Iterable[EndedClaim]) -> None:
        """Tasks that went back to their old places stand before the hint."""
        for channel in {item.channel for item in ended if not item.terminal}:
            self._low_water.forget(channel)

    def _note_places(self, looker: Looker, start: int, claimed: Sequence[Claimed]) -> None:
        if claimed:
            last = max(item.run_order for item in claimed)
            self._low_water.claimed(looker, start, last)
            self._turns.reached(looker[0], last)

    async def _finish(
        self, keys: Sequence[ClaimKey], ended: Sequence[EndedClaim | None], same_ends: set[str]
    ) -> Sequence[WriteResult]:
        await self._let_go([item for item in ended if item is not None])
        missing = [key for key, item in zip(keys, ended, strict=True) if item is None]
        if not missing:
            return [WRITTEN] * len(keys)
        earlier = dict(zip(missing, await self._store.own_ends(missing), strict=True))
        return [
            WRITTEN if item is not None or earlier.get(key) in same_ends else LOST
            for key, item in zip(keys, ended, strict=True)
        ]

    async def _let_go(self, ended: Sequence[EndedClaim]) -> None:
        """Free the slots of ended claims, then tell who waits for work or text; after the commit, never before."""
        if not ended:
            return
        self._wakes.text([item.key.task_id for item in ended if item.terminal])
        await self._release_slots(_unique(item.slot_token for item in ended))
        self._wakes.ready(_unique(item.channel for item in ended))

    async def _release_slots(self, tokens: Sequence[str]) -> None:
        if not tokens:
            return
        try:
            await self._slots.release(tokens)
        except ServiceError as error:
            self._report("slots were not released and run out by themselves", str(error))


def _unique(items: Iterable[Item]) -> list[Item]:
    return list(dict.fromkeys(items))


def _appended(stored: bool | None) -> WriteResult:  # noqa: FBT001 - one stored flag
    if stored is None:
        return LOST
    return (
        WRITTEN
        if stored
        else WriteResult(WriteOutcome.REFUSED, "a piece with a greater seq is stored already")
    )


def _text_problem(piece: TextPiece) -> str:
    if piece.seq > _GREATEST_SEQ:
        return f"seq must be at most {_GREATEST_SEQ}"
    return _unstorable(piece.text)


def _report_problem(report: ProgressReport) -> str:
    if report.seq > _GREATEST_SEQ:
        return f"seq must be at most {_GREATEST_SEQ}"
    return _unstorable(report.message)


def _unstorable(text: str) -> str:
    try:
        refuse_unstorable(text)
    except JsonTextError as error:
        return f"the text {error}"
    return ""


def _result_problem(result: str) -> str:
    try:
        check_object(result, most_characters=MAX_JSON_CHARACTERS)
    except JsonTextError as error:
        return f"the result {error}"
    return ""
