from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicekit import sse
from tests.support.sse import SseReader

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1)


@given(TEXT, st.integers(1, 9), st.integers(0, 2**53))
def test_what_is_encoded_is_read_again(text: str, epoch: int, seq: int) -> None:
    cursor = f"{epoch}.{seq}"
    [event] = SseReader().feed(sse.encode(text, event_id=cursor))
    assert (event.type, event.data, event.last_id) == ("message", text, cursor)


@given(st.lists(TEXT, min_size=1, max_size=5), st.integers(1, 7))
def test_frames_are_read_alike_however_they_are_cut(texts: list[str], size: int) -> None:
    wire = b"".join(sse.encode(text, event_id=f"1.{number}") for number, text in enumerate(texts))
    reader, events = SseReader(), []
    for start in range(0, len(wire), size):
        events += reader.feed(wire[start : start + size])
    assert [event.data for event in events] == texts


def test_line_ends_are_cr_lf_and_crlf_only() -> None:
    """sseclient#9: lines were split at U+2028."""
    assert sse.encode("a\u2028b\u0085c\u2029d").count(b"data:") == 1
    assert sse.encode("a\rb\r\nc\nd") == b"data: a\ndata: b\ndata: c\ndata: d\n\n"


def test_an_event_without_data_only_moves_the_cursor() -> None:
    reader = SseReader()
    assert reader.feed(sse.encode(None, event_id="3.4")) == []
    assert reader.last_id == "3.4"


def test_retry_and_comments() -> None:
    reader = SseReader()
    assert reader.feed(sse.retry(timedelta(seconds=1.5)) + sse.comment("x")) == []
    assert reader.retry_ms == 1500


@pytest.mark.parametrize("text", ["a\nb", "a\rb"])
def test_ids_types_and_comments_hold_no_line_ends(text: str) -> None:
    for make in (
        lambda: sse.encode("x", event_id=text),
        lambda: sse.encode("x", event=text),
        lambda: sse.comment(text),
        lambda: sse.encode("x", event_id="\0"),
    ):
        with pytest.raises(ValueError, match="can't hold"):
            make()
