"""Runs the Lua scripts of many callers over one shared connection per server, each script once."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import redis.exceptions

from servicekit.coalescing import Coalescer
from servicekit.errors import Reason, ServiceError
from servicekit.redis import Argument, Redis, Script
from servicekit.redis_wire import Wire
from servicekit.resources import load_store_file
from servicekit.telemetry import Metric, counter

_PACKAGE = "lease_service"
_MOST_PER_WAIT = 10_000
_WITHOUT_QUEUE = frozenset({"audit_trim", "held", "holders", "probe", "recount", "restore"})


class ScriptRunner:
    """Sends the calls of one turn of the event loop in one write.

    Nothing is sent twice, except a script that the server did not run: it did not know it, or does not own its keys.

    Args:
        server: where scripts run; its wires carry the server's identity as their facts.
        confirm_within: how long :meth:`run_confirmed` waits for a replica, in whole milliseconds; None: not at all.
    """

    def __init__(self, server: Redis, *, confirm_within: timedelta | None = None) -> None:
        self._server = server
        self._confirmations: WeakKeyDictionary[Wire, Coalescer[None, bool]] = WeakKeyDictionary()
        self._confirm_ms = 0 if confirm_within is None else round(confirm_within.total_seconds() * 1000)

    async def run(self, script: Script, *, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a script and return its answer; raises what the driver raises, at the latest after the socket timeout.

        Every script gets the identity of the server it runs on as its last argument.
        """
        return (await self._run(script, keys, arguments))[0]

    async def run_confirmed(
        self,
        script: Script,
        *,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        wrote: Callable[[Any], bool],
    ) -> tuple[Any, bool]:
        """Run a script and return its answer, and whether a replica has what it wrote.

        Without ``confirm_within`` that is taken for granted. One WAIT serves all who ask while another runs; it holds
        up whatever else is sent meanwhile.
        """
        answer, wire = await self._run(script, keys, arguments)
        if not self._confirm_ms or not wrote(answer):
            return answer, True
        confirmations = self._confirmations.get(wire)
        if confirmations is None:
            confirmations = Coalescer(partial(self._wait, wire), max_items=_MOST_PER_WAIT)
            self._confirmations[wire] = confirmations
        try:
            return answer, (await confirmations.submit([None]))[0]
        except redis.exceptions.RedisError:
            return answer, False

    async def _wait(self, wire: Wire, asked: Sequence[None]) -> list[bool]:
        reached = await wire.submit(("WAIT", 1, self._confirm_ms))
        return [reached >= 1] * len(asked)

    async def _run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> tuple[Any, Wire]:
        wire = await self._server.wire(keys[0])
        try:
            return await _send(wire, script, keys, arguments), wire
        except redis.exceptions.RedisError as error:
            again = await self._mend(wire, script, keys, error)
            if again is None:
                raise
        return await _send(again, script, keys, arguments), again

    async def _mend(
        self, wire: Wire, script: Script, keys: Sequence[str], error: redis.exceptions.RedisError
    ) -> Wire | None:
        """Make a second attempt possible where the first one certainly did not run; None where it may have."""
        counter(Metric.SCRIPT_ERRORS).labels(_kind(error)).inc()
        if isinstance(error, redis.exceptions.NoScriptError):
            await wire.submit(("SCRIPT", "LOAD", script.text))
            return wire
        if isinstance(error, redis.exceptions.MovedError):
            await self._server.moved()
            return await self._server.wire(keys[0])
        if isinstance(error, redis.exceptions.ReadOnlyError):
            wire.close()  # it was demoted: the next connection asks who is the primary now
        return None


async def _send(wire: Wire, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
    return await wire.submit(("EVALSHA", script.sha, len(keys), *keys, *arguments, wire.facts or ""))


def load_script(name: str) -> Script:
    """Return ``store/lua/<name>.lua`` with what it shares with others before it."""
    shared = ("prelude",) if name in _WITHOUT_QUEUE else ("prelude", "queue")
    parts = [load_store_file(_PACKAGE, "lua", part) for part in (*shared, name)]
    return Script.from_text("\n".join(parts))


def unconfirmed() -> ServiceError:
    """Return what a caller is told whose grant no replica has confirmed."""
    return ServiceError(
        Reason.DEPENDENCY_AWAY, "no replica of Redis confirmed the grant in time: it is given back"
    )


def _kind(error: redis.exceptions.RedisError) -> str:
    return type(error).__name__.removesuffix("Error").lower()
