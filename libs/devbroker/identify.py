"""Negotiate what a client asks for in IDENTIFY."""

import json
from dataclasses import dataclass
from typing import Any

from devbroker.options import BrokerOptions
from devbroker.wire import CommandError

NSQD_VERSION = "1.3.0"
_MILLISECONDS = 1000
_MINIMUM_HEARTBEAT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What one client said about itself; durations in seconds, 0 = none."""

    heartbeat_interval: float
    msg_timeout: float = 0.0
    feature_negotiation: bool = False
    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""

    @classmethod
    def parse(cls, body: bytes, options: BrokerOptions) -> "Identity":
        """Read an IDENTIFY body, or refuse with E_BAD_BODY."""
        try:
            data = json.loads(body)
        except ValueError as error:
            raise CommandError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from error
        if not isinstance(data, dict):
            raise CommandError("E_BAD_BODY", "IDENTIFY failed to decode JSON body")
        return cls(
            heartbeat_interval=_heartbeat(data.get("heartbeat_interval", 0), options),
            msg_timeout=_msg_timeout(data.get("msg_timeout", 0), options),
            feature_negotiation=bool(data.get("feature_negotiation")),
            client_id=str(data.get("client_id", "")),
            hostname=str(data.get("hostname", "")),
            user_agent=str(data.get("user_agent", "")),
        )

    def reply(self, options: BrokerOptions) -> dict[str, Any]:
        """Return the negotiated features: no TLS, no compression, no sampling, no authentication."""
        return {
            "max_rdy_count": options.max_rdy_count,
            "version": NSQD_VERSION,
            "max_msg_timeout": int(options.max_msg_timeout * _MILLISECONDS),
            "msg_timeout": int((self.msg_timeout or options.msg_timeout) * _MILLISECONDS),
            "tls_v1": False,
            "deflate": False,
            "deflate_level": 6,
            "max_deflate_level": 6,
            "snappy": False,
            "sample_rate": 0,
            "auth_required": False,
            "output_buffer_size": 16384,
            "output_buffer_timeout": 250,
        }


def _heartbeat(milliseconds: int, options: BrokerOptions) -> float:
    if milliseconds == -1:
        return 0.0
    if milliseconds == 0:
        return options.heartbeat_interval
    if not _MINIMUM_HEARTBEAT <= milliseconds <= options.max_heartbeat_interval * _MILLISECONDS:
        raise CommandError("E_BAD_BODY", f"IDENTIFY heartbeat interval ({milliseconds}) is invalid")
    return milliseconds / _MILLISECONDS


def _msg_timeout(milliseconds: int, options: BrokerOptions) -> float:
    if not 0 <= milliseconds <= options.max_msg_timeout * _MILLISECONDS:
        raise CommandError("E_BAD_BODY", f"IDENTIFY msg timeout ({milliseconds}) is invalid")
    return milliseconds / _MILLISECONDS
