"""Say where nsqd is and how patiently it is used."""

from dataclasses import dataclass
from typing import Protocol


class NsqAddresses(Protocol):
    """Name the two addresses of one nsqd as `host:port`."""

    @property
    def nsqd_tcp(self) -> str:
        """The address of protocol V2."""

    @property
    def nsqd_http(self) -> str:
        """The address of the HTTP interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NsqTuning:
    """Time limits in seconds and sizes in bytes; the defaults suit nsqd 1.3.0 with its default sizes.

    Attributes:
        connect_seconds: limit for resolving, connecting and negotiating.
        publish_seconds: limit from `publish()` to nsqd's OK.
        heartbeat_seconds: what nsqd is asked to send; silence of twice that ends the connection. 1 to 60.
        reconnect_minimum: shortest wait before connecting again.
        reconnect_maximum: longest wait before connecting again.
        start_seconds: how long `start()` waits for the first connection before it goes on without.
        drain_seconds: how long `drain()` lets handlers finish.
        touch_seconds: how often what is in hand is touched so that nsqd does not give it to someone else.
        failure_delay: after how long nsqd delivers again what a handler failed on.
        status_seconds: how often each connection logs its state.
        max_message_bytes: nsqd's --max-msg-size.
        max_body_bytes: nsqd's --max-body-size, the limit of one MPUB.
        batch_bytes: most bytes that concurrent publishes are combined to.
        batch_messages: most messages that concurrent publishes are combined to.
        window: most publish commands on the wire without an answer; later ones wait and are combined.
        queue_bytes: most bytes waiting to be published; beyond it `publish()` waits.
    """

    connect_seconds: float = 2.0
    publish_seconds: float = 3.0
    heartbeat_seconds: int = 5
    reconnect_minimum: float = 0.5
    reconnect_maximum: float = 2.0
    start_seconds: float = 1.0
    drain_seconds: float = 20.0
    touch_seconds: float = 20.0
    failure_delay: float = 5.0
    status_seconds: float = 60.0
    max_message_bytes: int = 1024 * 1024
    max_body_bytes: int = 5 * 1024 * 1024
    batch_bytes: int = 512 * 1024
    batch_messages: int = 500
    window: int = 4
    queue_bytes: int = 32 * 1024 * 1024


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 host may stand in brackets.

    Raises:
        ValueError: there is no port.
    """
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
