"""Looks after the servers between calls: may they evict, are they who they were, does their clock run evenly."""

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from lease_service.store.redis_identity import TRUSTED, identity_of
from servicekit.logs import get_logger
from servicekit.redis import NO_EVICTION, Redis
from servicekit.redis_wire import Wire
from servicekit.telemetry import Metric, counter

STEP_MS = 250.0
"""A smaller jump of a server's clock is not told apart from a slow answer."""

_EVICTION = re.compile(r"maxmemory_policy:(\S+)")

_log = get_logger(__name__)


class _Offset(NamedTuple):
    """Bounds of how far a server's clock is ahead of this machine's monotonic one, in milliseconds."""

    least: float
    most: float


class ServerWatch:
    """Asks every server a few questions with each health check.

    Args:
        server: the client whose wires carry identities.
        monotonic: seconds of this machine.
    """

    def __init__(self, server: Redis, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._monotonic = monotonic
        self._offsets: dict[str, _Offset] = {}

    async def problem(self) -> str:
        """Return why no slot may be granted, or ""; raises what the driver raises.

        A server that was demoted and promoted again kept its connections: scripts get its new identity from here on.
        """
        problem = ""
        for wire in await self._server.wires():
            answer = await wire.submit(("INFO", "server", "replication", "memory"))
            text = answer.decode() if isinstance(answer, bytes) else str(answer)
            identity = identity_of(text)
            if wire.facts not in (None, TRUSTED):
                wire.facts = identity.argument
            await self._look_at_clock(wire, identity.run_id)
            problem = problem or self._eviction_problem(text)
        return problem

    def _eviction_problem(self, text: str) -> str:
        found = _EVICTION.search(text)
        if found is None or found[1] == NO_EVICTION:
            return ""
        return (
            f"Redis at {self._server.address} may evict leases (maxmemory-policy is {found[1]}): "
            "set maxmemory-policy to noeviction; no slot is granted until then"
        )

    async def _look_at_clock(self, wire: Wire, run_id: str) -> None:
        sent_at = self._monotonic()
        seconds, microseconds = (int(part) for part in await wire.submit(("TIME",)))
        told = seconds * 1000 + microseconds / 1000
        now = _Offset(told - self._monotonic() * 1000, told - sent_at * 1000)
        before = self._offsets.get(run_id, now)
        step = max(now.least - before.most, before.least - now.most)
        if step > STEP_MS:
            counter(Metric.REDIS_CLOCK_STEPS).inc()
            _log.warning(
                "the clock of Redis has jumped: leases end that much earlier or later",
                milliseconds=round(step),
            )
        self._offsets = {**self._offsets, run_id: now}
