"""Calls with a stream in them: one span from begin to end, and errors rebuilt wherever they come out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import grpc
from opentelemetry.trace import Span

from servicekit import telemetry
from servicekit.grpc_outgoing import CallMaker, Outgoing


class StreamCall:
    """One streaming call: iterate over it or ``read``, ``write`` and ``done_writing``; await it for its one answer.

    Every method raises the ServiceError that the server raised. Leaving the iteration early does not end the call:
    ``cancel`` does.
    """

    def __init__(self, call: Any, outgoing: Outgoing, span: Span | None) -> None:
        self._call = call
        self._outgoing = outgoing
        if span is not None:
            call.add_done_callback(_ends(span))

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for response in self._call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise self._outgoing.rebuild(error) from None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._guarded(self._call).__await__()

    async def read(self) -> Any:
        """Return the next response, or ``grpc.aio.EOF``."""
        return await self._guarded(self._call.read())

    async def write(self, request: Any) -> None:
        """Send one request; waits while the server takes no more."""
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            await self._raise_outcome()
            raise
        except grpc.aio.AioRpcError as error:
            raise self._outgoing.rebuild(error) from None

    async def done_writing(self) -> None:
        """Say that no further request comes."""
        await self._guarded(self._call.done_writing())

    def cancel(self) -> bool:
        """End the call here and on the server."""
        return bool(self._call.cancel())

    def done(self) -> bool:
        """Tell whether the call has ended."""
        return bool(self._call.done())

    def cancelled(self) -> bool:
        """Tell whether the call was cancelled."""
        return bool(self._call.cancelled())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` when the call has ended."""
        self._call.add_done_callback(callback)

    def time_remaining(self) -> float | None:
        """Return the seconds left, or None without a deadline."""
        left: float | None = self._call.time_remaining()
        return left

    async def code(self) -> grpc.StatusCode:
        """Wait for the end and return its status code."""
        code: grpc.StatusCode = await self._call.code()
        return code

    async def initial_metadata(self) -> Any:
        """Wait for and return what the server sent first."""
        return await self._guarded(self._call.initial_metadata())

    async def trailing_metadata(self) -> Any:
        """Wait for the end and return what the server sent last."""
        return await self._call.trailing_metadata()

    async def wait_for_connection(self) -> None:
        """Wait until the call is on its way."""
        await self._guarded(self._call.wait_for_connection())

    async def _guarded(self, work: Any) -> Any:
        try:
            return await work
        except grpc.aio.AioRpcError as error:
            raise self._outgoing.rebuild(error) from None

    async def _raise_outcome(self) -> None:
        if not self._call.done():
            return
        code = await self._call.code()
        if code is not grpc.StatusCode.OK:
            error = grpc.aio.AioRpcError(
                code,
                await self._call.initial_metadata(),
                await self._call.trailing_metadata(),
                await self._call.details(),
            )
            raise self._outgoing.rebuild(error)


def make_stream(outgoing: Outgoing, method: str, maker: CallMaker) -> Callable[..., StreamCall]:
    """Return the callable of a method with a stream; it has no deadline but the present call's."""

    def call(
        request: Any = None,
        *,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> StreamCall:
        del credentials
        seconds = outgoing.timeout(timeout, default=False)
        span = outgoing.start_span(method)
        inner = maker.call(
            request,
            timeout=seconds,
            metadata=outgoing.metadata(metadata, span),
            wait_for_ready=wait_for_ready,
            compression=compression,
        )
        return StreamCall(inner, outgoing, span)

    return call


def _ends(span: Span) -> Callable[[Any], None]:
    def end(call: Any) -> None:
        if call.cancelled():
            telemetry.record_error(span, asyncio.CancelledError())
        span.end()

    return end
