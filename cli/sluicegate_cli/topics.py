"""Create and prime the topics: ``python -m sluicegate_cli.topics``, once before the services start."""

import asyncio
import os
import sys

from servicekit.errors import ServiceError
from servicekit.nsq.admin import NsqAdmin
from servicekit.settings import NsqSettings

TOPICS = {"card.ingest": ["ingest_service"], "card.collection": ["collection_writer"], "card.event": []}
"""Topic -> channels that must exist before the first message."""


def main() -> int:
    """Prime the topics of the nsqd that the environment names; returns the exit code."""
    defaults = NsqSettings()
    settings = NsqSettings(
        nsqd_tcp=os.environ.get("SLUICEGATE_NSQD", defaults.nsqd_tcp),
        nsqd_http=os.environ.get("SLUICEGATE_NSQD_HTTP", defaults.nsqd_http),
    )
    try:
        asyncio.run(NsqAdmin(settings).prime({topic: list(channels) for topic, channels in TOPICS.items()}))
    except ServiceError as error:
        sys.stderr.write(f"topics: {error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
