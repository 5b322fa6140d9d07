"""Tables of tests whose every row is a whole run."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def first_rows(rows: Iterable[Any], keep: int | Collection[str] = 1) -> list[Any]:
    """The rows for `pytest.mark.parametrize`: those that take the same way through the code carry the marker `slow`.

    `keep` are the rows that every start of the tests tries: a number of them from the front, or their ids. A row that is
    one text has it as its id.
    """
    return [_row(row, index, keep) for index, row in enumerate(rows)]


def _row(row: Any, index: int, keep: int | Collection[str]) -> Any:
    values, marks, name = row if isinstance(row, type(pytest.param())) else _plain(row)
    kept = index < keep if isinstance(keep, int) else name in keep
    return pytest.param(*values, id=name, marks=marks if kept else [*marks, pytest.mark.slow])


def _plain(row: Any) -> tuple[tuple[Any, ...], tuple[()], str | None]:
    if isinstance(row, str):
        return (row,), (), row
    return (row if isinstance(row, tuple) else (row,)), (), None
