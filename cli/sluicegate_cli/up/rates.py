"""Rates of the whole system, read from every service's /metrics and from the broker."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from servicekit.errors import ServiceError
from servicekit.nsq.admin import NsqAdmin

_SECONDS = 2.0
_TOPICS = ("card.ingest", "card.collection")


@dataclass(frozen=True, slots=True)
class _Counted:
    word: str
    service: str
    metric: str
    labels: Mapping[str, str]


_COUNTED = (
    _Counted("polls", "poller", "sluicegate_polls_total", {"outcome": "success"}),
    _Counted("applied", "ingest_service", "sluicegate_observations_total", {"outcome": "applied"}),
    _Counted("collected", "collection_writer", "sluicegate_collection_rows_total", {"outcome": "stored"}),
    _Counted("tasks", "task_api", "sluicegate_task_attempts_total", {}),
)


class Rates:
    """Remembers the last counters; one line per reading."""

    def __init__(self, ports: Mapping[str, int], admin: NsqAdmin) -> None:
        self._ports = ports
        self._admin = admin
        self._last: dict[str, float] = {}
        self._read_at = time.monotonic()

    async def line(self) -> str:
        """Return the rates since the last call and what waits now; a service that does not answer shows `?`."""
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            read = await asyncio.gather(*(self._page(session, port) for port in self._ports.values()))
        pages = dict(zip(self._ports, read, strict=True))
        now = time.monotonic()
        seconds, self._read_at = max(now - self._read_at, 0.001), now
        parts = [self._rate(counted, pages.get(counted.service), seconds) for counted in _COUNTED]
        return "  ".join([*parts, f"backlog {await self._backlog()}"])

    async def _page(self, session: aiohttp.ClientSession, port: int) -> str | None:
        try:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                return await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    def _rate(self, counted: _Counted, page: str | None, seconds: float) -> str:
        if page is None:
            return f"{counted.word}/s ?"
        total = _total(page, counted)
        before = self._last.get(counted.word, total)
        self._last[counted.word] = total
        return f"{counted.word}/s {max(total - before, 0) / seconds:.1f}"

    async def _backlog(self) -> str:
        try:
            topics = await self._admin.stats()
        except ServiceError:
            return "?"
        waiting = 0
        for name in _TOPICS:
            topic = topics.get(name)
            if topic is not None:
                waiting += topic.depth + sum(channel.backlog for channel in topic.channels.values())
        return str(waiting)


def _total(page: str, counted: _Counted) -> float:
    wanted = counted.labels.items()
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == counted.metric and wanted <= sample.labels.items()
    )
