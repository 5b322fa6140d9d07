"""The quick parser of strict JSON refuses and reads what the thorough one does."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core import strict_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def outcome(text: str) -> Any:
    try:
        return repr(strict_json.strict_loads(text))
    except strict_json.InvalidJson as error:
        return str(error), error.column


def thorough(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(strict_json, "_fast_loads", lambda text: None)
        return outcome(text)


@pytest.mark.slow
@given(PLAIN, st.booleans(), st.sampled_from([(", ", ": "), (",", ":"), (" ,", " :")]))
def test_values_are_the_same(value: Any, ascii_only: bool, separators: tuple[str, str]) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(text) == thorough(text, patch)


@pytest.mark.slow
@given(st.text('{}[]:,"\\u0022aeE1.-9 ', max_size=24))
def test_any_text_ends_alike(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(text) == thorough(text, patch)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": 1, "b": {"c": 1, "c": 1}}',
        '{"a" :1, "a":2}',
        '{"a":1, "a"\t:2}',
        '{"a": "x\\u0022:", "b": 1, "b": 2}',
        '{"a": "x\\":", "b": 1, "b": 2}',
        '{"\\u0061": 1, "a": 2}',
        '{"a": 1e999}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": "Infinity"}',
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        "[" * 101 + "]" * 101,
        "[" * 100 + "]" * 100,
        "1" * 4301,
        '{"a": 1} x',
        "\ufeff{}",
        "null",
    ],
)
def test_what_only_one_parser_would_accept(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(text) == thorough(text, monkeypatch)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ('{"a": "x', "Unterminated string", 7),
        ('["\x01"]', "Invalid control character", 3),
        ('{"a" 1}', "Expecting ':' delimiter", 6),
        ('"\\q"', "Invalid \\escape", 2),
    ],
)
def test_a_message_is_whole_without_the_place(text: str, message: str, column: int) -> None:
    """Readers add ` at column 7`; the messages of `json` may end in `at` already."""
    assert outcome(text) == (message, column)
