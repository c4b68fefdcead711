import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_api.domain.json_text import MAX_DEPTH, JsonTextError, check_object

MOST = 1000

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='ab[]{}"\\'), inner),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(alphabet='ab[]{}"\\'), VALUES, max_size=4))
def test_every_sound_object_passes_unchanged(value: dict[str, Any]) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert check_object(text, most_characters=10**6) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "no JSON object"),
        ("null", "no JSON object"),
        ("{", "no JSON"),
        ("{}x", "no JSON"),
        ('{"a":NaN}', "NaN"),
        ('{"a":Infinity}', "Infinity"),
        ('{"a":1e400}', "1e400"),
        ('{"a":-1e400}', "-1e400"),
        ('{"a":"\x00"}', "NUL"),
        ('{"a":"\\u0000"}', "NUL"),
        ('{"\\u0000":1}', "NUL"),
        ('{"a":["\\ud800"]}', "surrogate"),
        ('{"a":"\udfff"}', "surrogate"),
        ('{"a":' + "9" * 900 + "e999}", "out of range"),
        ('{"a":"' + "x" * MOST + '"}', "characters"),
        ('{"a":' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}", "deeper"),
    ],
)
def test_what_can_not_be_stored_or_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(JsonTextError, match=problem):
        check_object(text, most_characters=MOST)


def test_a_bomb_of_brackets_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(JsonTextError, match="deeper"):
        check_object('{"a":' * 100_000, most_characters=10**6)


def test_brackets_inside_strings_do_not_count() -> None:
    text = json.dumps({"a": "[" * 500, "b": '\\"{' * 100})
    assert check_object(text, most_characters=10**6) == text


def test_empty_stands_for_an_empty_object() -> None:
    assert check_object("", most_characters=MOST) == "{}"
    deep = '{"a":' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + "}"
    assert check_object(deep, most_characters=MOST) == deep
