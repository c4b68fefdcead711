"""Speak NSQ protocol V2 with one client."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from devbroker.broker import Broker
from devbroker.channel import Channel, StoredMessage
from devbroker.identify import Identity
from devbroker.wire import (
    CLOSE_WAIT,
    FRAME_ERROR,
    FRAME_RESPONSE,
    HEARTBEAT,
    MAGIC,
    MESSAGE_ID_LENGTH,
    OK,
    CommandError,
    encode_frame,
    encode_message,
    is_valid_name,
    parse_integer,
    read_length,
    read_message_body,
    split_bodies,
)

STATE_INIT = 0
STATE_SUBSCRIBED = 3
STATE_CLOSING = 4
_MILLISECONDS = 1000

_Command = Callable[[list[bytes]], Awaitable[bytes | None]]


class Session:
    """Execute one connection's commands and send it messages and heartbeats."""

    def __init__(self, broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.msg_timeout = broker.options.msg_timeout
        self.in_flight_count = 0
        self._broker = broker
        self._reader = reader
        self._writer = writer
        self._identity = Identity(heartbeat_interval=broker.options.heartbeat_interval)
        self._state = STATE_INIT
        self._ready_count = 0
        self._channel: Channel | None = None
        self._counts = {"message_count": 0, "finish_count": 0, "requeue_count": 0}
        self._connected_at = time.time()
        self._heartbeats: asyncio.Task[None] | None = None
        self._last_read = asyncio.get_running_loop().time()
        self._commands: dict[bytes, _Command] = {
            b"IDENTIFY": self._identify,
            b"SUB": self._subscribe,
            b"RDY": self._ready,
            b"FIN": self._finish,
            b"REQ": self._requeue,
            b"TOUCH": self._touch,
            b"PUB": self._publish,
            b"MPUB": self._publish_many,
            b"DPUB": self._publish_deferred,
            b"NOP": self._no_operation,
            b"CLS": self._close,
        }

    @property
    def is_consumer(self) -> bool:
        """Say whether the client has subscribed."""
        return self._state != STATE_INIT

    async def run(self) -> None:
        """Serve the client until it leaves, sends a fatal command, or falls silent for two heartbeats."""
        self._restart_heartbeats()
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
                await self._serve()
        finally:
            self._stop_heartbeats()
            if self._channel is not None:
                self._channel.unsubscribe(self)
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection."""
        self._writer.close()

    def is_ready(self) -> bool:
        """Say whether the client's RDY allows one more message."""
        return self._state == STATE_SUBSCRIBED and self.in_flight_count < self._ready_count

    def deliver(self, message: StoredMessage) -> None:
        """Send one message, after the delivery delay if that fault is set."""
        self.in_flight_count += 1
        self._counts["message_count"] += 1
        frame = encode_message(
            message.id, message.body, timestamp_ns=message.timestamp_ns, attempts=message.attempts
        )
        delay = self._broker.faults.delay_deliveries
        if delay > 0:
            asyncio.get_running_loop().call_later(delay, self._send, frame)
        else:
            self._send(frame)

    def released(self) -> None:
        """Count one message less in flight."""
        self.in_flight_count -= 1

    def stats(self) -> dict[str, Any]:
        """Return the fields of `clients[]` in `/stats`."""
        host, port = self._writer.get_extra_info("peername", ("", 0))[:2]
        return {
            "client_id": self._identity.client_id,
            "hostname": self._identity.hostname,
            "version": "V2",
            "remote_address": f"{host}:{port}",
            "state": self._state,
            "ready_count": self._ready_count,
            "in_flight_count": self.in_flight_count,
            **self._counts,
            "connect_ts": int(self._connected_at),
            "sample_rate": 0,
            "deflate": False,
            "snappy": False,
            "user_agent": self._identity.user_agent,
            "tls": False,
        }

    async def _serve(self) -> None:
        if await self._reader.readexactly(len(MAGIC)) != MAGIC:
            self._send(encode_frame(FRAME_ERROR, b"E_BAD_PROTOCOL"))
            return
        while True:
            line = await self._reader.readuntil(b"\n")
            self._last_read = asyncio.get_running_loop().time()
            try:
                reply = await self._execute(line.rstrip(b"\r\n").split(b" "))
            except CommandError as error:
                self._send(encode_frame(FRAME_ERROR, str(error).encode()))
                if error.fatal:
                    return
            else:
                if reply is not None:
                    self._send(encode_frame(FRAME_RESPONSE, reply))

    async def _execute(self, params: list[bytes]) -> bytes | None:
        command = self._commands.get(params[0])
        if command is None:
            raise CommandError("E_INVALID", f"invalid command {params[0].decode('latin-1')}")
        return await command(params)

    def _send(self, data: bytes) -> None:
        if not self._broker.faults.mute and not self._writer.is_closing():
            self._writer.write(data)

    def _restart_heartbeats(self) -> None:
        self._stop_heartbeats()
        if self._identity.heartbeat_interval:
            self._heartbeats = asyncio.create_task(self._send_heartbeats(self._identity.heartbeat_interval))

    def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None

    async def _send_heartbeats(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            if asyncio.get_running_loop().time() - self._last_read > 2 * interval:
                self.hang_up()
                return
            self._send(encode_frame(FRAME_RESPONSE, HEARTBEAT))

    async def _identify(self, _params: list[bytes]) -> bytes:
        if self._state != STATE_INIT:
            raise CommandError("E_INVALID", "cannot IDENTIFY in current state")
        body = await self._read_body("IDENTIFY")
        self._identity = Identity.parse(body, self._broker.options)
        self._restart_heartbeats()
        self.msg_timeout = self._identity.msg_timeout or self._broker.options.msg_timeout
        if not self._identity.feature_negotiation:
            return OK
        return json.dumps(self._identity.reply(self._broker.options)).encode()

    async def _subscribe(self, params: list[bytes]) -> bytes:
        if self._state != STATE_INIT:
            raise CommandError("E_INVALID", "cannot SUB in current state")
        if not self._identity.heartbeat_interval:
            raise CommandError("E_INVALID", "cannot SUB with heartbeats disabled")
        topic = self._topic_name(params, "SUB", 3)
        channel = params[2].decode("latin-1")
        if not is_valid_name(channel):
            raise CommandError("E_BAD_CHANNEL", f'SUB channel name "{channel}" is not valid')
        self._channel = self._broker.topic(topic).channel(channel)
        self._channel.subscribe(self)
        self._state = STATE_SUBSCRIBED
        return OK

    async def _ready(self, params: list[bytes]) -> None:
        if self._state == STATE_CLOSING:
            return
        channel = self._subscribed("RDY")
        count = parse_integer(params[1], "RDY", "count") if len(params) > 1 else 1
        limit = self._broker.options.max_rdy_count
        if count > limit:
            raise CommandError("E_INVALID", f"RDY count {count} out of range 0-{limit}")
        self._ready_count = count
        channel.pump()

    async def _finish(self, params: list[bytes]) -> None:
        channel = self._subscribed("FIN")
        channel.finish(self, self._message_id(params, "FIN", 2))
        self.in_flight_count -= 1
        self._counts["finish_count"] += 1
        channel.pump()

    async def _requeue(self, params: list[bytes]) -> None:
        channel = self._subscribed("REQ")
        message_id = self._message_id(params, "REQ", 3)
        delay = parse_integer(params[2], "REQ", "timeout") / _MILLISECONDS
        channel.requeue(self, message_id, delay)
        self.in_flight_count -= 1
        self._counts["requeue_count"] += 1
        channel.pump()

    async def _touch(self, params: list[bytes]) -> None:
        self._subscribed("TOUCH").touch(self, self._message_id(params, "TOUCH", 2))

    async def _publish(self, params: list[bytes]) -> bytes | None:
        topic = self._topic_name(params, "PUB", 2)
        body = await read_message_body(self._reader, "PUB", self._broker.options.max_msg_size)
        return await self._store(topic, [body])

    async def _publish_deferred(self, params: list[bytes]) -> bytes | None:
        topic = self._topic_name(params, "DPUB", 3)
        milliseconds = parse_integer(params[2], "DPUB", "timeout")
        limit = int(self._broker.options.max_req_timeout * _MILLISECONDS)
        if milliseconds > limit:
            raise CommandError("E_INVALID", f"DPUB timeout {milliseconds} out of range 0-{limit}")
        body = await read_message_body(self._reader, "DPUB", self._broker.options.max_msg_size)
        return await self._store(topic, [body], milliseconds / _MILLISECONDS)

    async def _publish_many(self, params: list[bytes]) -> bytes | None:
        topic = self._topic_name(params, "MPUB", 2)
        options = self._broker.options
        body = await self._read_body("MPUB")
        bodies = split_bodies(body, limit=options.max_msg_size, total_limit=options.max_body_size)
        return await self._store(topic, bodies)

    async def _no_operation(self, _params: list[bytes]) -> None:
        return None

    async def _close(self, _params: list[bytes]) -> bytes:
        if self._state != STATE_SUBSCRIBED:
            raise CommandError("E_INVALID", "cannot CLS in current state")
        self._state = STATE_CLOSING
        return CLOSE_WAIT

    async def _store(self, topic: str, bodies: list[bytes], delay: float = 0.0) -> bytes | None:
        faults = self._broker.faults
        if faults.take("refuse_publishes"):
            raise CommandError("E_PUB_FAILED", "PUB failed on demand")
        self._broker.publish(topic, bodies, delay)
        if faults.delay_replies > 0:
            await asyncio.sleep(faults.delay_replies)
        return None if faults.take("drop_replies") else OK

    async def _read_body(self, command: str) -> bytes:
        length = await read_length(self._reader)
        limit = self._broker.options.max_body_size
        if length > limit:
            raise CommandError("E_BAD_BODY", f"{command} body too big {length} > {limit}")
        if length <= 0:
            raise CommandError("E_BAD_BODY", f"{command} invalid body size {length}")
        return await self._reader.readexactly(length)

    def _topic_name(self, params: list[bytes], command: str, needed: int) -> str:
        _check_count(params, command, needed)
        topic = params[1].decode("latin-1")
        if not is_valid_name(topic):
            raise CommandError("E_BAD_TOPIC", f'{command} topic name "{topic}" is not valid')
        return topic

    def _message_id(self, params: list[bytes], command: str, needed: int) -> bytes:
        _check_count(params, command, needed)
        if len(params[1]) != MESSAGE_ID_LENGTH:
            raise CommandError("E_INVALID", "invalid message ID")
        return params[1]

    def _subscribed(self, command: str) -> Channel:
        if self._channel is None:
            raise CommandError("E_INVALID", f"cannot {command} in current state")
        return self._channel


def _check_count(params: list[bytes], command: str, needed: int) -> None:
    if len(params) < needed:
        raise CommandError("E_INVALID", f"{command} insufficient number of parameters")
