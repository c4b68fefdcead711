"""Hold the broker's limits; the defaults are the ones this project runs nsqd 1.3.0 with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Limits of one broker: durations in seconds, sizes in bytes."""

    msg_timeout: float = 60.0
    max_msg_timeout: float = 900.0
    max_req_timeout: float = 3600.0
    max_msg_size: int = 1024 * 1024
    max_body_size: int = 5 * 1024 * 1024
    max_rdy_count: int = 2500
    heartbeat_interval: float = 30.0
    max_heartbeat_interval: float = 60.0
    queue_scan_interval: float = 0.05
