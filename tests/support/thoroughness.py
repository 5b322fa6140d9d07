"""How much of what is long the tests try: an even share of it, or with `RAGPIPE_THOROUGH=1` all.

Torture tests and simulations have hundreds of kills, damages and seeds, and many commands have a dozen ways to be wrong. All of it
takes hours. A share is tried on every change; all of it is for a change of what they test, for a nightly run and before a release.

The marker `thorough` does this for the slow rows of a test, `some_of` for a loop inside one.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")
THOROUGH = "RAGPIPE_THOROUGH" in os.environ


def some_of(rows: Iterable[T], count: int) -> list[T]:
    """`count` of the rows, evenly spaced, with the first and, of two or more, the last; all of them where `THOROUGH`."""
    every = list(rows)
    if THOROUGH or len(every) <= count:
        return every
    if count < 2:
        return every[:count]
    return [every[round(place * (len(every) - 1) / (count - 1))] for place in range(count)]


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The slow items that are for thorough runs alone: `thorough` marks a test whose slow rows are, or one such row, and
    `thorough(tried=3)` a test of whose slow rows three are always tried."""
    marked: dict[tuple[str, str, int], list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("thorough")
        if mark is not None and item.get_closest_marker("slow") is not None:
            name = getattr(item, "originalname", item.name)
            marked.setdefault((str(item.path), name, mark.kwargs.get("tried", 0)), []).append(item)
    return {item for (_, _, tried), rows in marked.items() for item in set(rows) - set(some_of(rows, tried))}
