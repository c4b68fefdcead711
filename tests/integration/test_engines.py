"""The embedded engines: clean and dirty ends, fixtures, migrations."""

import os
import signal
from pathlib import Path

import asyncpg
import pytest
import redis

from devengines.errors import EngineError
from devengines.migrate import migrate, pending
from devengines.postgres import PostgresProcess
from devengines.valkey import ValkeyProcess
from tests.support.engines import made_or_skipped, missing_engines
from tests.support.waiting import eventually


async def test_a_database_is_a_copy_of_the_migrated_template(database: str) -> None:
    connection = await asyncpg.connect(database)
    try:
        assert await connection.fetchval("SELECT count(*) FROM schema_migrations") > 0
    finally:
        await connection.close()


def test_all_migrations_are_applied_and_nothing_is_left(empty_database: str) -> None:
    applied = made_or_skipped(lambda: migrate(empty_database))
    assert applied == sorted(applied)
    assert migrate(empty_database) == []
    assert pending(empty_database) == []


def test_a_broken_migration_names_its_file_and_what_the_database_said(
    empty_database: str, tmp_path: Path
) -> None:
    (tmp_path / "20260101000000_broken.sql").write_text(
        "-- migrate:up\nSELECT no_such_thing;\n-- migrate:down\n"
    )
    with pytest.raises(EngineError, match=r"20260101000000_broken\.sql.*no_such_thing"):
        migrate(empty_database, tmp_path)


def test_an_unreachable_database_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "20260101000000_any.sql").write_text("-- migrate:up\n-- migrate:down\n")
    with pytest.raises(EngineError, match="refused"):
        migrate("postgresql://nobody@127.0.0.1:1/none", tmp_path)


def test_redis_databases_are_empty_and_apart(redis_url: str, valkey_server: ValkeyProcess) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("a", "1")
        assert client.dbsize() == 1
    with redis.Redis.from_url(valkey_server.url) as other:
        assert other.get("a") is None


def test_postgres_keeps_its_data_over_kill_and_restart_on_the_same_port(tmp_path: Path) -> None:
    server = made_or_skipped(lambda: PostgresProcess(tmp_path / "postgres"))
    server.start()
    port = server.port
    server.create_database("kept")
    server.kill()
    server.start()
    assert (server.port, server.has_database("kept")) == (port, True)
    assert server.stop() == 0
    assert not server.running


def test_valkey_keeps_its_data_over_a_clean_restart(tmp_path: Path) -> None:
    server = made_or_skipped(lambda: ValkeyProcess(tmp_path / "valkey", durable=True))
    server.start()
    with redis.Redis.from_url(server.url) as client:
        client.set("a", "1")
    server.stop()
    server.start()
    with redis.Redis.from_url(server.url) as client:
        assert client.get("a") == b"1"
    server.stop()


@pytest.mark.parametrize("engine", [PostgresProcess, ValkeyProcess])
def test_a_left_over_server_on_the_same_data_is_ended(
    tmp_path: Path, engine: type[PostgresProcess | ValkeyProcess]
) -> None:
    first = made_or_skipped(lambda: engine(tmp_path / "data"))
    first.start()
    second = engine(tmp_path / "data")
    second.start()
    assert not first.running
    second.stop()


@pytest.mark.parametrize("engine", [PostgresProcess, ValkeyProcess])
async def test_a_stale_pid_file_does_not_block_a_start(
    tmp_path: Path, engine: type[PostgresProcess | ValkeyProcess]
) -> None:
    server = made_or_skipped(lambda: engine(tmp_path / "data"))
    server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not server.running)
    (tmp_path / "data" / f"{server.name}.pid").write_text(f"{os.getpid()}\n")
    lock = tmp_path / "data" / "cluster" / "postmaster.pid"
    if lock.exists():
        lines = lock.read_text().splitlines()
        lock.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    server.start()
    assert server.running
    server.stop()


def test_a_taken_port_is_named(tmp_path: Path, valkey_server: ValkeyProcess) -> None:
    server = ValkeyProcess(tmp_path / "valkey", port=valkey_server.port)
    with pytest.raises(EngineError, match="valkey did not start"):
        server.start()


def test_skips_are_counted_by_missing_engine() -> None:
    reasons = ["missing engine: nsqd is not on PATH", "Skipped: nsqd is neither", "no real data"]
    assert missing_engines(reasons) == {"nsqd": 2}
