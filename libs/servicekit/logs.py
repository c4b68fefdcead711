"""Structured logs: one line per event, with trace ids, and with no secret in it.

Secrets are kept out three times: values of secret types hide themselves, values under telling names are replaced, and
the finished line is searched for every secret that the settings hold.
"""

import logging
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TextIO

import structlog
from opentelemetry import trace
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from servicekit.settings import LogSettings
from servicekit.values import hide_passwords

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:password|passwd|secret|token|authorization|cookie|credential|credentials|dsn|api_?key|private_?key)$",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"\b(password|passwd|secret|api_?key|token)(\"?'?\s*[=:]\s*\"?'?)[^\s\"',;&}\])]+", re.IGNORECASE
)
_NEEDLES = frozenset("=: \t\n\r\v\f")
"""Every text that one of the expressions matches holds one of these."""
_SHORTEST_SECRET = 6
_QUIET = ("asyncio", "aiohttp.access", "tornado.access")

_known_secrets: set[str] = set()

Event = MutableMapping[str, Any]


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module; call it with an event name and fields: ``log.info("claimed", cards=3)``."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def setup(settings: LogSettings, *, service: str, stream: TextIO | None = None) -> None:
    """Send everything that is logged in this process, also by libraries, through one redacting formatter.

    Lines go to ``stream``, by default standard error. Calling it again replaces what was set before.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        _service_adder(service),
        _add_trace_ids,
        structlog.processors.format_exc_info,
        _redact_event,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    renderer = structlog.processors.JSONRenderer(default=str) if settings.as_json else _render_console
    formatter = _RedactingFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def remember_secrets(settings: BaseModel) -> None:
    """Make the last filter hide every secret value that the settings hold, wherever it turns up."""
    _known_secrets.update(value for value in _secrets_in(settings) if len(value) >= _SHORTEST_SECRET)


def redact_text(text: str) -> str:
    """Return a text without known secrets, passwords in URLs, bearer tokens and ``password=`` values."""
    for secret in _known_secrets:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    if _NEEDLES.isdisjoint(text):
        return text  # most values are plain ids: the expressions below can't match them
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    return hide_passwords(_ASSIGNED.sub(rf"\1\2{HIDDEN}", text))


def redact(value: Any, name: str = "") -> Any:
    """Return a copy of a JSON-like value in which secrets, by type or by name, are hidden."""
    if isinstance(value, Secret | SecretStr | SecretBytes):
        return str(value)
    if name and value is not None and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: redact(item, str(key)) for key, item in value.items()}
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [redact(item) for item in value]
    return value


class _RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        for secret in _known_secrets:
            if secret in line:
                line = line.replace(secret, HIDDEN)
        return line


def _service_adder(service: str) -> Any:
    def add(_logger: Any, _method: str, event: Event) -> Event:
        event["service"] = service
        return event

    return add


def _add_trace_ids(_logger: Any, _method: str, event: Event) -> Event:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = format(context.trace_id, "032x")
        event["span_id"] = format(context.span_id, "016x")
    return event


def _redact_event(_logger: Any, _method: str, event: Event) -> Event:
    for key, value in event.items():
        if not key.startswith("_"):
            event[key] = redact(value, key)
    return event


def _render_console(_logger: Any, _method: str, event: Event) -> str:
    exception = event.pop("exception", None)
    at, level, service, text = (str(event.pop(key, "")) for key in ("at", "level", "service", "event"))
    head = f"{at} {level.upper():<7} {service} {text}"
    fields = " ".join(f"{key}={_plain(value)}" for key, value in event.items())
    line = f"{head} {fields}".rstrip()
    return f"{line}\n{exception}" if exception else line


def _plain(value: Any) -> str:
    text = str(value)
    return repr(text) if " " in text or not text else text


def _secrets_in(model: BaseModel) -> Iterable[str]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _secrets_in(value)
        elif isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, Secret):
            yield from _passwords_in(str(value.get_secret_value()))


def _passwords_in(url: str) -> Iterable[str]:
    match = re.match(r"[a-zA-Z][\w+.-]*://[^\s/@:]*:([^\s/]+)@", url)
    if match:
        yield match[1]
