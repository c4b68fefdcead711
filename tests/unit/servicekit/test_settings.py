import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servicekit.entry import main
from servicekit.environment import SHARED_NAMES, VariableError
from servicekit.settings import (
    AuthSettings,
    Block,
    GrpcServerSettings,
    ServiceSettings,
    problems,
    redacted,
)
from servicekit.values import hide_passwords, is_loopback, parse_duration

CANARY = "canary-9f31c2"


class DeepBlock(Block):
    names: tuple[str, ...] = ("a",)
    weight: int = 1


class Settings(ServiceSettings):
    service_name: ClassVar[str] = "lease_service"

    grpc: GrpcServerSettings = GrpcServerSettings(port=7101)
    slots: DeepBlock = DeepBlock(weight=5)


def read(**variables: str) -> Settings:
    return Settings.from_environment(variables)


def problems_of(**variables: str) -> list[str]:
    with pytest.raises((ValidationError, VariableError)) as caught:
        read(**variables)
    return problems(Settings, caught.value)


def test_a_block_set_in_part_keeps_its_other_defaults() -> None:
    settings = read(LEASE_SERVICE_GRPC__HOST="localhost", LEASE_SERVICE_SLOTS__NAMES="x, y")
    assert (settings.grpc.host, settings.grpc.port) == ("localhost", 7101)
    assert settings.slots == DeepBlock(names=("x", "y"), weight=5)


def test_own_names_win_over_shared_ones() -> None:
    settings = read(
        SLUICEGATE_POSTGRES_DSN="postgresql://shared/db", LEASE_SERVICE_POSTGRES__DSN="postgresql://own/db"
    )
    assert settings.postgres.dsn.get_secret_value() == "postgresql://own/db"


def test_every_shared_name_reaches_a_setting() -> None:
    values = {"LOG_LEVEL": "DEBUG", "LOG_JSON": "false", "AUTH_MODE": "token", "AUTH_TOKEN": CANARY}
    default = read()
    for name, path in SHARED_NAMES.items():
        variables = {name: values.get(name.removeprefix("SLUICEGATE_"), "example.org:99")}
        if name == "SLUICEGATE_AUTH_MODE":
            variables["SLUICEGATE_AUTH_TOKEN"] = CANARY
        settings: Any = read(**variables)
        before: Any = default
        for part in path:
            settings, before = getattr(settings, part), getattr(before, part)
        assert settings != before, name


def test_secrets_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(CANARY + "\n")
    settings = read(SLUICEGATE_AUTH_TOKEN_FILE=str(tmp_path / "token"), LEASE_SERVICE_AUTH__MODE="token")
    assert settings.auth.token is not None
    assert settings.auth.token.get_secret_value() == CANARY
    own = read(LEASE_SERVICE_AUTH__TOKEN_FILE=str(tmp_path / "token"), LEASE_SERVICE_AUTH__MODE="token")
    assert own.auth == settings.auth


def test_nothing_else_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASE_SERVICE_GRPC__PORT", "1")
    assert read().grpc.port == 7101
    assert Settings().grpc.port == 1


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read(SLUICEGATE_SPAN_STORE="", LEASE_SERVICE_GRPC__PORT="").grpc.port == 7101


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {"LEASE_SERVICE_GRPC__PROT": "1"},
            "LEASE_SERVICE_GRPC__PROT: there is no such setting; correct the name or remove it",
        ),
        (
            {"LEASE_SERVICE_GRPC": "1"},
            "LEASE_SERVICE_GRPC: there is no such setting; correct the name or remove it",
        ),
        (
            {"LEASE_SERVICE_GRPC__PORT": "70000"},
            "LEASE_SERVICE_GRPC__PORT: Input should be less than or equal to 65535",
        ),
        (
            {"SLUICEGATE_NSQD": "nowhere"},
            'LEASE_SERVICE_NSQ__NSQD_TCP or SLUICEGATE_NSQD: should be "host:port" with a port from 1 to 65535',
        ),
        (
            {"SLUICEGATE_AUTH_TOKEN_FILE": "/nowhere/token"},
            "SLUICEGATE_AUTH_TOKEN_FILE: can't read the file /nowhere/token: No such file or directory",
        ),
        (
            {"SLUICEGATE_REDIS_URL": "redis://a", "SLUICEGATE_REDIS_URL_FILE": "/b"},
            "SLUICEGATE_REDIS_URL: SLUICEGATE_REDIS_URL_FILE is set too; set only one of them",
        ),
        ({"SLUICEGATE_AUTH_MODE": "token"}, "LEASE_SERVICE_AUTH: mode is token but no token is set"),
    ],
)
def test_a_problem_names_its_variable(variables: dict[str, str], expected: str) -> None:
    assert problems_of(**variables) == [expected]


def test_no_sign_in_is_refused_on_an_open_address() -> None:
    (line,) = problems_of(LEASE_SERVICE_GRPC__HOST="0.0.0.0")
    assert "SLUICEGATE_AUTH_MODE=token" in line
    assert read(
        LEASE_SERVICE_GRPC__HOST="0.0.0.0", SLUICEGATE_AUTH_MODE="token", SLUICEGATE_AUTH_TOKEN=CANARY
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS__SOCKET_TIMEOUT", "801ms"),
        ("REDIS__SOCKET_TIMEOUT", "0"),
        ("POSTGRES__MAX_SIZE", "0"),
        ("POSTGRES__MIN_SIZE", "11"),
        ("GRPC__PORT", "-1"),
        ("TELEMETRY__SAMPLE_RATIO", "1.5"),
        ("LOG__LEVEL", "LOUD"),
        ("DRAIN_TIMEOUT", "-1"),
    ],
)
def test_numbers_are_bounded(name: str, value: str) -> None:
    assert len(problems_of(**{"LEASE_SERVICE_" + name: value})) == 1


def test_secrets_are_in_no_dump() -> None:
    settings = read(
        SLUICEGATE_POSTGRES_DSN=f"postgresql://user:{CANARY}@host:5432/db",
        SLUICEGATE_REDIS_URL=f"redis://:{CANARY}@host",
        SLUICEGATE_AUTH_TOKEN=CANARY,
        SLUICEGATE_AUTH_MODE="token",
    )
    for text in (redacted(settings), repr(settings), str(settings)):
        assert CANARY not in text
    assert json.loads(redacted(settings))["postgres"]["dsn"] == "postgresql://user:***@host:5432/db"


def test_a_wrong_secret_is_in_no_message() -> None:
    assert CANARY not in str(problems_of(LEASE_SERVICE_GRPC__PORT=CANARY))


def test_settings_are_frozen() -> None:
    settings = read()
    with pytest.raises(ValidationError):
        settings.auth = AuthSettings()
    with pytest.raises(ValidationError):
        settings.auth.mode = "token"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1.5", 1.5), (" 7 s ", 7)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert read(LEASE_SERVICE_DRAIN_TIMEOUT=text).drain_timeout == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected


@given(st.text(st.characters(codec="ascii", exclude_characters=" /@\n\t\r", min_codepoint=33), min_size=6))
def test_a_password_in_a_url_is_hidden_whatever_it_is(password: str) -> None:
    shown = hide_passwords(f"see postgresql://user:{password}@host/db now")
    assert shown == "see postgresql://user:***@host/db now"


def run_main(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(Settings, lambda _settings: pytest.fail("not to be built"), arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_check_config_prints_and_leaves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith(("SLUICEGATE_", "LEASE_SERVICE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLUICEGATE_REDIS_URL", f"redis://:{CANARY}@host")
    assert run_main(["--check-config"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["grpc"]["port"] == 7101
    assert CANARY not in printed


def test_a_wrong_environment_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEASE_SERVICE_GRPC__PORT", "many")
    assert run_main([]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lease_service: LEASE_SERVICE_GRPC__PORT: ")
    assert "Traceback" not in error
