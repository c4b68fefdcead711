"""Publish to and consume from nsqd: the only module that knows pynsq.

pynsq supplies the connection (`nsq.AsyncConn`) and the protocol. Its `Writer` and `Reader` are not used: their
reconnect, backoff and re-ready timers can't be disarmed. What they do is done here, bounded and stoppable. Delivery is
at least once: a message may come twice, may come late, and whoever handles it must not mind.
"""

from servicekit.nsq.admin import ChannelStats, NsqAdmin, TopicStats
from servicekit.nsq.consumer import Consumer, ConsumerCounts, Handler
from servicekit.nsq.message import Message
from servicekit.nsq.publisher import Publisher
from servicekit.nsq.tuning import NsqAddresses, NsqTuning

__all__ = [
    "ChannelStats",
    "Consumer",
    "ConsumerCounts",
    "Handler",
    "Message",
    "NsqAddresses",
    "NsqAdmin",
    "NsqTuning",
    "Publisher",
    "TopicStats",
]
