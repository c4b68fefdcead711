import pytest
from hypothesis import given
from hypothesis import strategies as st
from nsq import protocol

from servicekit.errors import Reason, ServiceError
from servicekit.nsq.frames import check_bodies, check_topic, encode_publish, refusal, split_to_fit, wire_size
from servicekit.nsq.tuning import NsqTuning, split_address


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=2, max_size=20))
def test_mpub_is_what_pynsq_encodes(bodies: list[bytes]) -> None:
    assert encode_publish("topic", bodies) == protocol.mpub("topic", bodies)
    assert len(protocol.mpub("topic", bodies)) == len(b"MPUB topic\n") + 4 + wire_size(bodies)


def test_single_body_is_a_pub() -> None:
    assert encode_publish("topic", [b"body"]) == b"PUB topic\n\x00\x00\x00\x04body"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=30))
def test_runs_fit_and_keep_order(bodies: list[bytes]) -> None:
    runs = split_to_fit(bodies, 100)
    assert [body for run in runs for body in run] == bodies
    assert all(wire_size(run) <= 100 for run in runs)


@pytest.mark.parametrize("topic", ["", "a b", "a/b", "a" * 65, "a\n", "ü", "a#ephemeral#"])
def test_bad_topics(topic: str) -> None:
    with pytest.raises(ServiceError) as caught:
        check_topic(topic)
    assert caught.value.reason is Reason.INVALID_FIELD


@pytest.mark.parametrize("topic", ["card.ingest", "A-b_9", "a" * 64, "t#ephemeral"])
def test_good_topics(topic: str) -> None:
    check_topic(topic)


@pytest.mark.parametrize("body", [b"", bytes(11), "text", bytearray(b"x"), None])
def test_bad_bodies(body: object) -> None:
    with pytest.raises(ServiceError) as caught:
        check_bodies([b"good", body], NsqTuning(max_message_bytes=10))  # type: ignore[list-item]
    assert caught.value.reason is Reason.INVALID_FIELD
    assert "message 1" in caught.value.message


def test_refusals_name_bad_input_only() -> None:
    bad = refusal("E_BAD_TOPIC PUB topic name is not valid")
    assert bad is not None
    assert bad.reason is Reason.INVALID_FIELD
    assert refusal("E_PUB_FAILED exiting") is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [("nsqd:4150", ("nsqd", 4150)), ("[::1]:4150", ("::1", 4150)), ("::1:4150", ("::1", 4150))],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected
