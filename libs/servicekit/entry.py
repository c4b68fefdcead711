"""What every ``__main__`` calls: settings, ``--check-config``, logs, traces, metrics, then the lifecycle."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, TypeVar

from pydantic import ValidationError

from servicekit import logs, telemetry
from servicekit.environment import VariableError
from servicekit.metrics import MetricsServer
from servicekit.process import App, run
from servicekit.settings import ServiceSettings, problems, redacted

EXIT_BAD_SETTINGS = 2

Settings = TypeVar("Settings", bound=ServiceSettings)


def main(
    settings_class: type[Settings], build: Callable[[Settings], App], arguments: Sequence[str] | None = None
) -> NoReturn:
    """Run one service and leave with its exit code: 0 stopped, 1 could not start, 2 the environment is wrong.

    ``--check-config`` prints the settings as JSON, secrets hidden, and leaves.

    Args:
        settings_class: read from the environment, once.
        build: the service's composition root; called inside the running event loop.
        arguments: the command line without the program; by default the process's own.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {settings_class.service_name}")
    parser.add_argument(
        "--check-config", action="store_true", help="print the settings, secrets hidden, and leave"
    )
    options = parser.parse_args(arguments)
    settings = _read(settings_class)
    if options.check_config:
        sys.stdout.write(redacted(settings) + "\n")
        sys.exit(0)
    logs.setup(settings.log, service=settings.service_name)
    logs.remember_secrets(settings)
    try:
        code = run(lambda: _with_shared_parts(settings, build))
    finally:
        telemetry.shutdown()
    sys.exit(code)


def _read(settings_class: type[Settings]) -> Settings:
    try:
        return settings_class()
    except (ValidationError, VariableError) as error:
        for line in problems(settings_class, error):
            sys.stderr.write(f"{settings_class.service_name}: {line}\n")
        sys.exit(EXIT_BAD_SETTINGS)


def _with_shared_parts(settings: Settings, build: Callable[[Settings], App]) -> App:
    telemetry.setup(settings.service_name, settings.telemetry)
    app = build(settings)
    components = list(app.components)
    if settings.metrics_port:
        variable = f"{settings.env_prefix()}METRICS_PORT"
        components.insert(0, MetricsServer(settings.metrics_host, settings.metrics_port, variable=variable))
    return replace(
        app,
        components=components,
        start_timeout=settings.start_timeout,
        drain_timeout=settings.drain_timeout,
    )
