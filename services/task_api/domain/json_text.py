"""Checks JSON text at the edge, so that nothing inside can be stopped by what it holds."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

MAX_DEPTH = 64
"""Deepest nesting of objects and arrays."""

_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = re.compile(r"[^\[\]{}]+")


class JsonTextError(ValueError):
    """Text that is no storable JSON object; the message says why, for a person."""


def check_object(text: str, *, most_characters: int) -> str:
    """Return the text of a JSON object that can be stored and read by anybody; empty text stands for ``{}``.

    Raises:
        JsonTextError: it is no JSON object, too long, deeper than 64, or holds NUL, a lone surrogate, NaN, an
            infinity or a number that is none in double precision (RFC 8259 leaves these to the implementation).
    """
    if not text:
        return "{}"
    if len(text) > most_characters:
        raise JsonTextError(f"has {len(text)} characters, at most {most_characters} are allowed")
    value = parse(text)
    if not isinstance(value, dict):
        raise JsonTextError("is no JSON object")
    return text


def parse(text: str) -> Any:
    """Return the value of strict JSON text; raises JsonTextError as :func:`check_object` does."""
    refuse_unstorable(text)
    _refuse_deep(text)
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except JsonTextError:
        raise
    except (ValueError, RecursionError) as error:
        raise JsonTextError(f"is no JSON: {error}") from error
    if "\\u" in text:
        for part in _strings(value):
            refuse_unstorable(part)
    return value


def refuse_unstorable(text: str) -> None:
    """Raise JsonTextError when a text holds NUL or a lone surrogate."""
    if "\x00" in text:
        raise JsonTextError("holds the character NUL, which can't be stored")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise JsonTextError("holds half of a surrogate pair, which can't be stored") from None


def _refuse_deep(text: str) -> None:
    depth = 0
    for bracket in _NOT_BRACKETS.sub("", _STRINGS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise JsonTextError(f"is nested deeper than {MAX_DEPTH}")


def _refuse_constant(name: str) -> NoReturn:
    raise JsonTextError(f"holds {name}, which is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise JsonTextError(f"holds the number {text[:20]}, which is out of range")
    return value


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            waiting.extend(part)
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
