"""Which case is in which group of a field, or of several fields together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragpipe.scoring.accumulators import Accumulators
from ragpipe.scoring.dimensions import Coded

Places = NDArray[np.int64]


def membership(ledger: Accumulators, field: str) -> tuple[list[str], Places, Places]:
    """Which case is in which group of a field, or of several crossed by `*`: labels, case numbers, label numbers."""
    first, *rest = (Coded(*ledger.pairs[part], ledger.fields[part].names) for part in field.split("*"))
    cases, codes, names = crossed(first, *rest)
    return names, cases, codes


def crossed(first: Coded, *rest: Coded) -> Coded:
    """The labels of several fields together, `a * b`, for every case that has one in each.

    A `*` within a label is written `\\*` (and a backslash twice), so that no two groups have one name.
    """
    cases, codes, names = first
    names = [_escaped(name) for name in names] if rest else names
    for other_cases, other_codes, more in rest:
        if not more:
            return Coded(cases[:0], codes[:0], [])
        starts = np.searchsorted(other_cases, cases, side="left")
        times = np.searchsorted(other_cases, cases, side="right") - starts
        within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        cases, left = np.repeat(cases, times), np.repeat(codes, times)
        combined = left.astype(np.int64) * len(more) + other_codes[np.repeat(starts, times) + within]
        used, codes = np.unique(combined, return_inverse=True)
        names = [f"{names[pair // len(more)]} * {_escaped(more[pair % len(more)])}" for pair in used.tolist()]
    return Coded(cases, codes.astype(np.int64), names)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("*", "\\*")
