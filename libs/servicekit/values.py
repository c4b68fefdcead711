"""Value types of the settings: durations, addresses and addresses that hold a secret."""

import ipaddress
import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, Secret

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PASSWORD_IN_URL = re.compile(r"(?P<before>[a-zA-Z][\w+.-]*://[^\s/@:]*:)[^\s/]+(?=@)")
_PASSWORD_IN_QUERY = re.compile(
    r"(?P<before>[?&](?:password|sslpassword|token|secret)=)[^&\s]+", re.IGNORECASE
)
_HOST_PORT = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_MAX_PORT = 65535


class SecretUrl(Secret[str]):
    """An address that may hold a password: only the password is hidden when it is printed."""

    def _display(self) -> str:
        return hide_passwords(self.get_secret_value())


def hide_passwords(text: str) -> str:
    """Replace the password of every URL in a text by ``***``; the rest stays readable."""
    if "://" not in text:
        return text
    return _PASSWORD_IN_QUERY.sub(r"\g<before>***", _PASSWORD_IN_URL.sub(r"\g<before>***", text))


def parse_duration(value: Any) -> Any:
    """Read ``500ms``, ``30s``, ``5m``, ``2h``, ``1d`` or a number of seconds; leave anything else to pydantic."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return timedelta(seconds=float(match[1]) * _UNIT_SECONDS[match[2] or "s"])
    return value


def is_loopback(host: str) -> bool:
    """Tell whether a server that binds this host can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_host_port(value: str) -> str:
    match = _HOST_PORT.fullmatch(value)
    if match is None or not 0 < int(match[1]) <= _MAX_PORT:
        raise ValueError('should be "host:port" with a port from 1 to 65535')
    return value


def _show_seconds(value: timedelta) -> str:
    return f"{value.total_seconds():g}s"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    Field(ge=timedelta(0), le=timedelta(days=366)),
    PlainSerializer(_show_seconds, return_type=str, when_used="json"),
]
"""A span of time; written ``500ms``, ``30s``, ``5m``, ``2h``, ``1d`` or as seconds; never negative."""

HostPort = Annotated[str, AfterValidator(_check_host_port)]
"""``host:port``; an IPv6 host in brackets."""

Port = Annotated[int, Field(ge=0, le=_MAX_PORT)]
"""A TCP port; 0 means any free one."""
