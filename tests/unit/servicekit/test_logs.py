import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from servicekit import logs, telemetry
from servicekit.settings import LogSettings, ServiceSettings, TelemetrySettings
from servicekit.values import SecretUrl

CANARY = "canary-77aa31"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.setup(LogSettings(), service="test", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logs._known_secrets.clear()


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json(stream: io.StringIO) -> None:
    logs.get_logger("somewhere").info("claimed", cards=3)
    (event,) = events(stream)
    assert event.pop("at").endswith("Z")
    assert event == {
        "event": "claimed",
        "cards": 3,
        "level": "info",
        "logger": "somewhere",
        "service": "test",
    }


def test_what_libraries_log_takes_the_same_way(stream: io.StringIO) -> None:
    logging.getLogger("library").warning("connection to %s", f"redis://:{CANARY}@host lost")
    (event,) = events(stream)
    assert event["event"] == "connection to redis://:***@host lost"


def test_a_span_is_named(stream: io.StringIO, tmp_path: Any) -> None:
    telemetry.setup("test", TelemetrySettings(span_store_path=tmp_path / "spans.db"))
    with telemetry.traced("work") as span:
        logs.get_logger("a").info("inside")
    telemetry.shutdown()
    (event,) = events(stream)
    assert event["trace_id"] == format(span.get_span_context().trace_id, "032x")


@pytest.mark.parametrize(
    "fields",
    [
        {"password": CANARY},
        {"redis_password": CANARY},
        {"Authorization": f"Bearer {CANARY}"},
        {"api_key": CANARY},
        {"refresh_token": CANARY},
        {"header": f"bearer {CANARY}"},
        {"value": SecretStr(CANARY)},
        {"dsn": SecretUrl(f"postgresql://u:{CANARY}@h/d")},
        {"address": f"postgresql://u:{CANARY}@h/d"},
        {"nested": {"credentials": [CANARY], "deep": [{"secret": CANARY}]}},
        {"text": f'{{"password": "{CANARY}"}}'},
        {"text": f"host=h password={CANARY} user=u"},
        {"text": f"https://h/d?password={CANARY}&x=1"},
    ],
)
def test_no_secret_is_logged(stream: io.StringIO, fields: dict[str, Any]) -> None:
    logs.get_logger("a").info("event", **fields)
    assert len(events(stream)) == 1
    assert CANARY not in stream.getvalue()


def test_a_known_secret_is_found_anywhere(stream: io.StringIO) -> None:
    logs.remember_secrets(
        ServiceSettings.from_environment(
            {
                "SLUICEGATE_AUTH_TOKEN": CANARY,
                "SLUICEGATE_AUTH_MODE": "token",
                "SLUICEGATE_POSTGRES_DSN": "postgresql://u:dsn-canary-1@h/d",
            }
        )
    )
    try:
        int(f"it was {CANARY}")
    except ValueError:
        logs.get_logger("a").exception("failed", note=["x", f"<{CANARY}>", "dsn-canary-1"])
    logging.getLogger("library").error("%s", {"k": CANARY})
    text = stream.getvalue()
    assert "Traceback" in text
    assert "ValueError" in text
    assert CANARY not in text
    assert "dsn-canary-1" not in text


def test_plain_fields_stay(stream: io.StringIO) -> None:
    logs.get_logger("a").info(
        "event", card_id="c1", count=2, ratio=0.5, none=None, flag=True, url="http://h/p"
    )
    (event,) = events(stream)
    assert {key: event[key] for key in ("card_id", "count", "ratio", "none", "flag", "url")} == {
        "card_id": "c1",
        "count": 2,
        "ratio": 0.5,
        "none": None,
        "flag": True,
        "url": "http://h/p",
    }


def test_the_console_form_is_readable(stream: io.StringIO) -> None:
    logs.setup(LogSettings(as_json=False), service="test", stream=stream)
    logs.get_logger("a").warning("slow flush", seconds=2, why="disk is busy", password=CANARY)
    line = stream.getvalue()
    assert "WARNING test slow flush" in line
    assert "why='disk is busy'" in line
    assert CANARY not in line


def test_the_level_counts(stream: io.StringIO) -> None:
    logs.setup(LogSettings(level="ERROR"), service="test", stream=stream)
    logs.get_logger("a").warning("no")
    logging.getLogger("b").warning("no")
    assert stream.getvalue() == ""
