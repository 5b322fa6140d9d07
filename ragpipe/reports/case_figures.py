"""The columns of `records.parquet` that charts are made from: a few numbers per case, read column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.reports.metrics_view import chart_names
from ragpipe.scoring.accumulators import stage_times
from ragpipe.scoring.iterations.per_case_repeats import cases_of, members
from ragpipe.scoring.system_usage import USD, figures
from ragpipe.store.run.run_tables import batches, numbers_of, open_table

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

LATENCY, TOKENS = "latency_ms", "tokens_total"
_BATCH = 8192


@dataclass(frozen=True)
class CaseFigures:
    """Some numbers of every case of one iteration, in data order; NaN where a case has none.

    Attributes:
        iteration: which iteration the values of the scores are of.
        samples: the number of the question of each case.
        methods: the places of the cases of each method, in the order of the data.
        values: the charted scores, in their native scales.
        operations: `latency_ms` (the system's total, else the sum of its stages), `tokens_total` and `cost_usd` as recorded.
        slices: the places of the cases of each value of each field that the run is broken down by.
    """

    iteration: int
    samples: Whole
    methods: Mapping[str, Whole]
    values: Mapping[str, Floats]
    operations: Mapping[str, Floats] = field(default_factory=dict)
    slices: Mapping[str, Mapping[str, Whole]] = field(default_factory=dict)


def read_case_figures(records: Path, metrics: Mapping[str, Any], iteration: int) -> CaseFigures:
    """The figures of the scores of `chart_names`. Raises DataError for a table that cannot be read."""
    cases = cases_of([records])
    names = cases.names["method"]
    methods = {
        method: np.flatnonzero(pc.equal(names, method).to_numpy()).astype(np.int64)
        for method in pc.unique(names).to_pylist()
    }
    with open_table(records) as file:
        known = set(file.schema_arrow.names)
        values = {name: numbers_of(file, name) for name in chart_names(metrics) if name in known}
    fields = [name for name in metrics["by"] if name != "method" and "*" not in name]
    by = members(records, {name: metrics["by"][name] for name in fields}) if len(methods) > 1 else {}
    return CaseFigures(iteration, cases.samples, methods, values, _operations(records, len(cases)), by)


def _operations(records: Path, n: int) -> dict[str, Floats]:
    columns = {name: np.full(n, np.nan) for name in (LATENCY, TOKENS, USD)}
    for place, recorded in _objects(records, "timings"):
        columns[LATENCY][place] = stage_times(recorded)["total"]
    for place, recorded in _objects(records, "usage"):
        usage = figures(recorded, None)
        for name in (TOKENS, USD):
            columns[name][place] = usage.get(name, np.nan)
    return columns


def _objects(records: Path, column: str) -> Iterator[tuple[int, dict[str, float]]]:
    """The JSON objects of a column that are not empty, with their rows."""
    first = 0
    for batch in batches(records, [column], size=_BATCH):
        texts: Sequence[str | None] = batch.column(column).to_pylist()
        for place, text in enumerate(texts, first):
            if text and text != "{}":
                yield place, from_json(text)
        first += batch.num_rows
