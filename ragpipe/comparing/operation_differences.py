"""What the system under test took for the shared cases: latency and cost, paired as scores are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.comparing.pairing import Pairs
from ragpipe.comparing.score_differences import PairedScore
from ragpipe.comparing.side import Side
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.scoring.accumulators import stage_times
from ragpipe.scoring.system_usage import USD, figures
from ragpipe.store.run.run_tables import batches

Floats = NDArray[np.float64]

LATENCY = "latency_ms"
OPERATIONS = (LATENCY, USD)
_DECLARED: Mapping[str, Any] = {"low": None, "high": None, "higher_is_better": False}
_BATCH = 8192
_FEW_CASES = 5  # below which one case always decides much


def paired_operations(base: Side, candidate: Side, pairs: Pairs) -> list[PairedScore]:
    """`latency_ms` (the system's total, else the sum of its stages) and `cost_usd` of the shared cases, where both sides
    recorded any: less is better, and there is no scale. Answers are the same in all iterations, so they are read once."""
    of_base, of_candidate = _operations(base), _operations(candidate)
    nothing = np.full(len(pairs), np.nan)
    operations = []
    for name in OPERATIONS:
        values = of_base[name][pairs.base], of_candidate[name][pairs.candidate]
        score = PairedScore(name, _DECLARED, pairs.questions, *values, nothing, nothing)
        if np.any(score.measured):
            operations.append(score)
    return operations


def typical_figures(score: PairedScore, pairs: Pairs) -> dict[str, Any]:
    """What the mean of a skewed quantity does not show, over the cases with a value on both sides: medians, the median of
    the cases' ratios, and the case that decides the mean.

    `median_ratio` is candidate by base, null where no base is above 0. `dominant` is the case with the largest change where the
    mean would differ in the other direction without it, or where it has more than half of all change; else null. It has the
    case's key as the candidate names it, both values, and the mean difference `without` it.
    """
    places = np.flatnonzero(score.measured)
    base, candidate = score.base[places], score.candidate[places]
    above = base > 0
    ratio = float(np.median(candidate[above] / base[above])) if np.any(above) else None
    medians = {"base_median": float(np.median(base)), "candidate_median": float(np.median(candidate))}
    return {**medians, "median_ratio": ratio, "dominant": _dominant(base, candidate, places, pairs)}


def _dominant(base: Floats, candidate: Floats, places: NDArray[np.int64], pairs: Pairs) -> dict[str, Any] | None:
    changes = candidate - base
    if len(changes) < _FEW_CASES:
        return None
    first = int(np.argmax(np.abs(changes)))
    rest = float(np.sum(changes) - changes[first])
    is_turned = rest * float(np.sum(changes)) < 0
    if not is_turned and 2 * abs(changes[first]) <= np.sum(np.abs(changes)):
        return None
    case = pairs.cases.slice(int(places[first]), 1).to_pylist()[0]
    values = {"base": float(base[first]), "candidate": float(candidate[first]), "without": rest / (len(changes) - 1)}
    return {"case": [case[name] for name in OUTPUT_KEY], **values}


def _operations(side: Side) -> dict[str, Floats]:
    """Milliseconds and dollars per case of a side; NaN where they are not recorded."""
    columns = {name: np.full(side.n_rows, np.nan) for name in OPERATIONS}
    first = 0
    for batch in batches(side.records, ["timings", "usage"], size=_BATCH):
        for place, text in enumerate(batch.column("timings").to_pylist(), first):
            if text and text != "{}":
                columns[LATENCY][place] = stage_times(from_json(text))["total"]
        for place, text in enumerate(batch.column("usage").to_pylist(), first):
            if text and text != "{}":
                columns[USD][place] = figures(from_json(text), None).get(USD, math.nan)
        first += batch.num_rows
    return {name: values[side.rows] for name, values in columns.items()}
