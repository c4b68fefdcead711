"""Sends server-sent events as plain ASGI: no task per event, no buffer, and a reader that leaves is noticed at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from datetime import timedelta

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from servicekit import sse
from servicekit.logs import get_logger
from servicekit.metrics import Metric, counter, gauge

_log = get_logger(__name__)


class EventStream(Response):
    """Answers with chunks of encoded events until they end, the reader leaves, or it stops reading.

    Args:
        chunks: makes the generator; it runs only once the headers are sent, and is closed whatever happens.
        headers: besides those of `servicekit.sse`.
        send_timeout: a reader that takes nothing for this long is cut.
    """

    media_type = sse.MEDIA_TYPE

    def __init__(
        self,
        chunks: Callable[[], AsyncIterator[bytes]],
        *,
        headers: Mapping[str, str],
        send_timeout: timedelta,
    ) -> None:
        super().__init__(status_code=200, headers={**sse.HEADERS, **headers})
        del self.headers["content-length"]
        self._chunks = chunks
        self._send_seconds = send_timeout.total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        del scope
        connections = gauge(Metric.SSE_CONNECTIONS)
        connections.inc()
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_wait_until_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            connections.dec()
            sending.cancel()
            leaving.cancel()
            (outcome, _) = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(outcome, Exception):
            raise outcome

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._chunks()) as chunks:  # type: ignore[type-var] # it is an async generator
            async for chunk in chunks:
                if not await self._send_chunk(send, chunk):
                    return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_chunk(self, send: Send, chunk: bytes) -> bool:
        try:
            async with asyncio.timeout(self._send_seconds):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            counter(Metric.SSE_CUTS).labels("slow").inc()
            _log.info("an event stream was cut: its reader is too slow")
            return False
        except OSError:
            return False
        return True


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
