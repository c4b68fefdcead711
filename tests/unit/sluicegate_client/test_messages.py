"""What may be on the wire: strict decoding, honest encoding."""

import contextlib
import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicekit.errors import Reason, ServiceError
from servicekit.ids import uuid7
from sluicegate_client.messages import (
    CardEventMessage,
    CollectionMessage,
    NewerSchemaError,
    ObservationMessage,
    cut_text,
)

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)


def observation(**changes: Any) -> ObservationMessage:
    fields: dict[str, Any] = {
        "observation_id": uuid7(AT),
        "card_id": "8986001",
        "account_id": "acme",
        "kind": "traffic",
        "observed_at": AT,
        "published_at": AT,
        "reading": {"total_bytes": 2**63 - 1},
        "raw": '{"usage":"1"}',
    }
    return ObservationMessage(**{**fields, **changes})


def body(**changes: Any) -> bytes:
    return json.dumps({**json.loads(observation().encode()), **changes}).encode()


def refused(data: bytes, field: str) -> None:
    with pytest.raises(ServiceError) as caught:
        ObservationMessage.decode(data)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert any(name.startswith(field) for name in caught.value.metadata), caught.value.metadata


def test_an_observation_comes_back_as_it_went() -> None:
    message = observation(traceparent=f"00-{'a' * 32}-{'b' * 16}-01", latency_ms=17, source="file")
    assert ObservationMessage.decode(message.encode()) == message


def test_integers_are_numbers_and_instants_have_microseconds_and_z() -> None:
    data = json.loads(observation(observed_at=AT.replace(microsecond=123000)).encode())
    assert data["reading"] == {"total_bytes": 2**63 - 1}
    assert data["observed_at"] == "2026-03-01T12:30:15.123000Z"


@pytest.mark.parametrize("value", [2**63, -1, 1.5, 1.0, True, "12", "100MB", None, [], {}, 10**400])
@pytest.mark.parametrize("form", ["total_bytes", "delta_bytes"])
def test_counter_garbage_is_refused(form: str, value: Any) -> None:
    refused(body(reading={form: value}), f"reading.{form}")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_that_are_no_integers_of_json_are_refused(text: str) -> None:
    refused(
        body(reading={"total_bytes": 7}).replace(b'"total_bytes": 7', b'"total_bytes": ' + text.encode()), ""
    )


@pytest.mark.parametrize("reading", [{}, None, 5, {"total_bytes": 1, "delta_bytes": 1}, {"bytes": 3}])
def test_a_traffic_reading_has_exactly_one_known_form(reading: Any) -> None:
    refused(body(reading=reading), "reading")


def test_nul_and_lone_surrogates_are_stripped_and_counted() -> None:
    message = ObservationMessage.decode(body(raw="a\x00b\ud800c\udfff\U0001f600"))
    assert message.raw == "abc\U0001f600"
    assert message.stripped_count == 3
    assert ObservationMessage.decode(message.encode()).stripped_count == 0


@pytest.mark.parametrize("name", ["card_id", "account_id"])
@pytest.mark.parametrize(
    "value", ["8901260001000000087\x00", "890126000100000\ud8000087"], ids=["nul", "surrogate"]
)
def test_an_id_is_refused_rather_than_stripped_to_anothers(name: str, value: str) -> None:
    refused(body(**{name: value}), name)


def test_nul_written_as_an_escape_is_stripped() -> None:
    assert ObservationMessage.decode(body(raw="x").replace(b'"x"', b'"\\u0000x"')).raw == "x"


def test_a_body_cut_inside_a_character_is_refused() -> None:
    whole = body(raw="ü").replace(b"\\u00fc", "ü".encode())
    refused(whole[: whole.index("ü".encode()) + 1], "body")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"1", b"null", b"{", b"\xff", b"[" * 100_000, b"{" + b" " * 70_000 + b"}"]
)
def test_bodies_that_are_no_small_json_object_are_refused(data: bytes) -> None:
    refused(data, "body")


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:30:15.123456",
        "2026-03-01T12:30:15Z",
        "2026-03-01T12:30:15.123456+00:00",
        "2026-03-01 12:30:15.123456Z",
        "2026-02-30T12:30:15.123456Z",
        "2026-03-01T12:30:60.000000Z",
        "1772368215",
        1772368215,
        None,
    ],
)
def test_instants_are_rfc_3339_with_microseconds_and_z(text: Any) -> None:
    refused(body(observed_at=text), "observed_at")


def test_the_ids_milliseconds_are_the_instants() -> None:
    refused(body(observation_id=str(uuid7(AT + timedelta(milliseconds=1)))), "observation_id")
    assert ObservationMessage.decode(body(observation_id=str(uuid7(AT.replace(microsecond=123999)))))


@pytest.mark.parametrize(
    "value",
    [str(uuid4()), "", None, 5, "{" + str(uuid7(AT)) + "}", str(uuid7(AT)).upper()],
    ids=["version 4", "empty", "none", "number", "braces", "upper case"],
)
def test_an_observation_id_is_a_canonical_version_7_uuid(value: Any) -> None:
    refused(body(observation_id=value), "observation_id")


def test_the_year_9999_can_be_read() -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    message = observation(observation_id=uuid7(late), observed_at=late)
    assert ObservationMessage.decode(message.encode()).observed_at == late


def test_unknown_members_are_ignored() -> None:
    assert ObservationMessage.decode(body(later=[1.5], reading={"total_bytes": 5, "x": 1})).reading == {
        "total_bytes": 5
    }


def test_a_newer_minor_version_is_read_and_a_newer_major_is_told_apart() -> None:
    assert ObservationMessage.decode(body(schema_version="1.7"))
    with pytest.raises(NewerSchemaError) as caught:
        ObservationMessage.decode(b'{"schema_version":"2.0","everything":"else"}')
    assert caught.value.schema_version == "2.0"
    assert pickle.loads(pickle.dumps(caught.value)).schema_version == "2.0"  # noqa: S301


@pytest.mark.parametrize("version", [None, 1, "1", "one", "0.9", "1.0.0"])
def test_a_version_that_can_not_be_read_is_refused(version: Any) -> None:
    refused(body(schema_version=version), "schema_version")


@pytest.mark.parametrize("kind", ["network", "realname"])
def test_a_status_is_one_of_the_known_words(kind: str) -> None:
    assert ObservationMessage.decode(body(kind=kind, reading={"status": "unknown"})).reading == {
        "status": "unknown"
    }
    refused(body(kind=kind, reading={"status": "fine"}), "reading.status")


def test_a_malformed_trace_context_costs_only_the_trace() -> None:
    assert ObservationMessage.decode(body(traceparent="nonsense")).traceparent == ""


def test_raw_is_at_most_4_kib_and_can_be_cut_on_a_character_border() -> None:
    refused(body(raw="ü" * 2049), "raw")
    assert cut_text("ü" * 3000, 4095) == "ü" * 2047


@pytest.mark.parametrize("latency", [-1, 1.5, True, "3"])
def test_latency_is_an_integer(latency: Any) -> None:
    refused(body(latency_ms=latency), "latency_ms")


@given(
    st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(ServiceError):
        ObservationMessage.decode(data)


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=3)
)
def test_any_json_in_any_member_is_read_or_refused(value: Any) -> None:
    for name in json.loads(observation().encode()):
        with contextlib.suppress(ServiceError):
            ObservationMessage.decode(body(**{name: value}))


def collection(**changes: Any) -> CollectionMessage:
    fields: dict[str, Any] = {
        "observation_id": uuid7(AT),
        "observed_at": AT,
        "card_id": "8986001",
        "account_id": "acme",
        "kind": "network",
        "outcome": "success",
        "reading": {"status": "online"},
    }
    return CollectionMessage(**{**fields, **changes})


@pytest.mark.parametrize(
    "changes",
    [{}, {"outcome": "empty", "reading": None}, {"outcome": "failed", "reading": None, "error": "TIMEOUT"}],
)
def test_a_collection_record_comes_back_as_it_went(changes: dict[str, Any]) -> None:
    message = collection(raw="x", latency_ms=3, **changes)
    assert CollectionMessage.decode(message.encode()) == message


@pytest.mark.parametrize(
    "changes",
    [
        {"reading": None},
        {"outcome": "failed", "reading": None},
        {"outcome": "empty"},
        {"outcome": "fine"},
        {"account_id": ""},
        {"outcome": "failed", "reading": None, "error": "x" * 501},
    ],
)
def test_a_collection_record_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ServiceError):
        collection(**changes)


def test_an_event_comes_back_as_it_went() -> None:
    message = CardEventMessage(
        event_id=UUID(int=5),
        card_id="8986001",
        account_id="acme",
        type="network.changed",
        observed_at=AT,
        observation_id=uuid7(AT),
        data={"from": "offline", "to": "online"},
    )
    assert CardEventMessage.decode(message.encode()) == message
