"""Read files in batches with constant memory, show progress, and keep what can't be used by line."""

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from sluicegate_cli.outcome import CommandError, ExitCode
from sluicegate_cli.output import note, print_json, stderr, stdout

Row = TypeVar("Row")

_MOST_SHOWN = 20
_MOST_KEPT = 1000
_MOST_HEADER = 200


@dataclass(frozen=True, slots=True)
class Numbered(Generic[Row]):
    """One row and the line of the file it began on, from 1."""

    line: int
    row: Row


@dataclass(slots=True)
class Report:
    """What became of a file's rows; remembers at most a thousand problems and ids, and counts all."""

    counts: dict[str, int] = field(default_factory=dict)
    refused_count: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def add(self, name: str, count: int = 1) -> None:
        """Count rows under a name."""
        self.counts[name] = self.counts.get(name, 0) + count

    def keep_id(self, item_id: str) -> None:
        """Remember what a row that was taken is called."""
        if len(self.ids) < _MOST_KEPT:
            self.ids.append(item_id)

    def refuse(self, line: int, problem: str) -> None:
        """Note a row that can't be used."""
        self.refused_count += 1
        if len(self.problems) < _MOST_KEPT:
            self.problems.append({"line": line, "problem": problem})

    def finish(self, path: Path, *, as_json: bool) -> ExitCode:
        """Print the report, problems by line; returns the exit code: 0, or 4 when rows were refused."""
        code = ExitCode.PARTLY_REFUSED if self.refused_count else ExitCode.OK
        if as_json:
            ids = {"ids": self.ids} if self.ids else {}
            print_json({**self.counts, "refused": self.refused_count, "problems": self.problems, **ids})
            return code
        for problem in self.problems[:_MOST_SHOWN]:
            note(f"{path}:{problem['line']}: {problem['problem']}")
        if self.refused_count > _MOST_SHOWN:
            note(f"... and {self.refused_count - _MOST_SHOWN} more; --json lists up to {_MOST_KEPT}")
        told = ", ".join(counted(count, name) for name, count in self.counts.items()) or "nothing to do"
        refused = counted(self.refused_count, "rows refused")
        refused = f"; {refused}, the others are kept" if self.refused_count else ""
        stdout.print(f"{told}{refused}", markup=False)
        if self.ids:
            note(f"the first is {self.ids[0]}; --json lists up to {_MOST_KEPT}")
        return code


def counted(count: int, what: str) -> str:
    """Say a count and what of: "cards saved" becomes "1 card saved" or "2 cards saved"."""
    noun, space, rest = what.partition(" ")
    return f"{count} {noun.removesuffix('s') if count == 1 and space else noun}{space}{rest}"


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """Open a UTF-8 text file, `-` is standard input; raises CommandError when it can't be read."""
    if str(path) == "-":
        yield sys.stdin
        return
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            yield file
    except OSError as error:
        raise CommandError(f"can't read {path}: {error.strerror}", ExitCode.BAD_INPUT) from error


def csv_rows(
    file: IO[str], path: Path, required: Sequence[str], report: Report
) -> Iterator[Numbered[dict[str, str]]]:
    """Read CSV with a header; a row of another width is refused by line.

    Raises:
        CommandError: the header lacks a required column.
    """
    reader = csv.reader(file, strict=True)
    header = [name.strip() for name in _next_row(reader, path) or []]
    missing = [name for name in required if name not in header]
    if missing:
        raise CommandError(
            f"{path}: the first line lacks {', '.join(missing)}; {_shown(header)}",
            ExitCode.BAD_INPUT,
        )
    yield from _data_rows(reader, header, report)


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Cut rows into lists of at most so many."""
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


@contextmanager
def progress(path: Path, *, hidden: bool) -> Iterator[Callable[[int], None]]:
    """Show how many rows are done while the block runs; the yielded function adds to it."""
    from rich.progress import (  # noqa: PLC0415 - costs every other command a tenth of its time
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr, disable=hidden or not stderr.is_terminal, transient=True) as bar:
        task = bar.add_task(path.name, total=None)
        yield lambda count: bar.advance(task, count)


def is_clean(text: str) -> bool:
    """Say whether text can be stored: no byte that was not UTF-8, no NUL."""
    return "\x00" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _data_rows(reader: Any, header: list[str], report: Report) -> Iterator[Numbered[dict[str, str]]]:
    line = reader.line_num
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            report.refuse(line, f"is no CSV: {error}")
            continue
        if not values:
            continue
        if len(values) != len(header):
            report.refuse(line, f"has {len(values)} fields, the header has {len(header)}")
        elif not all(is_clean(value) for value in values):
            report.refuse(line, "holds bytes that are no UTF-8 text")
        else:
            yield Numbered(line, {name: value.strip() for name, value in zip(header, values, strict=True)})


def _shown(header: Sequence[str]) -> str:
    line = ",".join(header)
    if not line.isprintable():
        return "it is no text"
    return f"it is: {line[:_MOST_HEADER]}" if line else "it is empty"


def _next_row(reader: Any, path: Path) -> list[str] | None:
    try:
        row: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise CommandError(f"{path}:1: is no CSV: {error}", ExitCode.BAD_INPUT) from error
    return row
