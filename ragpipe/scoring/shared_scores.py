"""Methods on the questions that they share: what may be compared, where a method was not asked everything or skipped some.

A mean over all that a method answered compares easy questions with hard ones. For each score the shared questions are those
on which every method has a value; a method that never has one (closed book, in a retrieval score) is no part of that
score's comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.scoring.estimates import estimate_of, figures_of
from ragpipe.stats.clusters import in_all, in_any
from ragpipe.stats.intervals import estimate_rate

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


def asked(methods: Mapping[str, Places], samples: Places) -> dict[str, int]:
    """`n_questions` that every method was asked, `of` how many that any was. `methods` are the numbers of their cases."""
    return _counts([samples[places] for places in methods.values()])


def unshared_warnings(counts: Mapping[str, int]) -> list[str]:
    """A warning where the methods were not asked the same questions; `counts` is what `asked` says."""
    n, of = counts["n_questions"], counts["of"]
    if n == of:
        return []
    return [f"methods share {n} of {of} questions: compare by differences, not by means"]


def shared_score(
    methods: Mapping[str, Places],
    samples: Places,
    values: Floats,
    rates: Floats,
    scale: Mapping[str, Any],
    level: float,
) -> dict[str, Any] | None:
    """One score on its shared questions; None where fewer than two methods have it.

    Args:
        methods: the cases of each method, as places in the arrays.
        samples: the number of each case's sample.
        values: the value of each case, NaN for none; over several iterations the mean.
        rates: the verdict of each case as 1 or 0, NaN for none; over several iterations the mean.
        scale: what is declared of the score.
        level: the level of the intervals.

    `n_questions` are shared, `of` those on which any method has a
    value; `methods` holds `n_ok`, `mean`, `interval` and, where cases are judged, `n_judged`, `pass_rate`, `pass_interval`.
    """
    measured = {name: places[~np.isnan(values[places])] for name, places in methods.items()}
    measured = {name: places for name, places in measured.items() if len(places)}
    if len(measured) < 2:
        return None
    questions = [samples[places] for places in measured.values()]
    common = in_all(questions)
    figures = {
        name: _figures(values, rates, samples, places[np.isin(samples[places], common)], scale, level)
        for name, places in measured.items()
    }
    return {**_counts(questions), "methods": figures}


def _counts(questions: list[Places]) -> dict[str, int]:
    return {
        "n_questions": len(in_all(questions)),
        "of": len(in_any(questions)),
    }


def _figures(
    values: Floats, rates: Floats, samples: Places, places: Places, scale: Mapping[str, Any], level: float
) -> dict[str, Any]:
    mean = estimate_of(values[places], samples[places], scale, level)
    judged = places[~np.isnan(rates[places])]
    rate = estimate_rate(rates[judged], samples[judged], level=level)
    counts = {"n_ok": len(places), **({"n_judged": len(judged)} if len(judged) else {})}
    return {**counts, **figures_of(mean, rate)}
