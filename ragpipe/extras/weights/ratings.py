"""Weights fitted to people's ratings of answers, from a score of the run or from a file, and whether to take them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.datasets.fault_list import Faults, shown_value
from ragpipe.datasets.file_formats import data_file, place, read_rows
from ragpipe.extras.weights.case_scores import CaseScores
from ragpipe.extras.weights.weight_fit import RATINGS_TO_ASK, fit_weights
from ragpipe.schema.sample import OUTPUT_KEY

Floats = NDArray[np.float64]

UNREADABLE_RATINGS = "the ratings cannot be used; nothing was written"


def weights_from_ratings(
    cases: CaseScores, ratings: Floats, weights: Mapping[str, float], *, seed: int, level: float
) -> dict[str, Any]:
    """Weights fitted to the ratings, and whether they are advised.

    Args:
        cases: the scores of the cases.
        ratings: people's ratings, one per case; NaN where a case has none.
        weights: the weights in use, by score name.
        seed: of the folds.
        level: how sure the gain has to be.

    Only rated cases in which every weighted score has a value are fitted: `n_rated` are rated, `n` are fitted, `absent`
    counts per score the rated cases without it.
    """
    names = [name for name, weight in weights.items() if weight > 0]
    scores, is_rated = cases.matrix(names), ~np.isnan(ratings)
    fitted = is_rated & ~np.any(np.isnan(scores), axis=1)
    in_use = np.array([weights[name] for name in names])
    fit = fit_weights(
        scores[fitted], ratings[fitted], in_use / np.sum(in_use), cases.questions[fitted], seed=seed, level=level
    )
    absent = {name: int(np.sum(is_rated & np.isnan(cases.values[name]))) for name in names}
    return {
        "n_rated": int(np.sum(is_rated)),
        "n": fit.n,
        "questions": fit.clusters,
        "absent": {name: count for name, count in absent.items() if count},
        "ask_for": max(0, RATINGS_TO_ASK - fit.n),
        "in_use": dict(zip(names, (in_use / np.sum(in_use)).tolist(), strict=True)),
        "fitted": dict(zip(names, fit.weights, strict=True)) if fit.weights else {},
        "correlation": fit.correlation,
        "fitted_correlation": fit.fitted_correlation,
        "gain": fit.gain,
        "advised": fit.is_advised,
        "reason": fit.reason,
    }


def read_ratings(path: Path, label: str, cases: CaseScores) -> Floats:
    """The ratings of a CSV, JSON, JSONL or Parquet file, one per case: the mean of several, NaN without one.

    Columns: `sample_id`, `rating`; `method`, which may be left out where the run has one; `repeat`, 1 where left out. An
    empty rating is none. Raises DataError with every line that does not fit.
    """
    faults = Faults(UNREADABLE_RATINGS)
    file = data_file(path, label, path.name, "auto", ",", faults)
    faults.raise_all()
    assert file is not None
    places = {
        key: row for row, key in enumerate(zip(*(cases.keys[name].to_pylist() for name in OUTPUT_KEY), strict=True))
    }
    by_case: dict[int, list[float]] = defaultdict(list)
    for position, record in read_rows(file, faults):
        where = place(file, position)
        if record.get("rating") in (None, ""):
            continue
        row, rating = _row(record, where, cases.method_names, places, faults), _number(record["rating"], where, faults)
        if row is not None and rating is not None:
            by_case[row].append(rating)
    faults.raise_all()
    ratings = np.full(len(places), np.nan)
    for row, values in by_case.items():
        ratings[row] = math.fsum(values) / len(values)
    return ratings


def _row(
    record: Mapping[str, Any],
    where: str,
    methods: Sequence[str],
    places: Mapping[tuple[str, str, int], int],
    faults: Faults,
) -> int | None:
    """The place of the rated case; None, and a fault, where the run does not have it."""
    method = record.get("method") or (methods[0] if len(methods) == 1 else None)
    if record.get("sample_id") in (None, "") or method is None:
        missing = "method" if record.get("sample_id") not in (None, "") else "sample_id"
        fix = f"add the column {missing}" + (": the run has several methods" if missing == "method" else "")
        faults.add(where, missing, "nothing", "the case that was rated", fix)
        return None
    repeat = _number(record.get("repeat") or 1, where, faults)
    key = str(record["sample_id"]), str(method), int(repeat or 1)
    if key not in places:
        name = "/".join(map(str, key))
        faults.add(
            where,
            "sample_id",
            repr(name)[:100],
            "a case of the run",
            "compare it with sample_id, method and repeat of records.parquet",
        )
    return places.get(key)


def _number(value: Any, where: str, faults: Faults) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        faults.add(where, "rating", shown_value(value), "a number", "leave it empty where nobody rated the case")
        return None
    return number
