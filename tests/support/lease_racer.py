"""A process that holds slots in many tasks at once and notes when; run by the race tests, killed at any moment.

Every line of its file is one event: `+ id weight monotonic` when work begins, `- id weight monotonic` when it ends.
"""

import asyncio
import random
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from servicekit.errors import ServiceError
from sluicegate_client.slots import Slots

POOL = "race"
SCOPES = {"a": 5, "b": 3}
TTL = timedelta(seconds=1)
TASKS = 8


async def main(address: str, seconds: float, path: Path) -> None:
    slots = Slots(address, owner=path.stem)
    ends_at = time.monotonic() + seconds
    with path.open("a", buffering=1, encoding="utf-8") as notes:
        await asyncio.gather(
            *(race(slots, ends_at, notes, f"{path.stem}-{number}") for number in range(TASKS))
        )
    await slots.drain()
    await slots.stop()


async def race(slots: Slots, ends_at: float, notes: TextIO, name: str) -> None:
    for number in range(1_000_000):
        if time.monotonic() >= ends_at:
            return
        work = asyncio.create_task(hold(slots, notes, f"{name}-{number}"))
        if random.random() < 0.15:
            await asyncio.sleep(random.uniform(0, 0.03))
            work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()


async def hold(slots: Slots, notes: TextIO, identity: str) -> None:
    weight = random.choice((1, 1, 2))
    scopes = random.choice((["a"], ["b"], ["a", "b"]))
    try:
        async with slots.hold(POOL, scopes=scopes, weight=weight, ttl=TTL, wait=timedelta(seconds=1)):
            notes.write(f"+ {identity} {weight} {','.join(scopes)} {time.monotonic():.6f}\n")
            try:
                await asyncio.sleep(random.choice((0, 0.005, 0.02, 0.3)))
            finally:
                notes.write(f"- {identity} {weight} {','.join(scopes)} {time.monotonic():.6f}\n")
    except ServiceError:
        return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])))
