"""Writes a task's text events in few calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

PIECE_CHARACTERS = 16_384
"""Most characters of one text event."""

PIECES_PER_CALL = 16
"""Most text events of one call: keeps a call under 1 MiB."""

_BACKPRESSURE_CHARACTERS = 4 * PIECE_CHARACTERS


def storable(text: str) -> str:
    """Replace what no store can hold (NUL, lone surrogates) by U+FFFD."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
    return text


class TextWriter:
    """Collects text for a few milliseconds and appends it as numbered events, one call at a time.

    Args:
        append: stores ``(seq, text)`` pieces; returns once they are committed. It repeats the call itself while the
            server is away, and raises when the claim is lost.
        gather_seconds: how long text is collected before a call.
    """

    def __init__(
        self, append: Callable[[Sequence[tuple[int, str]]], Awaitable[None]], *, gather_seconds: float
    ) -> None:
        self._append = append
        self._gather_seconds = gather_seconds
        self._buffer: list[str] = []
        self._size = 0
        self._next_seq = 1
        self._pump: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    async def write(self, text: str) -> None:
        """Add text; waits only while much is unsent.

        Raises:
            ClaimLostError: the claim was lost; stop the work.
            PermanentError: the server refused the text.
        """
        self._raise_error()
        if not text:
            return
        self._buffer.append(storable(text))
        self._size += len(text)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._run())
        if self._size > _BACKPRESSURE_CHARACTERS:
            await self.flush()

    async def flush(self) -> None:
        """Wait until everything written so far is committed; raises as :meth:`write` does."""
        while self._pump is not None and not self._pump.done():
            await asyncio.wait({self._pump})
        self._raise_error()

    async def abandon(self) -> None:
        """Drop what is unsent; used once the claim is gone."""
        self._buffer.clear()
        if self._pump is not None and not self._pump.done():
            self._pump.cancel()
            await asyncio.wait({self._pump})

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        try:
            await asyncio.sleep(self._gather_seconds)
            while self._buffer:
                await self._append(self._take())
        except Exception as error:  # noqa: BLE001 - raised from the next write or flush
            self._error = error
            self._buffer.clear()

    def _take(self) -> list[tuple[int, str]]:
        text = "".join(self._buffer)
        most = PIECE_CHARACTERS * PIECES_PER_CALL
        self._buffer = [text[most:]] if len(text) > most else []
        self._size = max(0, len(text) - most)
        pieces = []
        for start in range(0, min(len(text), most), PIECE_CHARACTERS):
            pieces.append((self._next_seq, text[start : min(start + PIECE_CHARACTERS, most)]))
            self._next_seq += 1
        return pieces
