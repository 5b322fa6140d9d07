"""An even share of a long list, and of the slow rows of a test."""

from __future__ import annotations

import pytest

from tests.support import thoroughness
from tests.support.thoroughness import left_out, some_of

pytest_plugins = ["pytester"]

MARKED = """
import pytest

@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("row", [pytest.param("quick", marks=[]), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4))])
def test_rows(row): ...

@pytest.mark.thorough
@pytest.mark.slow
def test_whole(): ...

@pytest.mark.slow
@pytest.mark.parametrize("row", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_one_row(row): ...

def test_other(): ...
"""


@pytest.mark.parametrize(
    ("rows", "count", "expected"),
    [
        (range(10), 2, [0, 9]),
        (range(10), 4, [0, 3, 6, 9]),
        ("abcde", 3, ["a", "c", "e"]),
        ("abc", 3, ["a", "b", "c"]),
        ("ab", 5, ["a", "b"]),
        ("abc", 1, ["a"]),
        ("abc", 0, []),
    ],
)
def test_rows_are_evenly_spaced(monkeypatch: pytest.MonkeyPatch, rows: range | str, count: int, expected: list) -> None:
    monkeypatch.setattr(thoroughness, "THOROUGH", False)
    assert some_of(rows, count) == expected


def test_all_where_everything_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thoroughness, "THOROUGH", True)
    assert some_of(range(10), 2) == list(range(10))


@pytest.mark.slow
def test_what_is_marked_is_left_out_of_a_usual_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n    slow\n    thorough\n")
    items = pytester.getitems(MARKED)
    monkeypatch.setattr(thoroughness, "THOROUGH", False)
    assert {item.name for item in left_out(items)} == {"test_rows[1]", "test_rows[2]", "test_whole", "test_one_row[2]"}
    monkeypatch.setattr(thoroughness, "THOROUGH", True)
    assert left_out(items) == set()
