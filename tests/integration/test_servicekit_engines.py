"""`servicekit.postgres` and `servicekit.redis` on real engines that freeze, die and come back."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
import redis.exceptions

from devengines.postgres import PostgresProcess
from devengines.valkey import ValkeyProcess
from servicekit.errors import Reason, ServiceError
from servicekit.failures import service_error
from servicekit.postgres import Postgres
from servicekit.redis import NO_EVICTION, Redis, Script
from servicekit.settings import PostgresSettings, RedisSettings
from servicekit.sqlstate import POSTGRES_ERRORS, FailureClass, classify
from servicekit.values import SecretUrl
from tests.support.waiting import eventually

NOWHERE = "127.0.0.1:9"


@pytest.fixture(scope="module")
def postgres_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresProcess]:
    process = PostgresProcess(tmp_path_factory.mktemp("postgres"), fast=True)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def valkey_process(tmp_path: Path) -> Iterator[ValkeyProcess]:
    process = ValkeyProcess(tmp_path)
    process.start()
    yield process
    process.stop()


def postgres_settings(process: PostgresProcess, **changes: object) -> PostgresSettings:
    return PostgresSettings.model_validate({"dsn": process.dsn_of("postgres"), **changes})


@pytest.fixture
async def postgres(postgres_process: PostgresProcess) -> AsyncIterator[Postgres]:
    postgres = Postgres(
        postgres_settings(
            postgres_process,
            max_size=2,
            statement_timeout="300ms",
            lock_timeout="100ms",
            acquire_timeout="200ms",
        ),
        "servicekit-test",
    )
    await postgres.start()
    yield postgres
    await postgres.stop()


@pytest.fixture
async def valkey(valkey_process: ValkeyProcess) -> AsyncIterator[Redis]:
    client = Redis(
        RedisSettings(url=SecretUrl(valkey_process.url), socket_timeout=timedelta(milliseconds=300))
    )
    await client.start()
    yield client
    await client.stop()


async def test_the_session_is_set_up(postgres: Postgres) -> None:
    rows = await postgres.pool.fetchrow(
        "SELECT current_setting('application_name'), current_setting('statement_timeout'),"
        " current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),"
        " current_setting('timezone')"
    )
    assert rows is not None
    assert tuple(rows) == ("servicekit-test", "300ms", "100ms", "30s", "UTC")
    assert await postgres.health_check()


async def test_a_slow_statement_is_ended_by_the_database(postgres: Postgres) -> None:
    with pytest.raises(asyncpg.QueryCanceledError) as caught:
        await postgres.pool.execute("SELECT pg_sleep(30)")
    assert classify(caught.value) is FailureClass.RETRY_LATER


async def test_a_lock_is_waited_for_within_bounds(postgres: Postgres) -> None:
    await postgres.pool.execute("CREATE TABLE IF NOT EXISTS busy (id int)")
    async with postgres.transaction() as holder:
        await holder.execute("LOCK TABLE busy")
        with pytest.raises(asyncpg.LockNotAvailableError) as caught:
            await postgres.pool.execute("LOCK TABLE busy; SELECT 1")
    assert classify(caught.value) is FailureClass.RETRY_LATER


async def test_waiting_for_a_connection_is_bounded(postgres: Postgres) -> None:
    async with postgres.pool.acquire(), postgres.pool.acquire():
        with pytest.raises(ServiceError) as caught:
            await postgres.pool.fetchval("SELECT 1")
    assert caught.value.reason is Reason.DEPENDENCY_AWAY
    assert await postgres.pool.fetchval("SELECT 1") == 1


async def test_a_connection_comes_back_without_its_open_transaction(postgres: Postgres) -> None:
    async with postgres.pool.acquire() as connection:
        await connection.execute("BEGIN")
        await connection.execute("CREATE TABLE left_open (id int)")
    assert await postgres.pool.fetchval("SELECT to_regclass('left_open')") is None


async def test_cancelled_callers_leave_the_pool_whole(postgres: Postgres) -> None:
    for _ in range(10):
        tasks = [asyncio.create_task(postgres.pool.fetchval("SELECT pg_sleep(0.02)")) for _ in range(6)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    async with postgres.pool.acquire() as one, postgres.pool.acquire() as other:
        assert [await one.fetchval("SELECT 1"), await other.fetchval("SELECT 1")] == [1, 1]


async def test_bad_data_and_missing_partitions_are_told_apart(postgres: Postgres) -> None:
    await postgres.pool.execute(
        "CREATE TABLE parted (id int CONSTRAINT positive CHECK (id > 0)) PARTITION BY RANGE (id);"
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (-10) TO (10)"
    )
    found = []
    for value in (-1, 99):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await postgres.pool.execute("INSERT INTO parted VALUES ($1)", value)
        found.append(classify(caught.value))
    assert found == [FailureClass.DATA, FailureClass.NO_PARTITION]


async def test_connections_cut_by_the_server_are_replaced(postgres: Postgres) -> None:
    await postgres.pool.fetchval("SELECT 1")
    admin = Postgres(postgres._settings, "admin")
    await admin.start()
    await admin.pool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'servicekit-test'"
    )
    await admin.stop()

    async def works() -> bool:
        try:
            return bool(await postgres.pool.fetchval("SELECT 1"))
        except (*POSTGRES_ERRORS, OSError) as error:
            known = service_error(error)
            assert known is not None
            assert known.reason is Reason.DEPENDENCY_AWAY
            return False

    assert await eventually(works)


@pytest.mark.parametrize(
    ("dsn", "reason", "part"),
    [
        (
            f"postgresql://u:canary-1@{NOWHERE}/db",
            Reason.DEPENDENCY_AWAY,
            f"PostgreSQL at {NOWHERE}/db does not answer",
        ),
        ("nonsense://u:canary-1@h/db", Reason.WRONG_STATE, "the address of PostgreSQL can't be used"),
    ],
)
async def test_what_is_wrong_with_an_address_is_said(dsn: str, reason: Reason, part: str) -> None:
    with pytest.raises(ServiceError) as caught:
        await Postgres(PostgresSettings(dsn=SecretUrl(dsn)), "x").start()
    assert caught.value.reason is reason
    assert part in caught.value.message
    assert "canary-1" not in caught.value.message


@pytest.mark.parametrize(
    ("change", "code"), [(("sluicegate:", "nobody_here:"), "28"), (("/postgres", "/absent"), "3D000")]
)
async def test_a_refusal_is_final(
    postgres_process: PostgresProcess, change: tuple[str, str], code: str
) -> None:
    dsn = postgres_process.dsn_of("postgres").replace(*change)
    with pytest.raises(ServiceError) as caught:
        await Postgres(PostgresSettings(dsn=SecretUrl(dsn)), "x").start()
    assert caught.value.reason is Reason.WRONG_STATE
    assert f"SQLSTATE {code}" in caught.value.message


async def test_a_script_is_loaded_when_the_server_has_lost_it(valkey: Redis) -> None:
    script = Script.from_text("return {KEYS[1], ARGV[1]}", valkey)
    assert await script(keys=["k"], args=[7]) == [b"k", b"7"]
    await valkey.client.script_flush()
    assert await script(keys=["k"], args=["x"]) == [b"k", b"x"]


async def test_scripts_in_a_pipeline(valkey: Redis) -> None:
    script = Script.from_text("return redis.call('INCRBY', KEYS[1], ARGV[1])", valkey)
    await script.load()
    async with valkey.client.pipeline(transaction=False) as pipeline:
        for _ in range(3):
            script.queue(pipeline, keys=["n"], args=[2])
        assert await pipeline.execute() == [2, 4, 6]


async def test_health_is_what_a_write_would_meet(valkey: Redis) -> None:
    assert await valkey.health_check()
    assert await valkey.maxmemory_policy() == NO_EVICTION
    await valkey.client.execute_command("REPLICAOF", "127.0.0.1", "9")
    with pytest.raises(redis.exceptions.RedisError) as caught:
        await valkey.health_check()
    known = service_error(caught.value)
    assert known is not None
    assert known.reason is Reason.DEPENDENCY_AWAY
    await valkey.client.execute_command("REPLICAOF", "NO", "ONE")
    assert await valkey.health_check()


async def test_a_frozen_server_fails_a_call_once_and_soon(
    valkey: Redis, valkey_process: ValkeyProcess
) -> None:
    await valkey.client.set("n", 0)
    pid = valkey_process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(redis.exceptions.TimeoutError):
            await valkey.client.incr("n")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - began < 10 * 0.3, "one socket timeout, not ten retries"

    async def back() -> bool:
        try:
            return await valkey.health_check()
        except redis.exceptions.RedisError:
            return False

    await eventually(back)
    assert int(await valkey.client.get("n") or 0) <= 1, "never sent twice"


async def test_a_killed_server_is_found_again(valkey: Redis, valkey_process: ValkeyProcess) -> None:
    valkey_process.kill()
    with pytest.raises(redis.exceptions.ConnectionError):
        await valkey.client.get("n")
    valkey_process.start()

    async def back() -> bool:
        try:
            return await valkey.health_check()
        except redis.exceptions.RedisError:
            return False

    assert await eventually(back)


async def test_a_burst_waits_for_connections_instead_of_failing(valkey_process: ValkeyProcess) -> None:
    client = Redis(RedisSettings(url=SecretUrl(valkey_process.url), max_connections=4))
    answers = await asyncio.gather(*(client.client.incr("burst") for _ in range(200)))
    assert sorted(answers) == list(range(1, 201))
    await client.stop()


async def test_nobody_there_is_said() -> None:
    client = Redis(RedisSettings(url=SecretUrl(f"redis://:canary-1@{NOWHERE}/0")))
    with pytest.raises(ServiceError) as caught:
        await client.start()
    assert (
        caught.value.message == f"Redis at {NOWHERE}/0 does not answer; start it or set SLUICEGATE_REDIS_URL"
    )
    await client.stop()
