import asyncio
import pickle
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicekit.clock import ManualClock, SystemClock
from servicekit.errors import Reason, ServiceError, http_status, invalid_field
from servicekit.ids import new_token, uuid7, uuid7_time

INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.INVALID_FIELD, 422),
        (Reason.SLOT_UNAVAILABLE, 429),
        (Reason.SLOT_LOST, 409),
        (Reason.NOT_FOUND, 404),
        (Reason.NOT_SIGNED_IN, 401),
        (Reason.NOT_ALLOWED, 403),
        (Reason.DEPENDENCY_AWAY, 503),
        (Reason.TIME_IS_UP, 504),
        (Reason.INTERNAL, 500),
    ],
)
def test_http_status(reason: Reason, status: int) -> None:
    assert http_status(reason) == status


def test_every_reason_has_an_http_status() -> None:
    assert all(400 <= http_status(reason) < 600 for reason in Reason)


def test_an_error_survives_pickling() -> None:
    error = ServiceError(
        Reason.PAUSED, "paused", retry_after=timedelta(seconds=2), metadata={"pool": "tasks"}
    )
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (again.reason, again.message, again.retry_after, again.metadata) == (
        error.reason,
        error.message,
        error.retry_after,
        error.metadata,
    )


def test_an_invalid_field_names_itself() -> None:
    error = invalid_field("items[2].token", "is required")
    assert str(error) == "INVALID_FIELD: items[2].token: is required"
    assert error.metadata == {"items[2].token": "is required"}


@given(INSTANTS)
def test_a_uuid7_holds_its_instant_to_the_millisecond(at: datetime) -> None:
    value = uuid7(at)
    assert value.version == 7
    assert value.variant == "specified in RFC 4122"
    assert uuid7_time(value) == at.replace(microsecond=at.microsecond // 1000 * 1000)


def test_a_uuid7_reads_other_zones_as_the_same_instant() -> None:
    zone = timezone(timedelta(hours=8))
    assert uuid7_time(uuid7(datetime(2026, 1, 1, 8, tzinfo=zone))) == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), datetime(1969, 12, 31, tzinfo=UTC)])  # noqa: DTZ001
def test_a_uuid7_refuses_naive_and_early_instants(at: datetime) -> None:
    with pytest.raises(ValueError, match="UUIDv7"):
        uuid7(at)


@pytest.mark.parametrize("value", [uuid4(), UUID("ffffffff-ffff-7fff-bfff-ffffffffffff")])
def test_a_foreign_uuid_has_no_instant(value: UUID) -> None:
    with pytest.raises(ValueError, match="UUID"):
        uuid7_time(value)


def test_ids_do_not_repeat() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert len({uuid7(at) for _ in range(10_000)}) == 10_000
    assert len({new_token() for _ in range(1000)}) == 1000
    assert all(len(new_token()) == 32 for _ in range(10))


async def test_a_manual_clock_wakes_in_order() -> None:
    clock = ManualClock()
    woken: list[float] = []

    async def wait(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.monotonic())

    tasks = [asyncio.create_task(wait(seconds)) for seconds in (3, 1, 2)]
    await clock.run_for(2.5)
    assert woken == [1, 2]
    assert clock.sleeping == 1
    await clock.run_for(1)
    assert woken == [1, 2, 3]
    assert clock.now() == datetime(2026, 1, 1, 0, 0, 3, 500000, tzinfo=UTC)
    await asyncio.gather(*tasks)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    clock.advance(2)
    assert clock.sleeping == 0


def test_the_system_clock_is_aware() -> None:
    assert SystemClock().now().tzinfo is UTC
