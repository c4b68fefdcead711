"""Our own entrant of the contest: a worker made with the SDK. Arguments: task_api's address, channel, concurrency."""

import asyncio
import os
import struct
import sys
import time

import uvloop

from sluicegate_client.worker import TaskContext, Worker

MARKS = os.open(os.environ["MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
target, channel, concurrency = sys.argv[1:]
worker = Worker(target, channels=[channel], name="bench", concurrency=int(concurrency))


@worker.handler("noop")
async def noop(task: TaskContext) -> None:
    os.write(MARKS, struct.pack("dd", task.payload["sent"], time.time()))


with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(worker.run())
