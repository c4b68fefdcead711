"""Runs the Lua scripts of many callers in few round trips, each script once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis.exceptions

from servicekit.coalescing import Coalescer
from servicekit.redis import Argument, Redis, Script
from servicekit.resources import load_store_file

_PACKAGE = "lease_service"
_MOST_PER_TRIP = 64
_LANES = 2


class _Call(NamedTuple):
    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]


class ScriptRunner:
    """Sends calls that are ready at the same time as one pipeline.

    Nothing is sent twice, except a script that the server did not know and therefore did not run.
    """

    def __init__(self, server: Redis) -> None:
        self._server = server
        self._calls: Coalescer[_Call, Any] = Coalescer(self._send, max_items=_MOST_PER_TRIP, lanes=_LANES)

    async def run(self, script: Script, *, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a script and return its answer; raises what the driver raises, at the latest after the socket timeout."""
        answer = (await self._calls.submit([_Call(script, keys, arguments)]))[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def drain(self) -> None:
        """Wait until every call has its answer."""
        await self._calls.drain()

    async def _send(self, calls: Sequence[_Call]) -> Sequence[Any]:
        try:
            answers = await self._execute(calls)
            unknown = [
                place
                for place, answer in enumerate(answers)
                if isinstance(answer, redis.exceptions.NoScriptError)
            ]
            if unknown:
                for script in {calls[place].script for place in unknown}:
                    await script.load(self._server)
                again = await self._execute([calls[place] for place in unknown])
                for place, answer in zip(unknown, again, strict=True):
                    answers[place] = answer
        except (redis.exceptions.RedisError, OSError) as error:
            return [error] * len(calls)
        return answers

    async def _execute(self, calls: Sequence[_Call]) -> list[Any]:
        async with self._server.client.pipeline(transaction=False) as pipeline:
            for script, keys, arguments in calls:
                script.queue(pipeline, keys=keys, args=arguments)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
            return answers


def load_script(name: str) -> Script:
    """Return ``store/lua/<name>.lua`` with the prelude before it."""
    parts = [load_store_file(_PACKAGE, "lua", part) for part in ("prelude", name)]
    return Script.from_text("\n".join(parts))
