"""Check and encode publish commands.

nsqd answers a bad topic, an empty body or a body that is too large with a fatal error, which ends the connection and
fails every other publish on it; hence everything is checked before it is sent.
"""

import struct
from collections.abc import Sequence

from nsq import protocol

from servicekit.errors import ServiceError, invalid_field
from servicekit.nsq.tuning import NsqTuning

PRIMER_BODY = b'{"sluicegate":"primer"}'

_LENGTH = struct.Struct(">l")
_COUNT_BYTES = 4


def check_topic(topic: str) -> None:
    """Raise INVALID_FIELD unless nsqd accepts the topic's name."""
    # `$` in pynsq's pattern lets a final line break pass, which would split the command
    if not protocol.valid_topic_name(topic) or topic.endswith("\n"):
        raise invalid_field("topic", f"{topic!r} is no NSQ name: 1 to 64 of letters, digits, '.', '_', '-'")


def check_channel(channel: str) -> None:
    """Raise INVALID_FIELD unless nsqd accepts the channel's name."""
    if not protocol.valid_channel_name(channel) or channel.endswith("\n"):
        raise invalid_field(
            "channel", f"{channel!r} is no NSQ name: 1 to 64 of letters, digits, '.', '_', '-'"
        )


def check_bodies(bodies: Sequence[bytes], tuning: NsqTuning) -> None:
    """Raise INVALID_FIELD if a body is empty, too large or not bytes."""
    for index, body in enumerate(bodies):
        problem = _body_problem(body, tuning.max_message_bytes)
        if problem is not None:
            raise invalid_field("body", problem if len(bodies) == 1 else f"message {index}: {problem}")


def split_to_fit(bodies: Sequence[bytes], limit: int) -> list[list[bytes]]:
    """Cut bodies into runs, in order, each of which fits into one MPUB of at most `limit` bytes."""
    runs: list[list[bytes]] = []
    size = limit + 1
    for body in bodies:
        needed = _LENGTH.size + len(body)
        if size + needed > limit:
            runs.append([])
            size = _COUNT_BYTES
        runs[-1].append(body)
        size += needed
    return runs


def wire_size(bodies: Sequence[bytes]) -> int:
    """Return the bytes that the bodies take inside one MPUB."""
    return _COUNT_BYTES + sum(map(len, bodies)) + _LENGTH.size * len(bodies)


def encode_publish(topic: str, bodies: Sequence[bytes]) -> bytes:
    """Return PUB for one body and MPUB for several, in linear time (pynsq's own MPUB encoder is quadratic)."""
    if len(bodies) == 1:
        single: bytes = protocol.pub(topic, bodies[0])
        return single
    parts = [_LENGTH.pack(len(bodies))]
    for body in bodies:
        parts.append(_LENGTH.pack(len(body)))
        parts.append(body)
    payload = b"".join(parts)
    return b"MPUB %b\n%b%b" % (topic.encode(), _LENGTH.pack(len(payload)), payload)


def refusal(error: str) -> ServiceError | None:
    """Return INVALID_FIELD if nsqd's error says that the input was bad, else None."""
    code = error.partition(" ")[0]
    if code in {"E_BAD_TOPIC", "E_BAD_MESSAGE", "E_BAD_BODY"}:
        return invalid_field("topic" if code == "E_BAD_TOPIC" else "body", error)
    return None


def _body_problem(body: bytes, limit: int) -> str | None:
    if not isinstance(body, bytes):
        return "must be bytes"
    if not body:
        return "must not be empty"
    if len(body) > limit:
        return f"{len(body)} bytes are more than the {limit} that nsqd takes"
    return None
