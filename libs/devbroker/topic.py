"""Keep one topic: copy each message to every channel, or hold it until there is one."""

from collections import deque
from collections.abc import Callable
from typing import Any

from devbroker.channel import Channel, StoredMessage
from devbroker.faults import Faults
from devbroker.options import BrokerOptions


class Topic:
    """Fan messages out to channels."""

    def __init__(
        self, name: str, options: BrokerOptions, faults: Faults, *, now: Callable[[], float]
    ) -> None:
        self.name = name
        self.channels: dict[str, Channel] = {}
        self._options = options
        self._faults = faults
        self._now = now
        self._waiting: deque[tuple[StoredMessage, float]] = deque()
        self._message_count = 0
        self._message_bytes = 0

    def publish(self, message: StoredMessage, delay: float = 0.0) -> None:
        """Give every channel its own copy, due in `delay` seconds."""
        self._message_count += 1
        self._message_bytes += len(message.body)
        if self.channels:
            self._copy_to_channels(message, delay)
        else:
            self._waiting.append((message, delay))

    def channel(self, name: str) -> Channel:
        """Return the channel, created on first use; the first one gets what waited."""
        found = self.channels.get(name)
        if found is None:
            found = self.channels[name] = Channel(name, self._options, self._faults, now=self._now)
            while self._waiting:
                self._copy_to_channels(*self._waiting.popleft())
        return found

    def remove_channel(self, name: str) -> bool:
        """Forget a channel with its messages and say whether it existed."""
        channel = self.channels.pop(name, None)
        if channel is None:
            return False
        channel.empty()
        channel.hang_up()
        return True

    def empty(self) -> None:
        """Drop what waits for a first channel; as on nsqd, channels keep theirs."""
        self._waiting.clear()

    def stats(self) -> dict[str, Any]:
        """Return the fields of `topics[]` in `/stats`."""
        return {
            "topic_name": self.name,
            "channels": [channel.stats() for _, channel in sorted(self.channels.items())],
            "depth": len(self._waiting),
            "backend_depth": 0,
            "message_count": self._message_count,
            "message_bytes": self._message_bytes,
            "paused": False,
            "e2e_processing_latency": {"count": 0, "percentiles": None},
        }

    def _copy_to_channels(self, message: StoredMessage, delay: float) -> None:
        for channel in self.channels.values():
            channel.put(message.copy(), delay)
