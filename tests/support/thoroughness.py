"""How much of a long list a test tries: an even share of it, or with `RAGPIPE_THOROUGH=1` all.

Torture tests and simulations have hundreds of kills, damages and seeds, which take hours. An even share is tried on every change;
the whole list is for a change of what they test, and for a nightly run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
THOROUGH = "RAGPIPE_THOROUGH" in os.environ


def some_of(rows: Iterable[T], count: int) -> list[T]:
    """`count` of the rows, evenly spaced, with the first and the last; all of them where `THOROUGH`.

    Raises ValueError for a `count` under 2.
    """
    if count < 2:
        raise ValueError(f"some rows have the first and the last one: {count}")
    every = list(rows)
    if THOROUGH or len(every) <= count:
        return every
    return [every[round(place * (len(every) - 1) / (count - 1))] for place in range(count)]
