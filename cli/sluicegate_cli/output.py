"""What a command prints: a table for people, or JSON for programs. Results go to stdout, everything else to stderr."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

_WIDTH_OF_FILES = 240
_FRACTION = re.compile(r"(?<=\d\d:\d\d:\d\d)\.\d+(?=Z$)")

stdout = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def plain(value: Any) -> Any:
    """Turn a message into plain values: integers as numbers, enums as words, instants as RFC 3339 text."""
    if isinstance(value, Timestamp):
        return value.ToDatetime(UTC).isoformat().replace("+00:00", "Z")
    if not isinstance(value, Message):
        return value
    fields: Iterable[Any] = value.DESCRIPTOR.fields
    return {field.name: _field(value, field) for field in fields if _is_shown(value, field)}


def print_json(value: Any) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str = "Nothing found."
) -> None:
    """Print rows: a table of the given columns, or a JSON array of everything."""
    found = list(rows)
    if as_json:
        print_json(found)
        return
    if not found:
        stdout.print(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row.get(column), int) for row in found)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in found:
        table.add_row(*(cell(row.get(column)) for column in columns))
    stdout.print(table)


def print_fields(value: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one thing: a line per field, or a JSON object."""
    if as_json:
        print_json(dict(value))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, item in value.items():
        table.add_row(name, cell(item))
    stdout.print(table)


def note(message: str) -> None:
    """Say something that is no result."""
    stderr.print(message, markup=False)


def cell(value: Any) -> str:
    """Write one value for a table."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(cell(item) for item in value) or "-"
        case dict():
            return ", ".join(f"{name}={cell(item)}" for name, item in value.items()) or "-"
        case _:
            return _FRACTION.sub("", str(value)).replace("[", r"\[")


def instant(value: datetime) -> Timestamp:
    """Turn an aware instant into a message."""
    stamp = Timestamp()
    stamp.FromDatetime(value)
    return stamp


def _is_shown(message: Message, field: FieldDescriptor) -> bool:
    return not field.has_presence or message.HasField(field.name)


def _field(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [_one(field, item) for item in value]
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is None:
        return plain(value)
    name = (
        field.enum_type.values_by_number[value].name
        if value in field.enum_type.values_by_number
        else str(value)
    )
    prefix = "".join(f"_{char}" if char.isupper() else char.upper() for char in field.enum_type.name).lstrip(
        "_"
    )
    return name.removeprefix(f"{prefix}_").lower()
