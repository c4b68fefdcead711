"""Ask one service's health: ``python -m sluicegate_cli.probe HOST:PORT``; exit code 0 when it serves, else 1."""

import asyncio
import sys

from servicekit.errors import ServiceError
from servicekit.grpc_client import Channel
from sluicegate_cli.addresses import find


def main(target: str) -> int:
    """Return the exit code."""
    return 0 if asyncio.run(_is_serving(target)) else 1


async def _is_serving(target: str) -> bool:
    channel = Channel(target, auth=find().auth)
    try:
        return await channel.health_check()
    except ServiceError:
        return False
    finally:
        await channel.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
