import socket

import asyncpg
import pytest
import redis.exceptions

from servicekit.errors import Reason, ServiceError
from servicekit.failures import is_away, service_error
from servicekit.redis import Script
from servicekit.resources import load_store_file
from servicekit.sqlstate import FailureClass, classify


def postgres_error(sqlstate: str, constraint: str | None = None) -> asyncpg.PostgresError:
    fields = {"C": sqlstate, "S": "ERROR", "M": "text that says nothing"}
    if constraint:
        fields["n"] = constraint
    error = asyncpg.PostgresError.new(fields)
    assert isinstance(error, asyncpg.PostgresError)
    return error


@pytest.mark.parametrize(
    ("sqlstate", "constraint", "expected"),
    [
        ("40001", None, FailureClass.RETRY_NOW),
        ("40P01", None, FailureClass.RETRY_NOW),
        ("55P03", None, FailureClass.RETRY_LATER),
        ("57014", None, FailureClass.RETRY_LATER),
        ("08006", None, FailureClass.INFRASTRUCTURE),
        ("53300", None, FailureClass.INFRASTRUCTURE),
        ("57P01", None, FailureClass.INFRASTRUCTURE),
        ("57P03", None, FailureClass.INFRASTRUCTURE),
        ("25006", None, FailureClass.INFRASTRUCTURE),
        ("22003", None, FailureClass.DATA),
        ("22P05", None, FailureClass.DATA),
        ("23502", None, FailureClass.DATA),
        ("23514", "usage_not_negative", FailureClass.DATA),
        ("23514", None, FailureClass.NO_PARTITION),
        ("23505", "card_pkey", FailureClass.UNKNOWN),
        ("42P01", None, FailureClass.UNKNOWN),
        ("21000", None, FailureClass.UNKNOWN),
    ],
)
def test_sqlstates(sqlstate: str, constraint: str | None, expected: FailureClass) -> None:
    assert classify(postgres_error(sqlstate, constraint)) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError(), FailureClass.INFRASTRUCTURE),
        (OSError(113, "no route"), FailureClass.INFRASTRUCTURE),
        (asyncpg.InterfaceError("connection is closed"), FailureClass.INFRASTRUCTURE),
        (ServiceError(Reason.DEPENDENCY_AWAY, "no connection was free"), FailureClass.INFRASTRUCTURE),
        (TimeoutError(), FailureClass.RETRY_LATER),
        (asyncpg.exceptions.DataError("'x' is no int"), FailureClass.DATA),
        (KeyError("bug"), FailureClass.UNKNOWN),
    ],
)
def test_errors_without_a_state(error: Exception, expected: FailureClass) -> None:
    assert classify(error) is expected


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (postgres_error("57P01"), Reason.DEPENDENCY_AWAY),
        (postgres_error("40P01"), Reason.DEPENDENCY_AWAY),
        (postgres_error("57014"), Reason.TIME_IS_UP),
        (postgres_error("22003"), None),
        (redis.exceptions.ConnectionError("x"), Reason.DEPENDENCY_AWAY),
        (redis.exceptions.BusyLoadingError("x"), Reason.DEPENDENCY_AWAY),
        (redis.exceptions.ResponseError("MISCONF can't save"), Reason.DEPENDENCY_AWAY),
        (redis.exceptions.ResponseError("WRONGTYPE"), None),
        (socket.gaierror(-2, "unknown name"), Reason.DEPENDENCY_AWAY),
        (TimeoutError(), Reason.TIME_IS_UP),
        (PermissionError(13, "a file"), None),
        (KeyError("bug"), None),
    ],
)
def test_what_a_caller_is_told(error: Exception, reason: Reason | None) -> None:
    known = service_error(error)
    assert (known.reason if known else None) is reason


def test_away_means_try_again() -> None:
    assert is_away(ConnectionRefusedError(111, "no"))
    assert is_away(TimeoutError())
    assert not is_away(ServiceError(Reason.WRONG_STATE, "no"))
    assert not is_away(PermissionError(13, "no"))


def test_a_missing_store_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"servicekit has no store/sql/nothing\.sql"):
        load_store_file("servicekit.redis", "sql", "nothing")


async def test_an_unbound_script_says_so() -> None:
    with pytest.raises(TypeError, match="bound to no client"):
        await Script.from_text("return 1")(keys=[])
