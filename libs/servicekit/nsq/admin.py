"""Create, measure and prime topics over nsqd's HTTP interface."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from servicekit.errors import Reason, ServiceError
from servicekit.nsq.frames import PRIMER_BODY, check_channel, check_topic
from servicekit.nsq.tuning import NsqAddresses

_SECONDS = 3.0
_PRIME_SECONDS = 1.0
_HTTP_OK = 200
_HTTP_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStats:
    """Count one channel's messages; `backlog` is all that are not finished."""

    name: str
    depth: int
    in_flight: int
    deferred: int
    message_count: int
    requeue_count: int
    timeout_count: int
    client_count: int

    @property
    def backlog(self) -> int:
        """Waiting, in flight and deferred together."""
        return self.depth + self.in_flight + self.deferred


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """Count one topic's messages; `depth` is what was not copied to its channels yet."""

    name: str
    depth: int
    backend_depth: int
    message_count: int
    channels: dict[str, ChannelStats]

    def backlog(self, channel: str) -> int:
        """Return what the channel has still to finish; 0 for a channel that does not exist."""
        found = self.channels.get(channel)
        return self.depth + (found.backlog if found is not None else 0)


class NsqAdmin:
    """Call one nsqd; every call takes at most 3 s.

    Raises:
        ServiceError: DEPENDENCY_AWAY if nsqd does not answer, NOT_FOUND and INVALID_FIELD as nsqd says.
    """

    def __init__(self, settings: NsqAddresses) -> None:
        self._base = f"http://{settings.nsqd_http}"

    async def ping(self) -> None:
        """Return if nsqd is up and can write its disk."""
        await self._call("GET", "/ping")

    async def info(self) -> dict[str, Any]:
        """Return nsqd's version and ports."""
        found: dict[str, Any] = await self._call("GET", "/info")
        return found

    async def stats(self) -> dict[str, TopicStats]:
        """Return the counts of every topic by name. After a crash nsqd reports too small a depth."""
        data = await self._call("GET", "/stats", format="json", include_clients="false", include_mem="false")
        topics = [_topic(row) for row in data["topics"]]
        return {topic.name: topic for topic in topics}

    async def backlog(self, topic: str, channel: str) -> int:
        """Return how many messages the channel has still to finish; 0 if the topic does not exist."""
        found = (await self.stats()).get(topic)
        return found.backlog(channel) if found is not None else 0

    async def create(self, topic: str, channel: str | None = None) -> None:
        """Create the topic, and the channel if one is named; both may exist."""
        check_topic(topic)
        await self._call("POST", "/topic/create", topic=topic)
        if channel is not None:
            check_channel(channel)
            await self._call("POST", "/channel/create", topic=topic, channel=channel)

    async def delete_topic(self, topic: str) -> None:
        """Delete the topic, its channels and all their messages."""
        await self._call("POST", "/topic/delete", topic=topic)

    async def empty_channel(self, topic: str, channel: str) -> None:
        """Drop all messages of a channel."""
        await self._call("POST", "/channel/empty", topic=topic, channel=channel)

    async def prime(self, channels: dict[str, list[str]]) -> None:
        """Create topics with their channels, and let nsqd write their files, so that a crash loses nothing queued.

        Takes about a second, once: channels that have carried a message are left alone. A new one gets one message,
        which `Consumer` finishes by itself.
        """
        known = await self.stats()
        fresh = False
        for topic, names in channels.items():
            before = known.get(topic)
            for name in names:
                await self.create(topic, name)
            if before is None or any(
                name not in before.channels or not before.message_count for name in names
            ):
                await self._call("POST", "/pub", topic=topic, body=PRIMER_BODY)
                fresh = True
        if fresh:
            await asyncio.sleep(_PRIME_SECONDS)

    async def _call(self, method: str, path: str, *, body: bytes | None = None, **query: str) -> Any:
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
                session.request(method, self._base + path, params=query, data=body) as response,
            ):
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServiceError(Reason.DEPENDENCY_AWAY, f"nsqd at {self._base} does not answer") from error
        if response.status != _HTTP_OK:
            raise _refused(response.status, path, text)
        return _decode(response, text)


def _decode(response: aiohttp.ClientResponse, text: str) -> Any:
    if "json" not in response.headers.get("Content-Type", ""):
        return text
    return json.loads(text)


def _refused(status: int, path: str, text: str) -> ServiceError:
    if status == _HTTP_NOT_FOUND:
        return ServiceError(Reason.NOT_FOUND, f"nsqd {path}: {text}")
    if status < 500:  # noqa: PLR2004
        return ServiceError(Reason.INVALID_FIELD, f"nsqd {path}: {text}")
    return ServiceError(Reason.DEPENDENCY_AWAY, f"nsqd {path}: {text}")


def _topic(row: dict[str, Any]) -> TopicStats:
    channels = [_channel(channel) for channel in row["channels"]]
    return TopicStats(
        name=row["topic_name"],
        depth=row["depth"],
        backend_depth=row["backend_depth"],
        message_count=row["message_count"],
        channels={channel.name: channel for channel in channels},
    )


def _channel(row: dict[str, Any]) -> ChannelStats:
    return ChannelStats(
        name=row["channel_name"],
        depth=row["depth"],
        in_flight=row["in_flight_count"],
        deferred=row["deferred_count"],
        message_count=row["message_count"],
        requeue_count=row["requeue_count"],
        timeout_count=row["timeout_count"],
        client_count=row.get("client_count", len(row.get("clients") or [])),
    )
