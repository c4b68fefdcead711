"""The engines of `up`: embedded ones, or those that the environment names, one by one."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import asyncpg
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from devengines.nsqd import DevbrokerProcess, NsqdProcess, build_nsqd
from devengines.postgres import PostgresProcess
from devengines.valkey import ValkeyProcess
from servicekit.errors import ServiceError
from servicekit.nsq.admin import NsqAdmin
from servicekit.settings import NsqSettings
from servicekit.sqlstate import POSTGRES_ERRORS
from servicekit.values import hide_passwords
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.up.options import Broker, UpOptions
from sluicegate_cli.up.screen import Row, Screen

_SECONDS = 5.0
_LOUD = """\
************************************************************************
* NO nsqd HERE: the embedded development broker is used. It keeps
* messages in memory only: what waits there is lost when it ends badly.
* Install nsqd 1.3.0, or Go so that it can be built.
************************************************************************"""


class Engine(Protocol):
    """A process that can be started again."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def running(self) -> bool:
        """Say whether it lives."""
        ...

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        ...

    @property
    def log_path(self) -> Path:
        """Everything it wrote."""
        ...

    def start(self) -> None:
        """Start on the same ports and data as before; blocks."""
        ...

    def stop(self) -> int | None:
        """End it; blocks."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


@dataclass(slots=True)
class Engines:
    """Addresses of the engines, and those that are ours to stop, in start order."""

    postgres_dsn: str = ""
    redis_url: str = ""
    redis_keeps_leases: bool = False
    nsqd: str = ""
    nsqd_http: str = ""
    durable_broker: bool = True
    own: list[Engine] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def nsq_settings(self) -> NsqSettings:
        """Where the broker is."""
        return NsqSettings(nsqd_tcp=self.nsqd, nsqd_http=self.nsqd_http)


async def start_engines(engines: Engines, options: UpOptions, screen: Screen) -> None:
    """Start or find every engine; fills `engines` step by step, so that what was started can always be stopped.

    Raises:
        CommandError: an engine that the environment names can't be reached.
        EngineError: an embedded one is missing or does not start.
    """
    await _postgres(engines, options)
    await _redis(engines, options)
    await _broker(engines, options, screen)


def stop_engines(engines: Engines) -> Iterator[str]:
    """Stop our engines in reverse order; yields each name when it is down. Blocks."""
    for engine in reversed(engines.own):
        engine.stop()
        yield engine.name


async def _postgres(engines: Engines, options: UpOptions) -> None:
    external = os.environ.get("SLUICEGATE_POSTGRES_DSN", "")
    if external:
        engines.postgres_dsn = external
        await _check_postgres(external)
        engines.rows.append(Row("PostgreSQL", hide_passwords(external), "yours"))
        return
    server = PostgresProcess(options.data_dir / "postgres")
    engines.own.append(server)
    server.start()
    engines.postgres_dsn = server.dsn
    engines.rows.append(Row("PostgreSQL", f"127.0.0.1:{server.port}", f"embedded, pid {server.pid}"))


async def _redis(engines: Engines, options: UpOptions) -> None:
    external = os.environ.get("SLUICEGATE_REDIS_URL", "")
    if external:
        engines.redis_url = external
        await _check_redis(external)
        engines.rows.append(Row("Redis", hide_passwords(external), "yours"))
        return
    server = ValkeyProcess(options.data_dir / "valkey", durable=True)
    engines.own.append(server)
    server.start()
    engines.redis_url = server.url
    engines.redis_keeps_leases = True  # one durable server without replicas
    engines.rows.append(Row("Valkey", f"127.0.0.1:{server.port}", f"embedded, pid {server.pid}"))


async def _broker(engines: Engines, options: UpOptions, screen: Screen) -> None:
    external = os.environ.get("SLUICEGATE_NSQD", "")
    if external:
        engines.nsqd = external
        engines.nsqd_http = os.environ.get("SLUICEGATE_NSQD_HTTP") or _next_port(external)
        await _check_nsqd(engines)
        engines.rows.append(Row("nsqd", external, "yours"))
        return
    broker = _own_broker(options, screen)
    engines.own.append(broker)
    broker.start()
    engines.nsqd, engines.nsqd_http = broker.tcp_address, broker.http_address
    engines.durable_broker = broker.durable
    kind = "embedded" if broker.durable else "DEVELOPMENT BROKER, not durable"
    engines.rows.append(Row(broker.name, broker.tcp_address, f"{kind}, pid {broker.pid}"))


def _own_broker(options: UpOptions, screen: Screen) -> NsqdProcess | DevbrokerProcess:
    if options.broker is not Broker.DEVBROKER:
        if not shutil.which("nsqd"):
            screen.say(
                "nsqd is not on PATH: looking for one that was built before, or building it with Go (once)"
            )
        binary = build_nsqd()
        if binary is not None:
            return NsqdProcess(options.data_dir / "nsqd", binary=binary)
        if options.broker is Broker.NSQD:
            raise CommandError(
                "there is no nsqd and it can't be built: install nsqd 1.3.0 or Go 1.21, or use --broker auto"
            )
    screen.say(_LOUD)
    return DevbrokerProcess(options.data_dir / "devbroker")


async def _check_postgres(dsn: str) -> None:
    try:
        connection = await asyncpg.connect(dsn, timeout=_SECONDS)
        await connection.close()
    except (OSError, *POSTGRES_ERRORS, ValueError, TimeoutError) as error:
        raise _away("PostgreSQL", dsn, "SLUICEGATE_POSTGRES_DSN", error) from error


async def _check_redis(url: str) -> None:
    try:
        client = redis.asyncio.Redis.from_url(url, socket_timeout=_SECONDS, retry=Retry(NoBackoff(), 0))
        try:
            await client.ping()
        finally:
            await client.aclose()
    except (TimeoutError, OSError, redis.RedisError, ValueError) as error:
        raise _away("Redis", url, "SLUICEGATE_REDIS_URL", error) from error


async def _check_nsqd(engines: Engines) -> None:
    try:
        await NsqAdmin(engines.nsq_settings).ping()
    except (ServiceError, ValueError) as error:
        where = f"{engines.nsqd_http} (HTTP; set SLUICEGATE_NSQD_HTTP if it is elsewhere)"
        raise _away("nsqd", where, "SLUICEGATE_NSQD", error) from error


def _away(what: str, where: str, variable: str, error: Exception) -> CommandError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CommandError(
        f"{what} at {hide_passwords(where)} can't be used: {hide_passwords(reason)}\n"
        f"Start it, correct {variable}, or unset {variable} to use an embedded one.",
        ExitCode.UNREACHABLE,
    )


def _next_port(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise CommandError(f"SLUICEGATE_NSQD should be host:port, not {address}", ExitCode.BAD_INPUT)
    return f"{host}:{int(port) + 1}"
