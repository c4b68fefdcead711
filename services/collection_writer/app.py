"""Composition root of collection_writer: what it is made of and in which order it starts."""

from datetime import timedelta

from collection_writer.consumer import CollectionConsumer
from collection_writer.domain import BatchWriter, Window
from collection_writer.loops.partitions import PartitionKeeper
from collection_writer.servicer import CollectionServicer
from collection_writer.settings import Settings
from collection_writer.store.postgres import PostgresRecordStore
from servicekit.clock import SystemClock
from servicekit.grpc_server import GrpcServer
from servicekit.health import Health
from servicekit.lifecycle import App, Loop
from servicekit.postgres import Postgres
from sluicegate.collection.v1 import collection_pb2_grpc


def build(settings: Settings) -> App:
    """Put the service together; nothing connects yet."""
    clock = SystemClock()
    database = Postgres(settings.postgres, settings.service_name)
    store = PostgresRecordStore(database)
    limits = settings.partitions
    window = Window(oldest=timedelta(days=limits.oldest_days), newest=timedelta(days=limits.newest_days))
    writer = BatchWriter(store, window)
    keeper = PartitionKeeper(store, writer, limits, clock)
    health = Health(clock=clock)
    health.add_check("postgres", database.health_check)
    servicer = CollectionServicer(writer, store, clock)
    return App(
        name=settings.service_name,
        components=[
            database,
            Loop("partitions", keeper.run_once, every=limits.check_every, clock=clock),
            GrpcServer(
                settings,
                [(collection_pb2_grpc.add_CollectionServiceServicer_to_server, servicer)],
                health,
            ),
            CollectionConsumer(settings.nsq, settings.batch, writer=writer, store=store, clock=clock),
        ],
        health=health,
    )
