"""Rows of exports, read through the report views with a server-side cursor."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from export_worker.domain.encoding import RecordRow
from export_worker.domain.request import ExportRequest
from servicekit.failures import service_error
from servicekit.postgres import POSTGRES_ERRORS, Postgres, load_sql

_RECORDS = load_sql("export_worker", "records")
_HAS_ACCOUNT = load_sql("export_worker", "has_account")


class PostgresRecordSource:
    """Reads the views of schema ``report``; never writes."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def has_account(self, account_id: str) -> bool:
        """Tell whether the account exists."""
        with _errors():
            return bool(await self._postgres.pool.fetchval(_HAS_ACCOUNT, account_id))

    async def batches(self, request: ExportRequest, batch_rows: int) -> AsyncIterator[Sequence[RecordRow]]:
        """Yield batches of at most ``batch_rows`` rows from one read-only snapshot; memory holds one batch."""
        with _errors():
            async with self._postgres.transaction(isolation="repeatable_read", readonly=True) as connection:
                cursor = await connection.cursor(
                    _RECORDS, request.account_id, request.observed_from, request.observed_until
                )
                while rows := await cursor.fetch(batch_rows):
                    yield [RecordRow(**dict(row)) for row in rows]


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (*POSTGRES_ERRORS, OSError, TimeoutError) as error:
        known = service_error(error)
        if known is None:
            raise
        raise known from error
