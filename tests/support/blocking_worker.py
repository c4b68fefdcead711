"""A worker process whose handler never lets its event loop run; given the address of task_api."""

import asyncio
import sys
import time
from datetime import timedelta

from sluicegate_client.worker import TaskContext, Worker

worker = Worker(
    sys.argv[1],
    channels=["work"],
    name="blocking",
    renew_every=timedelta(seconds=0.2),
    loss_margin=timedelta(seconds=0.2),
)


@worker.handler("job")
async def block(task: TaskContext) -> None:
    """Work for longer than two lives of a claim without ever awaiting."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        sum(range(1000))


asyncio.run(worker.run())
