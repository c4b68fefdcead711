"""The deployment files, checked without any registry or daemon."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ruamel.yaml

from devengines.nsqd import NSQD_FLAGS
from tests.support.cli import clean_environment

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SERVICES = ("lease_service", "poller", "ingest_service", "collection_writer", "task_api", "export_worker")


def compose() -> dict[str, Any]:
    found: dict[str, Any] = ruamel.yaml.YAML(typ="safe").load(DEPLOY / "compose.yaml")
    return found


def variables(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_the_compose_file_is_valid() -> None:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("check-jsonschema"),
            *("--builtin-schema", "vendor.compose-spec"),
            DEPLOY / "compose.yaml",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_docker_compose_accepts_it() -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not on PATH")
    done = subprocess.run(
        [program, "-f", DEPLOY / "compose.yaml", "config", "-q"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_accepts_its_settings(service: str, tmp_path: Path) -> None:
    (tmp_path / "postgres_dsn").write_text("postgresql://sluicegate:canary-secret@postgres:5432/sluicegate")
    (tmp_path / "auth_token").write_text("canary-secret")
    given = variables(DEPLOY / "env" / "shared.env") | variables(DEPLOY / "env" / f"{service}.env")
    moved = {name: value.replace("/run/secrets", str(tmp_path)) for name, value in given.items()}
    done = subprocess.run(
        [sys.executable, "-m", service, "--check-config"],
        env=clean_environment(**moved),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "canary-secret" not in done.stdout + done.stderr


def test_every_environment_file_belongs_to_a_service() -> None:
    assert {path.stem for path in (DEPLOY / "env").glob("*.env")} == {"shared", *SERVICES}


def test_services_are_locked_down_drain_and_show_their_health() -> None:
    services = compose()["services"]
    for name in SERVICES:
        service = services[name]
        assert service["user"] == "10001:10001"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["healthcheck"]["test"][2:4] == ["-m", "sluicegate_cli.probe"]
        drain = variables(DEPLOY / "env" / f"{name}.env")[f"{name.upper()}_DRAIN_TIMEOUT"]
        assert seconds(service["stop_grace_period"]) > seconds(drain)
        for needed in ("migrate", "topics"):
            assert service["depends_on"][needed] == {"condition": "service_completed_successfully"}


def test_nothing_is_published_beyond_this_machine() -> None:
    ports = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_nsqd_runs_with_the_documented_flags() -> None:
    assert set(NSQD_FLAGS) <= set(compose()["services"]["nsqd"]["command"])


def test_prometheus_reads_every_service() -> None:
    found = ruamel.yaml.YAML(typ="safe").load(DEPLOY / "prometheus" / "prometheus.yml")
    targets = found["scrape_configs"][0]["static_configs"][0]["targets"]
    assert {target.split(":")[0] for target in targets} == set(SERVICES)


def test_secrets_are_made_once(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "make-secrets.sh", tmp_path)
    for _ in range(2):
        subprocess.run([tmp_path / "make-secrets.sh"], check=True, capture_output=True, env=dict(os.environ))
    password = (tmp_path / "secrets" / "postgres_password").read_text()
    assert re.fullmatch(r"[0-9a-f]{48}", password)
    assert password in (tmp_path / "secrets" / "postgres_dsn").read_text()
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700


def seconds(text: str) -> int:
    units = {"s": 1, "m": 60}
    return int(text[:-1]) * units[text[-1]]
