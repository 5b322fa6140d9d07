"""The jobs of a sweep on the questions that they share: the figures that jobs are ranked by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragpipe.scoring.estimates import estimate_of
from ragpipe.scoring.iterations.per_case_repeats import cases_of, open_records, repeats
from ragpipe.stats.intervals import Estimate

SharedKey = tuple[int, str | None, str]  # job, method (None: all cases), score


class SharedQuestions(NamedTuple):
    """One score of one job on the `n` questions for which every job of the comparison has a value.

    `values` are its means per question, in an order that all jobs share; `scale` is what is declared of the score.
    """

    n: int
    estimate: Estimate
    values: NDArray[np.float64]
    scale: Mapping[str, Any]
    level: float


class _Table(NamedTuple):
    """The cases of a job and the files of their records."""

    records: Sequence[Path]
    samples: NDArray[Any]
    methods: NDArray[Any]


def shared_questions(runs: Mapping[int, tuple[Path, Mapping[str, Any]]]) -> dict[SharedKey, SharedQuestions]:
    """For each job, method and score the figures on the shared questions, over the means of its cases.

    `runs` are the folder and the `final/metrics.json` of each job that has results. Nothing for a score (of a method)
    that fewer than two jobs have. Raises DataError for tables that do not fit together.
    """
    tables = {number: _table(folder, metrics) for number, (folder, metrics) in runs.items()}
    names = dict.fromkeys(name for _, metrics in runs.values() for name in metrics["declared"])
    compared: dict[SharedKey, SharedQuestions] = {}
    for name in names:
        having = {number: metrics for number, (_, metrics) in runs.items() if name in metrics["declared"]}
        values = {number: _means(tables[number], name) for number in having}
        for method in _methods(having):
            compared |= _compared(name, method, having, tables, values)
    return compared


def _table(folder: Path, metrics: Mapping[str, Any]) -> _Table:
    records = [folder / f"iteration-{number}" / "records.parquet" for number in metrics["iterations"]]
    cases = cases_of(records)
    return _Table(records, *(np.array(cases.names[key].to_pylist()) for key in ("sample_id", "method")))


def _means(table: _Table, name: str) -> NDArray[np.float64]:
    """The mean of each case over the iterations; NaN where none has a value."""
    with open_records(table.records, [name]) as records:
        return repeats(records, name, len(table.samples)).means


def _methods(having: Mapping[int, Mapping[str, Any]]) -> Iterator[str | None]:
    yield None
    yield from dict.fromkeys(method for metrics in having.values() for method in metrics["by"].get("method", {}))


def _compared(
    name: str,
    method: str | None,
    having: Mapping[int, Mapping[str, Any]],
    tables: Mapping[int, _Table],
    values: Mapping[int, NDArray[np.float64]],
) -> dict[SharedKey, SharedQuestions]:
    places = {}
    for number in having:
        of_method = True if method is None else tables[number].methods == method
        measured = np.flatnonzero(~np.isnan(values[number]) & of_method)
        if len(measured):
            places[number] = measured
    if len(places) < 2:
        return {}
    common = reduce(np.intersect1d, (tables[number].samples[chosen] for number, chosen in places.items()))
    compared = {}
    for number, chosen in places.items():
        samples = tables[number].samples[chosen]
        here = np.isin(samples, common)
        codes = np.unique(samples[here], return_inverse=True)[1].astype(np.int64)
        metrics = having[number]
        estimate = estimate_of(
            values[number][chosen[here]], codes, metrics["declared"][name], metrics["scoring"]["level"]
        )
        values_here, level = values[number][chosen[here]], metrics["scoring"]["level"]
        by_question = np.bincount(codes, weights=values_here) / np.maximum(np.bincount(codes), 1)
        compared[number, method, name] = SharedQuestions(
            len(common), estimate, by_question, metrics["declared"][name], level
        )
    return compared
