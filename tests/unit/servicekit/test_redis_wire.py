"""The shared connection to Redis, against a server that answers what the test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
import redis.exceptions

from servicekit.redis_wire import MOST_IN_FLIGHT, Pipe, Wire
from tests.support.waiting import eventually

SECONDS = 0.3


class Server:
    """Speaks just enough: OK to what the driver says first, then the answers that the test gives."""

    def __init__(self) -> None:
        self.received = b""
        self.writers: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        while data := await reader.read(65536):
            self.received += data

    @property
    def asked(self) -> int:
        return self.received.count(b"ASK")

    def answer(self, text: bytes) -> None:
        self.writers[-1].write(text)


@asynccontextmanager
async def pipe_to(
    server: Server, greet: Callable[[Wire], Awaitable[Any]] | None = None
) -> AsyncIterator[Pipe]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    pool = redis.asyncio.ConnectionPool(host="127.0.0.1", port=port, protocol=2, driver_info=None)
    pipe = Pipe(pool.make_connection, seconds=SECONDS, greet=greet)
    try:
        yield pipe
    finally:
        await pipe.close()
        listener.close()


async def test_answers_belong_to_their_calls_in_whatever_pieces_they_come() -> None:
    server = Server()
    async with pipe_to(server) as pipe:
        wire = await pipe.wire()
        calls = [wire.submit(("ASK", number)) for number in range(3)]
        await eventually(lambda: server.asked == 3)
        for piece in (b":1\r\n$3\r\nab", b"c\r\n*2\r\n:1", b"\r\n:2\r\n"):
            server.answer(piece)
            await asyncio.sleep(0.01)
        assert await asyncio.gather(*calls) == [1, b"abc", [1, 2]]


async def test_one_turn_of_the_loop_is_one_write_and_a_cancelled_call_is_not_sent() -> None:
    server = Server()
    async with pipe_to(server) as pipe:
        wire = await pipe.wire()
        first, second = wire.submit(("ASK", "first")), wire.submit(("ASK", "second"))
        first.cancel()
        await eventually(lambda: server.asked)
        server.answer(b"+OK\r\n")
        assert await second == b"OK"
        assert b"first" not in server.received


async def test_a_call_cancelled_after_it_was_sent_does_not_shift_the_answers() -> None:
    server = Server()
    async with pipe_to(server) as pipe:
        wire = await pipe.wire()
        first, second = wire.submit(("ASK", 1)), wire.submit(("ASK", 2))
        await eventually(lambda: server.asked == 2)
        first.cancel()
        server.answer(b":1\r\n:2\r\n")
        assert await second == 2


async def test_refusals_are_the_drivers_errors() -> None:
    server = Server()
    async with pipe_to(server) as pipe:
        wire = await pipe.wire()
        texts = [
            b"-NOSCRIPT No matching script",
            b"-READONLY replica",
            b"-MOVED 3999 127.0.0.1:6381",
            b"-ERR x",
        ]
        calls = [wire.submit(("ASK",)) for _ in texts]
        await eventually(lambda: server.asked == 4)
        server.answer(b"".join(text + b"\r\n" for text in texts))
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in found] == [
            redis.exceptions.NoScriptError,
            redis.exceptions.ReadOnlyError,
            redis.exceptions.MovedError,
            redis.exceptions.ResponseError,
        ]


async def test_silence_ends_the_connection_and_the_next_call_gets_a_new_one() -> None:
    server = Server()
    async with pipe_to(server) as pipe:
        wire = await pipe.wire()
        with pytest.raises(redis.exceptions.TimeoutError):
            await wire.submit(("ASK",))
        assert wire.closed
        with pytest.raises(redis.exceptions.ConnectionError):
            wire.submit(("ASK",))
        again = await pipe.wire()
        assert again is not wire
        assert server.connections == 2


async def test_a_lost_connection_fails_every_call_and_sends_none_again() -> None:
    server = Server()
    async with pipe_to(server) as pipe:
        wire = await pipe.wire()
        calls = [wire.submit(("ASK",)) for _ in range(3)]
        await eventually(lambda: server.asked == 3)
        server.writers[-1].transport.abort()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, redis.exceptions.ConnectionError) for error in found)
        await pipe.wire()
        assert server.asked == 3


async def test_no_more_than_the_bound_is_in_flight() -> None:
    server = Server()
    async with pipe_to(server) as pipe:
        wire = await pipe.wire()
        calls = [wire.submit(("ASK",)) for _ in range(MOST_IN_FLIGHT + 5)]
        await eventually(lambda: server.asked == MOST_IN_FLIGHT)
        server.answer(b":1\r\n" * MOST_IN_FLIGHT)
        await eventually(lambda: server.asked == MOST_IN_FLIGHT + 5)
        server.answer(b":1\r\n" * 5)
        assert await asyncio.gather(*calls) == [1] * (MOST_IN_FLIGHT + 5)


async def test_the_greeting_comes_before_anything_else_and_its_failure_is_everybodys() -> None:
    server = Server()

    async def greet(wire: Wire) -> Any:
        call = wire.submit(("GREETING",))
        server.answer(b"$5\r\nhello\r\n")
        return await call

    async with pipe_to(server, greet) as pipe:
        one, two = await asyncio.gather(pipe.wire(), pipe.wire())
        assert one is two
        assert one.facts == b"hello"
        one.submit(("ASK",))
        await eventually(lambda: server.asked)
        assert server.received.index(b"GREETING") < server.received.index(b"ASK")

    async def refuse(wire: Wire) -> Any:
        raise redis.exceptions.ReadOnlyError("READONLY this server is a replica")

    async with pipe_to(Server(), refuse) as pipe:
        found = await asyncio.gather(pipe.wire(), pipe.wire(), return_exceptions=True)
        assert all(isinstance(error, redis.exceptions.ReadOnlyError) for error in found)


async def test_a_server_that_does_not_greet_in_time_is_given_up() -> None:
    async def hang(wire: Wire) -> Any:
        await asyncio.Event().wait()

    async with pipe_to(Server(), hang) as pipe:
        with pytest.raises(redis.exceptions.TimeoutError):
            await pipe.wire()
