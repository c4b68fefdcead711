"""A worker to look at: writes words of the prompt, one after the other. ``python -m sluicegate_client.demo_worker``.

The payload: ``prompt`` (text; a few sentences by default), ``words`` (how many to write, 1 to 10,000; default: those of
the prompt, at most 60) and ``delay_ms`` (between words, 0 to 10,000; default 60).
"""

import argparse
import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from sluicegate_client.worker import PermanentError, TaskContext, Worker

KIND = "text.demo"
CHANNEL = "text-demo"

_DEFAULT_TEXT = (
    "A sluice gate lets through as much water as the channel below can carry. This text comes from a worker, word by "
    "word. Each piece is stored before you see it: whoever reads may leave, come back and miss nothing, and a worker "
    "that is stopped on the way is followed by another one."
)
_DEFAULT_WORDS = 60
_MOST_WORDS = 10_000
_DEFAULT_DELAY_MS = 60
_MOST_DELAY_MS = 10_000


async def write_words(task: TaskContext) -> dict[str, object]:
    """Write the words of the prompt, round and round, and report progress."""
    words = str(task.payload.get("prompt", "")).split() or _DEFAULT_TEXT.split()
    count = _number(task.payload, "words", default=min(len(words), _DEFAULT_WORDS), most=_MOST_WORDS)
    delay = _number(task.payload, "delay_ms", default=_DEFAULT_DELAY_MS, most=_MOST_DELAY_MS) / 1000
    reported = 0
    for index in range(count):
        await task.text.write(words[index % len(words)] + " ")
        percent = 100 * (index + 1) // count
        if percent >= reported + 10:
            reported = percent
            await task.progress(percent, f"{index + 1} of {count} words")
        await asyncio.sleep(delay)
    return {"words": count}


def make_worker(target: str, *, name: str, concurrency: int, token: str | None = None) -> Worker:
    """Return the demo worker; it renews often so that a cancellation is felt within two seconds."""
    worker = Worker(
        target,
        channels=[CHANNEL],
        name=name,
        concurrency=concurrency,
        token=token,
        renew_every=timedelta(seconds=2),
        drain_timeout=timedelta(seconds=5),
    )
    worker.handler(KIND)(write_words)
    return worker


def main() -> None:
    """Run the demo worker until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m sluicegate_client.demo_worker", description=__doc__)
    parser.add_argument("--target", default=os.environ.get("SLUICEGATE_TASK_API", "127.0.0.1:7105"))
    parser.add_argument("--name", default=f"demo-{socket.gethostname()}-{os.getpid()}")
    parser.add_argument("--concurrency", type=int, default=4)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    worker = make_worker(options.target, name=options.name, concurrency=options.concurrency, token=_token())
    asyncio.run(worker.run())


def _token() -> str | None:
    if path := os.environ.get("SLUICEGATE_AUTH_TOKEN_FILE"):
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    return os.environ.get("SLUICEGATE_AUTH_TOKEN")


def _number(payload: Mapping[str, Any], name: str, *, default: int, most: int) -> int:
    value = payload.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise PermanentError(f"{name} must be a whole number from 0 to {most}")
    return value


if __name__ == "__main__":
    main()
