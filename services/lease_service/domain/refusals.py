"""Why a request holds nothing, in words and as a typed error."""

from datetime import timedelta

from lease_service.domain.model import AcquireResult, Claim, Outcome
from servicekit.errors import Reason, ServiceError, invalid_field

_SHORTEST_RETRY_MS = 50
_LONGEST_RETRY_MS = 2000
_PAUSED_RETRY = timedelta(seconds=2)

CALLERS_FAULT = frozenset({Outcome.SPENT, Outcome.REUSED, Outcome.TOO_WIDE})
"""Outcomes that waiting does not change."""


def refusal(claim: Claim, outcome: Outcome, result: AcquireResult) -> ServiceError:
    """Say why a token holds nothing: SLOT_UNAVAILABLE, BACKLOG_FULL, PAUSED, INVALID_FIELD, KEY_REUSED, SLOT_LOST."""
    if outcome in CALLERS_FAULT:
        return _fault(outcome, result)
    if outcome is Outcome.PAUSED:
        return ServiceError(
            Reason.PAUSED,
            f"pool {claim.pool} is paused",
            retry_after=_PAUSED_RETRY,
            metadata={"pool": claim.pool},
        )
    if outcome is Outcome.RELEARNING:
        return ServiceError(
            Reason.SLOT_UNAVAILABLE,
            f"pool {claim.pool} has lost its leases and waits {result.retry_after_ms} ms "
            "until none can be held any more",
            retry_after=timedelta(milliseconds=max(result.retry_after_ms, _SHORTEST_RETRY_MS)),
            metadata={"pool": claim.pool, "cause": "relearning"},
        )
    return _full(claim.pool, outcome, result)


def _full(pool: str, outcome: Outcome, result: AcquireResult) -> ServiceError:
    scope = result.limiting_scope
    reason, message, cause = {
        Outcome.BACKLOG_FULL: (Reason.BACKLOG_FULL, f"too many requests wait in pool {pool}", {}),
        Outcome.WAIT_OVER: (
            Reason.SLOT_UNAVAILABLE,
            f"waited in vain for scope {scope} of pool {pool}",
            {"cause": "wait_over"},
        ),
    }.get(
        outcome,
        (
            Reason.SLOT_UNAVAILABLE,
            f"scope {scope} of pool {pool} is full: {result.used} of {result.capacity} in use",
            {},
        ),
    )
    facts = {"pool": pool, "scope": scope, "used": str(result.used), "capacity": str(result.capacity)}
    return ServiceError(
        reason,
        message,
        retry_after=timedelta(
            milliseconds=min(max(result.retry_after_ms, _SHORTEST_RETRY_MS), _LONGEST_RETRY_MS)
        ),
        metadata={**facts, **cause},
    )


def _fault(outcome: Outcome, result: AcquireResult) -> ServiceError:
    if outcome is Outcome.SPENT:
        return ServiceError(Reason.SLOT_LOST, "this token was released or has expired: use a fresh one")
    if outcome is Outcome.REUSED:
        return ServiceError(Reason.KEY_REUSED, "this token is another owner's: use a fresh one")
    return invalid_field("weight", f"above the capacity {result.capacity} of scope {result.limiting_scope}")
