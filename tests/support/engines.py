"""Engines of the test session: started once, on free ports, ended with it; a missing one is an explicit skip."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import redis

from devengines.errors import EngineMissingError
from devengines.migrate import migrate
from devengines.nsqd import DevbrokerProcess, NsqdProcess, build_nsqd
from devengines.postgres import PostgresProcess
from devengines.valkey import DATABASES, ValkeyProcess

Made = TypeVar("Made")

ENGINES = ("postgresql", "valkey", "nsqd", "chromium", "node", "dbmate")
TEMPLATE = "template_migrated"

_numbers = itertools.count(1)


def made_or_skipped(make: Callable[[], Made]) -> Made:
    """Return what `make` makes; skips the test when its engine is not installed."""
    try:
        return make()
    except EngineMissingError as error:
        pytest.skip(f"missing engine: {error}")


@pytest.fixture(scope="session")
def engines_folder() -> Iterator[Path]:
    """The folder of the session's engines: data and logs.

    Not below pytest's own folder: another run by the same user closes that to PostgreSQL's unprivileged user.
    """
    with tempfile.TemporaryDirectory(prefix="sluicegate-engines-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="session")
def postgres_server(engines_folder: Path) -> Iterator[PostgresProcess]:
    """One PostgreSQL without durability; holds no tables outside the template and the tests' copies."""
    server = made_or_skipped(lambda: PostgresProcess(engines_folder / "postgres", fast=True))
    server.start()
    yield server
    server.proceed()
    server.stop()


@pytest.fixture(scope="session")
def migrated_template(postgres_server: PostgresProcess) -> str:
    """The name of a database in which every migration was applied; nobody may connect to it."""
    dsn = postgres_server.create_database(TEMPLATE)
    made_or_skipped(lambda: migrate(dsn))
    return TEMPLATE


@pytest.fixture
def database(postgres_server: PostgresProcess, migrated_template: str) -> Iterator[str]:
    """The address of a migrated, empty database that this test alone has."""
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name, template=migrated_template)
    postgres_server.drop_database(name)


@pytest.fixture
def empty_database(postgres_server: PostgresProcess) -> Iterator[str]:
    """The address of a database without any table that this test alone has."""
    name = f"empty_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def valkey_server(engines_folder: Path) -> Iterator[ValkeyProcess]:
    """One Valkey that never evicts and keeps nothing over a restart."""
    server = made_or_skipped(lambda: ValkeyProcess(engines_folder / "valkey"))
    server.start()
    yield server
    server.proceed()
    server.stop()


@pytest.fixture
def redis_url(valkey_server: ValkeyProcess) -> str:
    """The address of an empty logical database; 63 tests later it is used again."""
    url = valkey_server.url_of(1 + next(_numbers) % (DATABASES - 1))
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture(scope="session")
def nsqd_server(engines_folder: Path) -> Iterator[NsqdProcess]:
    """One real nsqd."""
    binary = build_nsqd()
    if binary is None:
        pytest.skip("missing engine: nsqd is neither on PATH nor can it be built with go")
    server = NsqdProcess(engines_folder / "nsqd", binary=binary)
    server.start()
    yield server
    server.proceed()
    server.stop()


@pytest.fixture(scope="session")
def devbroker_server(engines_folder: Path) -> Iterator[DevbrokerProcess]:
    """One development broker."""
    server = DevbrokerProcess(engines_folder / "devbroker")
    server.start()
    yield server
    server.proceed()
    server.stop()


@pytest.fixture(scope="session", params=["nsqd", "devbroker"])
def broker_server(request: pytest.FixtureRequest) -> NsqdProcess | DevbrokerProcess:
    """Each broker in turn."""
    server: NsqdProcess | DevbrokerProcess = request.getfixturevalue(f"{request.param}_server")
    return server


def missing_engines(reasons: list[str]) -> dict[str, int]:
    """Count the skipped tests per engine that they name."""
    counts: dict[str, int] = {}
    for reason in reasons:
        for engine in ENGINES:
            if engine in reason.lower():
                counts[engine] = counts.get(engine, 0) + 1
                break
    return counts
