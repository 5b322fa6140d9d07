"""Rows that belong together, such as those of one question: which numbers there are, which several lists share, codes from 0."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def distinct(numbers: Whole) -> Whole:
    """The different numbers, rising. They are sorted: `np.unique` alone hashes them, which takes ten times as long."""
    ordered = np.sort(numbers)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def in_all(lists: Sequence[Whole]) -> Whole:
    """The different numbers that every one of the lists has, rising; none of no list."""
    if not lists:
        return np.empty(0, dtype=np.int64)
    return reduce(lambda one, other: np.intersect1d(one, other, assume_unique=True), map(distinct, lists))


def in_any(lists: Sequence[Whole]) -> Whole:
    """The different numbers that one of the lists has, rising."""
    return distinct(np.concatenate([np.empty(0, dtype=np.int64), *lists]))


def cluster_codes(clusters: Whole) -> tuple[Whole, int]:
    """The clusters of some rows, numbered from 0 without gaps in rising order, and how many there are."""
    steps = np.diff(clusters)
    if len(clusters) and np.all(steps >= 0):  # the order of the data: the rows of a cluster follow one another
        codes = np.concatenate([[0], np.cumsum(steps > 0)]).astype(np.int64)
        return codes, int(codes[-1]) + 1
    names, codes = np.unique(clusters, return_inverse=True)
    return codes.astype(np.int64), len(names)
