"""Ports for the services: the usual ones, or others when those are taken; never another than was asked for."""

from devengines.ports import free_port, is_free
from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.up.screen import Screen

GRPC_PORTS = {
    "lease_service": 7101,
    "poller": 7102,
    "ingest_service": 7103,
    "collection_writer": 7104,
    "task_api": 7105,
    "export_worker": 7106,
}
METRICS_PORTS = {
    "lease_service": 7191,
    "poller": 7192,
    "ingest_service": 7193,
    "collection_writer": 7194,
    "task_api": 7195,
    "export_worker": 7196,
}
WEB_PORT = 7180
SIMULATOR_PORT = 7190


def usual_or_free(what: str, usual: int, screen: Screen) -> int:
    """Return the usual port, or say that it is taken and return another."""
    if is_free(usual):
        return usual
    other = free_port()
    screen.say(f"port {usual} ({what}) is taken: using {other}")
    return other


def asked(what: str, port: int) -> int:
    """Return the port that was asked for.

    Raises:
        CommandError: it is taken.
    """
    if not is_free(port):
        raise CommandError(
            f"port {port} ({what}) is taken: stop who listens there, or leave --port off to use any free one",
            ExitCode.FAILED,
        )
    return port
