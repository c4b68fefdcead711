"""What `up` prints: plain lines, one table, and on a terminal a line that is written over."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

_CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    address: str
    state: str


class Screen:
    """Write to standard output; safe to use from one thread."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._live = False

    def say(self, message: str) -> None:
        """Print one message that stays."""
        self._clear()
        self._console.print(message, markup=False)
        sys.stdout.flush()

    def live(self, message: str) -> None:
        """Print the present rates: over the previous ones on a terminal, else as a line."""
        if not self._console.is_terminal:
            self.say(message)
            return
        self._clear()
        sys.stdout.write(message[: self._console.width - 1])
        sys.stdout.flush()
        self._live = True

    def table(self, rows: Sequence[Row]) -> None:
        """Print what runs where."""
        self._clear()
        table = Table(box=SIMPLE, header_style="bold")
        for column in ("what", "address", "state"):
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(row.what, row.address, row.state)
        self._console.print(table)
        sys.stdout.flush()

    def _clear(self) -> None:
        if self._live:
            sys.stdout.write(_CLEAR_LINE)
            self._live = False
