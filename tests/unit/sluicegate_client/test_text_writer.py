import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate_client.task_context import encode_result, result_json
from sluicegate_client.task_errors import (
    ClaimLostError,
    PermanentError,
    ThrottledError,
    TransientError,
    describe_failure,
)
from sluicegate_client.text_writer import PIECE_CHARACTERS, PIECES_PER_CALL, TextWriter, storable


class Sink:
    """Takes pieces; fails or waits as a test says."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, str]]] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, pieces: Sequence[tuple[int, str]]) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.calls.append(list(pieces))

    @property
    def pieces(self) -> list[tuple[int, str]]:
        return [piece for call in self.calls for piece in call]

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)


async def test_many_small_writes_become_few_numbered_pieces() -> None:
    sink = Sink()
    writer = TextWriter(sink.append, gather_seconds=0.01)
    for number in range(500):
        await writer.write(f"{number} ")
    await writer.flush()
    assert sink.text == "".join(f"{number} " for number in range(500))
    assert len(sink.calls) == 1
    assert [seq for seq, _ in sink.pieces] == list(range(1, len(sink.pieces) + 1))


async def test_large_texts_are_cut_into_bounded_pieces_and_calls() -> None:
    sink = Sink()
    writer = TextWriter(sink.append, gather_seconds=0)
    text = "ab\U0001f600" * 200_000
    await writer.write(text)
    await writer.flush()
    assert sink.text == text
    assert max(len(piece) for _, piece in sink.pieces) == PIECE_CHARACTERS
    assert max(len(call) for call in sink.calls) == PIECES_PER_CALL
    assert [seq for seq, _ in sink.pieces] == list(range(1, len(sink.pieces) + 1))


async def test_a_full_buffer_makes_the_writer_wait() -> None:
    sink = Sink()
    sink.gate.clear()
    writer = TextWriter(sink.append, gather_seconds=0)
    writing = asyncio.create_task(writer.write("x" * 200_000))
    await asyncio.sleep(0.02)
    assert not writing.done()
    sink.gate.set()
    await asyncio.wait_for(writing, 5)
    assert len(sink.text) == 200_000


async def test_a_failure_is_raised_from_the_next_write_and_flush() -> None:
    sink = Sink()
    sink.error = ClaimLostError("lost")
    writer = TextWriter(sink.append, gather_seconds=0)
    await writer.write("x")
    with pytest.raises(ClaimLostError):
        await writer.flush()
    with pytest.raises(ClaimLostError):
        await writer.write("y")


async def test_abandoned_text_is_not_sent() -> None:
    sink = Sink()
    writer = TextWriter(sink.append, gather_seconds=60)
    await writer.write("x")
    await writer.abandon()
    assert sink.calls == []


@given(st.text())
def test_storable_text_can_be_stored_and_good_text_stays(text: str) -> None:
    result = storable(text)
    result.encode()
    assert "\x00" not in result
    assert len(result) == len(text)
    if result != text:
        assert any(letter == "\x00" or "\ud800" <= letter <= "\udfff" for letter in text)


def test_errors_are_classified() -> None:
    described = [
        describe_failure(error)
        for error in (
            PermanentError("p"),
            ThrottledError("t"),
            TransientError(),
            ValueError("v"),
            TimeoutError(),
        )
    ]
    assert [(report.error_class, report.error) for report in described] == [
        ("permanent", "p"),
        ("throttled", "t"),
        ("transient", "TransientError"),
        ("transient", "ValueError: v"),
        ("transient", "timed out: TimeoutError"),
    ]


def test_results_are_checked() -> None:
    assert result_json(encode_result(None).value) == "{}"
    assert result_json(encode_result({"é": [1, None]}).value) == '{"é":[1,null]}'
    for bad in ([], "text", 5):
        with pytest.raises(PermanentError, match="mapping"):
            encode_result(bad)
