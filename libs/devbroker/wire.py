"""Frame and parse the bytes of NSQ protocol V2."""

import re
import struct
from asyncio import StreamReader

FRAME_RESPONSE = 0
FRAME_ERROR = 1
FRAME_MESSAGE = 2
MAGIC = b"  V2"
MESSAGE_ID_LENGTH = 16
MAX_NAME_LENGTH = 64
OK = b"OK"
HEARTBEAT = b"_heartbeat_"
CLOSE_WAIT = b"CLOSE_WAIT"

_HEADER = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_MESSAGE_HEADER = struct.Struct(">qH")
_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?\Z")


class CommandError(Exception):
    """Refuse one command with an `E_*` code; a fatal refusal ends the connection."""

    def __init__(self, code: str, detail: str, *, fatal: bool = True) -> None:
        super().__init__(f"{code} {detail}")
        self.code = code
        self.fatal = fatal


def encode_frame(kind: int, data: bytes) -> bytes:
    """Return one frame of the given kind."""
    return _HEADER.pack(len(data) + 4, kind) + data


def encode_message(message_id: bytes, body: bytes, *, timestamp_ns: int, attempts: int) -> bytes:
    """Return one message frame; `attempts` is an unsigned 16-bit number and wraps."""
    head = _MESSAGE_HEADER.pack(timestamp_ns, attempts & 0xFFFF)
    return encode_frame(FRAME_MESSAGE, head + message_id + body)


def is_valid_name(name: str) -> bool:
    """Say whether nsqd would accept `name` for a topic or a channel."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.match(name) is not None


def parse_integer(text: bytes, command: str, what: str) -> int:
    """Return a decimal argument as an integer, or refuse the command with E_INVALID."""
    if not text.isdigit():
        raise CommandError("E_INVALID", f"{command} could not parse {what} {text.decode('latin-1')}")
    return int(text)


async def read_length(reader: StreamReader) -> int:
    """Read a signed 32-bit big-endian length."""
    length: int = _LENGTH.unpack(await reader.readexactly(4))[0]
    return length


async def read_message_body(reader: StreamReader, command: str, limit: int) -> bytes:
    """Read one length-prefixed message body of 1 to `limit` bytes, or refuse with E_BAD_MESSAGE."""
    length = await read_length(reader)
    check_message_size(length, command, limit)
    return await reader.readexactly(length)


def check_message_size(length: int, command: str, limit: int) -> None:
    """Refuse a message that is empty or larger than `limit` bytes with E_BAD_MESSAGE."""
    if length <= 0:
        raise CommandError("E_BAD_MESSAGE", f"{command} invalid message body size {length}")
    if length > limit:
        raise CommandError("E_BAD_MESSAGE", f"{command} message too big {length} > {limit}")


def split_bodies(data: bytes, *, limit: int, total_limit: int) -> list[bytes]:
    """Return the bodies of an MPUB payload of at most `total_limit` bytes, each of 1 to `limit` bytes."""
    if len(data) < _LENGTH.size:
        raise CommandError("E_BAD_BODY", "MPUB failed to read message count")
    count = _LENGTH.unpack_from(data)[0]
    if count <= 0 or count > (total_limit - 4) // 5:
        raise CommandError("E_BAD_BODY", f"MPUB invalid message count {count}")
    bodies = []
    offset = 4
    for _ in range(count):
        if offset + 4 > len(data):
            raise CommandError("E_BAD_MESSAGE", "MPUB failed to read message body size")
        length = _LENGTH.unpack_from(data, offset)[0]
        check_message_size(length, "MPUB", limit)
        offset += 4
        if offset + length > len(data):
            raise CommandError("E_BAD_MESSAGE", "MPUB failed to read message body")
        bodies.append(data[offset : offset + length])
        offset += length
    return bodies
