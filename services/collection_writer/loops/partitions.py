"""Keeps the months of collection_record: makes them ahead, gives up those past the retention."""

from collection_writer.domain import BatchWriter, months_ahead, months_past_retention
from collection_writer.settings import PartitionSettings
from collection_writer.store.postgres import PostgresRecordStore
from servicekit.clock import Clock
from servicekit.logs import get_logger

_log = get_logger(__name__)


class PartitionKeeper:
    """Makes and drops monthly partitions; several processes may do it at once.

    Args:
        store: the table.
        writer: told about new months.
        settings: how far ahead, how long kept.
        clock: says which month it is.
    """

    def __init__(
        self, store: PostgresRecordStore, writer: BatchWriter, settings: PartitionSettings, clock: Clock
    ) -> None:
        self._store = store
        self._writer = writer
        self._settings = settings
        self._clock = clock

    async def run_once(self) -> None:
        """Make what is missing, then drop what is past the retention; inserts go on meanwhile."""
        now = self._clock.now()
        made = await self._writer.make_months(months_ahead(now, self._settings.ahead_months))
        if made:
            _log.info("partitions created", months=[month.isoformat() for month in made])
        await self._drop_old()
        await self._writer.know_months()

    async def _drop_old(self) -> None:
        partitions = [*await self._store.partitions(), *await self._store.detached()]
        months = [partition.month for partition in partitions]
        given_up = set(months_past_retention(months, self._clock.now(), self._settings.retention_months))
        for partition in partitions:
            if partition.month in given_up:
                await self._store.drop(partition)
                _log.info("partition dropped by retention", partition=partition.name)
