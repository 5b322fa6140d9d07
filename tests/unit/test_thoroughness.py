"""An even share of a long list."""

from __future__ import annotations

import pytest

from tests.support import thoroughness
from tests.support.thoroughness import some_of


@pytest.mark.parametrize(
    ("rows", "count", "expected"),
    [
        (range(10), 2, [0, 9]),
        (range(10), 4, [0, 3, 6, 9]),
        ("abcde", 3, ["a", "c", "e"]),
        ("abc", 3, ["a", "b", "c"]),
        ("ab", 5, ["a", "b"]),
    ],
)
def test_rows_are_evenly_spaced(monkeypatch: pytest.MonkeyPatch, rows: range | str, count: int, expected: list) -> None:
    monkeypatch.setattr(thoroughness, "THOROUGH", False)
    assert some_of(rows, count) == expected


def test_all_where_everything_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thoroughness, "THOROUGH", True)
    assert some_of(range(10), 2) == list(range(10))


def test_one_row_is_no_share() -> None:
    with pytest.raises(ValueError, match="first and the last"):
        some_of(range(10), 1)
