"""What a report is made from: the metrics, cost, gates, index and cases of a run, read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.reports.case_figures import CaseFigures
from ragpipe.reports.contradictions import CaseContradiction
from ragpipe.reports.metrics_view import iteration_count
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.index_coverage import IndexCoverage
from ragpipe.store.run.run_tables import read_json


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
