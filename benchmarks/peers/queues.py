"""One contest of task queues: enqueue, drain without work, and how long a task waits for its handler to start.

Every entrant's handler writes the moment at which its task was sent and at which it started to a file; rates and waits
come from there. What a worker takes to come up is not counted.
"""

import asyncio
import os
import signal
import statistics
import struct
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.environments import environment

PACKAGES = {
    "procrastinate": ["procrastinate>=3", "psycopg[binary]"],
    "pgqueuer": ["pgqueuer[asyncpg]", "uvloop"],
    "awa": ["awa-pg"],
    "dramatiq": ["dramatiq[redis]"],
    "celery": ["celery[redis]"],
    "taskiq": ["taskiq", "taskiq-redis"],
    "saq": ["saq[redis]", "typing_extensions"],
}
VARIANTS = ("default", "tuned")
MARK = struct.Struct("dd")
MOST_SECONDS = 300.0
SCRIPT = str(Path(__file__).with_name("task_peer.py"))
Produce = Callable[[int], Awaitable[float]]
Hook = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Entrant:
    """One queue in one setting."""

    name: str
    enqueue: Produce
    trickle: Produce
    work: Sequence[str]


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured."""

    enqueued: float
    drained: float
    wait_p50: float
    wait_p99: float


async def contest(
    entrant: Entrant,
    folder: Path,
    variables: Mapping[str, str],
    *,
    tasks: int,
    waits: int,
    before_drain: Hook,
) -> Figures:
    marks = folder / f"marks-{entrant.name.replace(' ', '-')}"
    seconds = await entrant.enqueue(tasks)
    await before_drain()
    environ = {**os.environ, **variables, "MARKS": str(marks)}
    worker = await asyncio.create_subprocess_exec(
        *entrant.work, env=environ, start_new_session=True, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        drained = sorted(started for _, started in await marked(marks, tasks, worker))
        await entrant.trickle(waits)
        pairs = (await marked(marks, tasks + waits, worker))[tasks:]
    finally:
        await end(worker)
    took = sorted(started - sent for sent, started in pairs)
    return Figures(
        tasks / seconds,
        (len(drained) - 1) / (drained[-1] - drained[0]),
        statistics.median(took),
        took[min(len(took) - 1, len(took) * 99 // 100)],
    )


async def marked(marks: Path, count: int, worker: Process) -> list[tuple[float, float]]:
    """Wait until so many handlers have started."""
    until = time.monotonic() + MOST_SECONDS
    while size_of(marks) < count * MARK.size:
        if worker.returncode is not None or time.monotonic() > until:
            raise RuntimeError("the worker ended, or took too long")
        await asyncio.sleep(0.02)
    return read_marks(marks)


def size_of(marks: Path) -> int:
    return marks.stat().st_size if marks.exists() else 0


def read_marks(marks: Path) -> list[tuple[float, float]]:
    return [(sent, started) for sent, started in MARK.iter_unpack(marks.read_bytes())]


async def end(worker: Process) -> None:
    """End a worker and whatever it has started."""
    if worker.returncode is None:
        os.killpg(worker.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(worker.wait(), 5)
        except TimeoutError:
            os.killpg(worker.pid, signal.SIGKILL)
            await worker.wait()


async def peers(names: Sequence[str], variables: Mapping[str, str]) -> list[Entrant]:
    """Return the peers that can be had, ready to take tasks in."""
    entrants = []
    for name in names:
        python = await environment(name, PACKAGES[name])
        if python is None:
            print(f"{name:24} could not be installed")
            continue
        await peer_call([str(python), SCRIPT, name, "default", "setup", "0"], variables)
        entrants += [_peer(python, name, variant, variables) for variant in VARIANTS]
    return entrants


def _peer(python: Path, name: str, variant: str, variables: Mapping[str, str]) -> Entrant:
    command = [str(python), SCRIPT, name, variant]

    def produce(mode: str) -> Produce:
        return lambda count: peer_call([*command, mode, str(count)], variables)

    return Entrant(f"{name} {variant}", produce("enqueue"), produce("trickle"), [*command, "work", "0"])


async def peer_call(command: Sequence[str], variables: Mapping[str, str]) -> float:
    """Run one mode of a peer to its end; the seconds that it prints, 0 when it prints none."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, env={**os.environ, **variables}
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{command[2:]}: {errors.decode()[-500:]}")
    return float(output.split()[-1]) if output.split() else 0.0


def tell(name: str, found: Figures) -> None:
    print(
        f"{name:24} enqueue {found.enqueued:7.0f}/s   drain {found.drained:7.0f}/s   "
        f"wait p50 {found.wait_p50 * 1e3:6.1f} p99 {found.wait_p99 * 1e3:6.1f} ms",
        flush=True,
    )
