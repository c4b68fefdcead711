"""Serve NSQ protocol V2 from memory, for tests and for machines without nsqd.

Owns nothing durable: every message is gone when the process ends. It must never run in production.
Besides nsqd's own TCP and HTTP interfaces it produces faults on demand (see `devbroker.faults`).
"""

from devbroker.faults import Faults
from devbroker.options import BrokerOptions
from devbroker.server import DevBroker

__all__ = ["BrokerOptions", "DevBroker", "Faults"]
