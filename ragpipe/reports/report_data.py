"""What a report is made from: the metrics, cost, gates, index and cases of a run, read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.reports.case_views import ContradictedClaim, contradicted_claims, parse_json_cell
from ragpipe.reports.metrics_view import chart_names, iteration_count
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.index_coverage import IndexCoverage
from ragpipe.schema.sample import CaseKey
from ragpipe.scoring.accumulators import stage_times
from ragpipe.scoring.iterations.per_case_repeats import cases_of, members
from ragpipe.scoring.system_usage import USD, figures
from ragpipe.store.run.run_folder import IterationFolder
from ragpipe.store.run.run_tables import batches, numbers_of, open_table, read_json, rows_at, rows_of_cases


@dataclass(frozen=True)
class CaseContradiction:
    """A contradicted claim, the row of its case in `records.parquet`, and the score in whose details it is."""

    record: Mapping[str, Any]
    score: str
    claim: ContradictedClaim


def read_contradictions(iteration: IterationFolder, records: Sequence[Mapping[str, Any]]) -> list[CaseContradiction]:
    """The contradicted claims of these cases, case by case and score by score. Raises DataError."""
    cases = {CaseKey.of(record): record for record in records}
    scores = rows_of_cases(iteration.scores, cases, (*CaseKey._fields, "score_name", "details")) if cases else {}
    return [
        CaseContradiction(cases[case], score["score_name"], claim)
        for case, rows in scores.items()
        for score in rows
        for claim in contradicted_claims(parse_json_cell(score["details"], dict))
    ]


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
    first = 0
    for batch in batches(records, [column], size=_BATCH):
        texts: Sequence[str | None] = batch.column(column).to_pylist()
        for place, text in enumerate(texts, first):
            if text and text != "{}":
                yield place, from_json(text)
        first += batch.num_rows


@dataclass(frozen=True)
class ReportData:
    """The files of a run, as the builders of sections read them.

    Attributes:
        metrics: `metrics.json`, over all iterations where there are several (`read_results`).
        cost: `cost.json` of the same iterations.
        settings: The `report` section of the configuration.
        name: What the user calls the run.
        gates: `gates.json`.
        index: `index.json`; None for a run without an index manifest.
        methods: The run's id, and its methods against the first one (`method_differences`); None for one method.
        lowest: Rows of `records.parquet`: the lowest cases of the last iteration.
        contradictions: What the contexts of the lowest cases contradict.
        figures: Numbers of every case of the last iteration, for the charts of the HTML page; None where no page is made.
        questions: The questions of the diagnoses' examples, by the id of the sample.
        first_error: The first error of a run without any value, in words; empty for none.
        judging_seconds: How long each iteration was judged, all starts together.
        drift: The newest check of the judge for drift (`check`) and its `baseline`, as the manifest notes them; empty without one.
        folder: The run folder as the user names it.
        next_command: The next useful command; empty for none.
    """

    metrics: Mapping[str, Any]
    cost: Mapping[str, Any]
    settings: ReportSettings = field(default_factory=ReportSettings)
    name: str = ""
    gates: Mapping[str, Any] = field(default_factory=lambda: {"gates": ()})
    index: IndexCoverage | None = None
    methods: Mapping[str, Any] | None = None
    lowest: Sequence[Mapping[str, Any]] = ()
    contradictions: Sequence[CaseContradiction] = ()
    figures: CaseFigures | None = None
    questions: Mapping[str, str] = field(default_factory=dict)
    first_error: str = ""
    judging_seconds: Mapping[int, float] = field(default_factory=dict)
    drift: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""
    next_command: str = ""


def read_results(run: Path, iteration: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metrics and the cost that the reports of a run show.

    They are those of all iterations (`final/`), where there are several and `iteration` is the folder of the last one;
    else those of that iteration. Raises DataError.
    """
    metrics, folder = read_json(iteration / "metrics.json"), run / "final"
    final = read_json(folder / "metrics.json") if (folder / "metrics.json").is_file() else {}
    if iteration_count(final) > 1 and final["iterations"][-1] == metrics["iteration"]:
        cost = read_json(folder / "cost.json")
        return final, {**cost["total"], "prices": cost["prices"]}
    return metrics, read_json(iteration / "cost.json")


_NO_SCORE = 2.0  # sorts after every overall score


def lowest_cases(records: Path, count: int) -> list[dict[str, Any]]:
    """The rows of the `count` lowest cases: lowest overall score first, then most failed scores, then data order.

    Only cases that failed something are included; those without an overall score come last.
    """
    if count == 0:
        return []
    with open_table(records) as file:
        lowest = _lowest(file, count)
    rows = rows_at(records, lowest)
    return [rows[row] for row in lowest]


def _lowest(file: pq.ParquetFile, count: int) -> list[int]:
    """The places of the `count` lowest of the cases that failed something: by overall score, failed scores (most first),
    place."""
    lowest, start = np.empty((3, 0)), 0
    for batch in file.iter_batches(batch_size=_BATCH, columns=["overall_score", "overall_passed", "failed_by"]):
        score = batch["overall_score"].fill_null(_NO_SCORE).to_numpy()
        failed = pc.fill_null(pc.list_value_length(batch["failed_by"]), 0).to_numpy()
        not_passed = pc.equal(batch["overall_passed"], False).fill_null(False).to_numpy(zero_copy_only=False)
        ranked = np.stack([score, -failed, np.arange(start, start + batch.num_rows)])[:, (failed > 0) | not_passed]
        lowest = np.concatenate([lowest, ranked], axis=1)
        lowest = lowest[:, np.lexsort(lowest[::-1])[:count]]
        start += batch.num_rows
    places: list[int] = lowest[2].astype(np.int64).tolist()
    return places
