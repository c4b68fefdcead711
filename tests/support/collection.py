"""Collection records and a whole collection_writer for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from collection_writer.domain import CollectionRecord
from collection_writer.settings import Settings
from servicekit.ids import uuid7
from sluicegate_client.messages import CollectionMessage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def record(observed_at: datetime | None = None, **fields: Any) -> CollectionRecord:
    """Make a record that can be stored."""
    at = observed_at or datetime.now(UTC)
    values: dict[str, Any] = {
        "observation_id": uuid7(at),
        "observed_at": at,
        "card_id": "card-1",
        "account_id": "acme",
        "kind": "traffic",
        "outcome": "success",
        "reading": '{"total_bytes": 5}',
        "raw": "raw",
        "error": None,
        "latency_ms": 12,
        "traceparent": None,
    }
    return CollectionRecord(**(values | fields))


def message(observed_at: datetime | None = None, **fields: Any) -> CollectionMessage:
    """Make a message that can be stored."""
    at = observed_at or datetime.now(UTC)
    values: dict[str, Any] = {
        "observation_id": uuid7(at),
        "observed_at": at,
        "card_id": "card-1",
        "account_id": "acme",
        "kind": "traffic",
        "outcome": "success",
        "reading": {"total_bytes": 5},
        "latency_ms": 12,
    }
    return CollectionMessage(**(values | fields))


def instants(count: int, start: datetime | None = None) -> list[datetime]:
    """Return different instants, a millisecond apart."""
    first = start or datetime.now(UTC) - timedelta(minutes=1)
    return [first + timedelta(milliseconds=index) for index in range(count)]


def writer_settings(database: str, nsqd: tuple[str, str] | None = None, **variables: str) -> Settings:
    """Make settings of a collection_writer; without a broker it keeps trying to connect to none."""
    tcp, http = nsqd or ("127.0.0.1:1", "127.0.0.1:1")
    return Settings.from_environment(
        {
            "COLLECTION_WRITER_GRPC__PORT": "0",
            "COLLECTION_WRITER_METRICS_PORT": "0",
            "COLLECTION_WRITER_POSTGRES__DSN": database,
            "COLLECTION_WRITER_NSQ__NSQD_TCP": tcp,
            "COLLECTION_WRITER_NSQ__NSQD_HTTP": http,
            **{f"COLLECTION_WRITER_{name.upper()}": value for name, value in variables.items()},
        }
    )
