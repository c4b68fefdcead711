"""Hold all topics and the messages' identities."""

import asyncio
import itertools
import time

from devbroker.channel import StoredMessage
from devbroker.faults import Faults
from devbroker.options import BrokerOptions
from devbroker.topic import Topic


class Broker:
    """Be the state that TCP sessions and HTTP requests share; used from one event loop."""

    def __init__(self, options: BrokerOptions, faults: Faults) -> None:
        self.options = options
        self.faults = faults
        self.topics: dict[str, Topic] = {}
        self._ids = itertools.count(time.time_ns())

    def topic(self, name: str) -> Topic:
        """Return the topic, created on first use."""
        found = self.topics.get(name)
        if found is None:
            now = asyncio.get_running_loop().time
            found = self.topics[name] = Topic(name, self.options, self.faults, now=now)
        return found

    def remove_topic(self, name: str) -> bool:
        """Forget a topic with all its channels and say whether it existed."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return False
        for channel in list(topic.channels):
            topic.remove_channel(channel)
        return True

    def publish(self, topic: str, bodies: list[bytes], delay: float = 0.0) -> None:
        """Store the bodies in order, due in `delay` seconds."""
        target = self.topic(topic)
        for body in bodies:
            message_id = f"{next(self._ids):016x}".encode()
            target.publish(StoredMessage(message_id, body, time.time_ns()), delay)

    def expire(self) -> None:
        """Run one queue scan over every channel."""
        for topic in self.topics.values():
            for channel in topic.channels.values():
                channel.expire()

    def lose_in_flight(self) -> int:
        """Drop everything in flight or deferred and return how many messages that were."""
        channels = [channel for topic in self.topics.values() for channel in topic.channels.values()]
        return sum(channel.lose_in_flight() for channel in channels)
