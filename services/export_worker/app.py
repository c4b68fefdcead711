"""Composition root of export_worker."""

import socket

from export_worker import worker as edge
from export_worker.domain.export import Exporter, Limits
from export_worker.settings import Settings
from export_worker.store.objects import ObjectExportStore, open_store
from export_worker.store.postgres import PostgresRecordSource
from servicekit.clock import SystemClock
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.lifecycle import App
from servicekit.postgres import Postgres
from sluicegate_client.worker import Worker


def build(settings: Settings) -> App:
    """Wire the process: database, export store, worker; gRPC serves health alone."""
    health = Health()
    postgres = Postgres(settings.postgres, settings.service_name)
    store = ObjectExportStore(open_store(settings.exports.location))
    exporter = Exporter(
        source=PostgresRecordSource(postgres),
        store=store,
        limits=Limits(max_rows=settings.exports.max_rows, batch_rows=settings.exports.batch_rows),
        clock=SystemClock(),
    )
    token = settings.auth.token
    worker = Worker(
        settings.peers.task_api,
        channels=settings.exports.channels,
        name=f"{settings.service_name}@{socket.gethostname()}",
        concurrency=settings.exports.concurrency,
        token=token.get_secret_value() if token else None,
        attempt_timeout=settings.exports.time_limit,
    )
    edge.add_handler(worker, exporter)
    health.add_check("postgres", postgres.health_check)
    health.add_check("export_store", store.check)
    return App(
        name=settings.service_name,
        components=[postgres, GrpcServer(settings, [], health), worker],
        health=health,
    )
