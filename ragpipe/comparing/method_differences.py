"""The methods of a run against the first one: what the report of a run says of them, from the columns of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparing.comparison import score_documents
from ragpipe.comparing.headline import headline_scores, shares_of_parts
from ragpipe.comparing.pairing import Pairs, paired_cases
from ragpipe.comparing.score_differences import PairedScore
from ragpipe.comparing.settings import CompareSettings
from ragpipe.scoring.iterations.per_case_repeats import cases_of, open_records, repeats

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def method_differences(records: Sequence[Path], metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    """`base`, the first method in the data, and `candidates`: for each other method its headline scores against the base, over the
    cases that both have, as `task=compare compare=methods` has them in `comparison.json`.

    `records` are the tables of the iterations that `metrics` is of; intervals have its level. Each column is read once. None
    where there is one method only, or no headline score. Raises DataError for tables that do not fit together.
    """
    if len(metrics["by"].get("method", {})) < 2:
        return None
    cases = cases_of(records).names
    base, *others = pc.unique(cases["method"]).to_pylist()
    pairs = {method: _method_pairs(cases, base, method) for method in others}
    headline = headline_scores(metrics, metrics, list(metrics["declared"]))
    if not headline:
        return None
    scores: dict[str, list[PairedScore]] = {method: [] for method in others}
    with open_records(records, headline) as tables:
        for name in headline:
            repeated = repeats(tables, name, len(cases))
            for method, of_method in scores.items():
                of_method.append(
                    _paired(name, metrics["declared"][name], pairs[method], repeated.means, repeated.rates)
                )
    settings = CompareSettings(level=metrics["scoring"]["level"])
    documents = {method: score_documents(of_method, headline, settings) for method, of_method in scores.items()}
    for document in documents.values():
        for name, figures in document.items():
            figures["parts"] = shares_of_parts(name, metrics, metrics)
    return {"base": base, "candidates": documents}


def _method_pairs(cases: pa.Table, base: str, method: str) -> Pairs:
    """The cases of two methods in pairs, by their places among all cases."""
    of_base, of_method = _places(cases, base), _places(cases, method)
    pairs = paired_cases(cases.take(pa.array(of_base)), cases.take(pa.array(of_method)))
    return replace(pairs, base=of_base[pairs.base], candidate=of_method[pairs.candidate])


def _places(cases: pa.Table, method: str) -> Whole:
    return np.flatnonzero(pc.equal(cases["method"], method).to_numpy()).astype(np.int64)


def _paired(name: str, declared: Mapping[str, Any], pairs: Pairs, values: Floats, rates: Floats) -> PairedScore:
    return PairedScore(
        name,
        declared,
        pairs.questions,
        values[pairs.base],
        values[pairs.candidate],
        rates[pairs.base],
        rates[pairs.candidate],
    )
