"""One step over one card: ask the gateway for each kind, then hand on everything, or nothing."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from poller.domain.model import Account, Answer, GatewayFailure, Polled, StepResult
from servicekit.clock import Clock
from servicekit.ids import uuid7

KINDS = ("traffic", "network", "realname")
_ENDS_THE_STEP = frozenset({"throttled", "unreachable", "timeout", "refused"})
"""Failures of the gateway rather than of one question: asking for the next kind would only add to them."""


class Gateway(Protocol):
    """One account's gateway."""

    @property
    def kinds(self) -> frozenset[str]:
        """What it can be asked."""
        ...

    async def fetch(self, kind: str, card_id: str) -> Answer:
        """Ask for one fact. Raises GatewayFailure."""
        ...


class PollSpan(Protocol):
    """The trace of one poll."""

    @property
    def traceparent(self) -> str:
        """Its W3C context, "" when nothing is traced."""
        ...

    def note(self, polled: Polled) -> None:
        """Write down what the poll gave."""
        ...


class Tracing(Protocol):
    """Where traces go."""

    def poll(self, account_id: str, card_id: str, kind: str) -> AbstractContextManager[PollSpan]:
        """Begin the trace of one poll: it has no parent."""
        ...


class Delivery(Protocol):
    """Where observations and records go."""

    async def observations(self, items: Sequence[Polled]) -> None:
        """Hand on observations so that they will be applied. Raises ServiceError when nobody took them."""
        ...

    async def records(self, items: Sequence[Polled]) -> None:
        """Hand on failures and empty answers so that they will be kept. Raises ServiceError when nobody took them."""
        ...


class Stepper:
    """Runs steps.

    Args:
        delivery: takes what a step gave.
        tracing: begins a trace per poll.
        clock: dates failures.
    """

    def __init__(self, delivery: Delivery, tracing: Tracing, clock: Clock) -> None:
        self._delivery = delivery
        self._tracing = tracing
        self._clock = clock

    async def ask(self, account: Account, gateway: Gateway, card_id: str) -> StepResult:
        """Ask for every kind that the gateway knows, in order; a failure of the gateway itself ends the asking."""
        result = StepResult()
        for kind in KINDS:
            if kind not in gateway.kinds:
                continue
            failure = await self._poll(account, gateway, card_id, kind=kind, result=result)
            if failure is not None and failure.kind in _ENDS_THE_STEP:
                break
        return result

    async def deliver(self, result: StepResult) -> None:
        """Hand on what a step gave. Raises ServiceError when it can't be: then the step has to be made again."""
        if result.others:
            await self._delivery.records(result.others)
        if result.observations:
            await self._delivery.observations(result.observations)

    async def _poll(
        self, account: Account, gateway: Gateway, card_id: str, *, kind: str, result: StepResult
    ) -> GatewayFailure | None:
        failure: GatewayFailure | None = None
        with self._tracing.poll(account.account_id, card_id, kind) as span:
            try:
                answer = await gateway.fetch(kind, card_id)
            except GatewayFailure as error:
                failure = error
                answer = Answer(
                    observed_at=self._clock.now(), reading=None, raw=error.raw, latency_ms=error.latency_ms
                )
            polled = Polled(
                observation_id=uuid7(answer.observed_at),
                observed_at=answer.observed_at,
                card_id=card_id,
                account_id=account.account_id,
                kind=kind,
                reading=answer.reading,
                raw=answer.raw,
                error="" if failure is None else failure.kind,
                latency_ms=answer.latency_ms,
                traceparent=span.traceparent,
            )
            span.note(polled)
        result.polled.append(polled)
        if failure is not None:
            result.failures.append(failure)
        return failure
