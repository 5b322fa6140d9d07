"""What a report is made from: the metrics, cost, gates, index and cases of a run, read once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparison.headline import headline_scores
from ragpipe.comparison.score_differences import recorded_operations
from ragpipe.data.index_manifest import IndexCoverage
from ragpipe.report.model import PageLink, Plot, ScoreCell
from ragpipe.report.settings import ReportSettings
from ragpipe.report.styled_text import bracketed, decimal, run_words, share_below_one, whole
from ragpipe.score.iterations import cases_of, members
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.system_usage import suite_seconds
from ragpipe.store.run_tables import batches, numbers_of, open_table, read_json, rows_at

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

RANK = "mrr"
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
        groups: by field of the breakdowns and its value the places of the cases.
        ranks: 1 / the rank of the first relevant chunk, 0 for none; None for a run without `mrr`.
    """

    iteration: int
    samples: Whole
    methods: Mapping[str, Whole]
    values: Mapping[str, Floats]
    operations: Mapping[str, Floats] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Whole]] = field(default_factory=dict)
    ranks: Floats | None = None


def read_case_figures(records: Path, metrics: Mapping[str, Any], iteration: int) -> CaseFigures:
    """The figures of the scores of `chart_names`. Raises DataError for a table that cannot be read."""
    cases = cases_of([records])
    names = cases.names["method"]
    methods = {
        method: np.flatnonzero(pc.equal(names, method).to_numpy()).astype(np.int64) for method in pc.unique(names).to_pylist()
    }
    with open_table(records) as file:
        known = set(file.schema_arrow.names)
        values = {name: numbers_of(file, name) for name in chart_names(metrics) if name in known}
        ranks = numbers_of(file, RANK) if RANK in known else None
    fields = {name: groups for name, groups in metrics["by"].items() if name != "method" and "*" not in name}
    groups = members(records, fields) if len(methods) > 1 and fields else {}
    return CaseFigures(iteration, cases.samples, methods, values, recorded_operations(records, len(cases)), groups, ranks)


@dataclass(frozen=True)
class ReportData:
    """The files of a run, as the builders of sections read them.

    Attributes:
        metrics: `metrics.json`, over all iterations where there are several (`read_results`).
        cost: `cost.json` of the same iterations.
        settings: The `report` section of the configuration.
        name: What the user calls the run.
        run: `run_id`, `created_at` and `duration_s` of its manifest; empty where there is none.
        gates: `gates.json`.
        index: `index.json`; None for a run without an index manifest.
        methods: The run's id, and its methods against the first one (`method_differences`); None for one method.
        iteration: The number of the last iteration.
        lowest: Rows of `records.parquet`: its lowest cases.
        low_scores: `scores` of its `low_scores.json`.
        figures: Numbers of every case of the last iteration, for the charts of the HTML page; None where no page is made.
        questions: The questions of the diagnoses' examples, by the id of the sample.
        first_error: The first error of a run without any value, in words; empty for none.
        drift: The newest check of the judge for drift (`check`) and its `baseline`, as the manifest notes them; empty without one.
        pages: The other pages about the run that are there.
    """

    metrics: Mapping[str, Any]
    cost: Mapping[str, Any]
    settings: ReportSettings = field(default_factory=ReportSettings)
    name: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)
    gates: Mapping[str, Any] = field(default_factory=lambda: {"gates": ()})
    index: IndexCoverage | None = None
    methods: Mapping[str, Any] | None = None
    iteration: int = 1
    lowest: Sequence[Mapping[str, Any]] = ()
    low_scores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    figures: CaseFigures | None = None
    questions: Mapping[str, str] = field(default_factory=dict)
    first_error: str = ""
    drift: Mapping[str, Any] = field(default_factory=dict)
    pages: Sequence[PageLink] = ()


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
    lowest, start = np.empty((3, 0)), 0
    for batch in batches(records, ["overall_score", "overall_passed", "failed_by"], size=_BATCH):
        score = batch["overall_score"].fill_null(_NO_SCORE).to_numpy()
        failed = pc.fill_null(pc.list_value_length(batch["failed_by"]), 0).to_numpy()
        not_passed = pc.equal(batch["overall_passed"], False).fill_null(False).to_numpy(zero_copy_only=False)
        ranked = np.stack([score, -failed, np.arange(start, start + batch.num_rows)])[:, (failed > 0) | not_passed]
        lowest = np.concatenate([lowest, ranked], axis=1)
        lowest = lowest[:, np.lexsort(lowest[::-1])[:count]]
        start += batch.num_rows
    places = lowest[2].astype(np.int64).tolist()
    rows = rows_at(records, places)
    return [rows[place] for place in places]


HEADLINES = 8
"""Scores that a chart shows at most: more are a table."""


def method_groups(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The groups that are shown side by side: the methods, or `all` when there are none."""
    return metrics["by"].get("method") or {"all": metrics["overall"]}


def table_scores(metrics: Mapping[str, Any]) -> Sequence[str]:
    """Names of the scores in table order; the overall score comes last, and only where it has a value. `by_importance` sorts them."""
    scores = metrics["overall"]["scores"]
    return [name for name in scores if name != "overall_score" or scores[name]["n_ok"]]


def main_scores(names: Sequence[str], metrics: Mapping[str, Any]) -> list[str]:
    """Those of the scores that have a weight or a threshold; all of them where none has."""
    weights = metrics["scoring"].get("weights_used", {})
    main = [name for name in names if name in weights or metrics["declared"][name]["threshold"] is not None]
    return main or list(names)


def headline_names(metrics: Mapping[str, Any]) -> list[str]:
    """The scores that the run is about, the overall one first: those that are weighted or gated (`headline_scores`), and have a
    value; at most `HEADLINES`."""
    scores = metrics["overall"]["scores"]
    names = headline_scores(metrics, metrics, list(metrics["declared"]))
    return [name for name in names if name in scores and scores[name]["n_ok"]][:HEADLINES]


def chart_names(metrics: Mapping[str, Any]) -> list[str]:
    """The headline scores, and after them those on a scale that have a threshold, up to `HEADLINES` together."""
    names = headline_names(metrics)
    for name in table_scores(metrics):
        declared, score = metrics["declared"][name], metrics["overall"]["scores"][name]
        if declared["threshold"] is not None and declared["low"] is not None and score["n_ok"]:
            names.append(name)
    return [name for name in dict.fromkeys(names) if metrics["declared"][name]["low"] is not None][:HEADLINES]


class CategoryRow(NamedTuple):
    """The cases of a category, how many of them have a verdict, and how many passed; `rate` is None without a verdict."""

    category: str
    total: int
    judged: int
    passed: int
    rate: float | None


def category_rows(metrics: Mapping[str, Any]) -> tuple[str, list[CategoryRow]]:
    """The first headline score that cases pass or fail by, and a row per category. Over several iterations counts are of one."""
    scores, rows = metrics["overall"]["scores"], []
    names = (*headline_names(metrics), *chart_names(metrics))
    name = next((name for name in names if scores[name].get("pass_rate") is not None), "")
    for category, group in (metrics["by"].get("category") or {}).items():
        score = group["scores"].get(name, {})
        rate, judged = score.get("pass_rate"), round(score.get("n_judged", 0) / iteration_count(metrics))
        rows.append(CategoryRow(category, group["n_cases"], judged, round((rate or 0) * judged), rate))
    return name, rows


def by_importance(names: Sequence[str], metrics: Mapping[str, Any]) -> list[str]:
    """The overall score, the headline scores, those with a threshold, the others."""
    first = dict.fromkeys((OVERALL.name, *headline_names(metrics), *chart_names(metrics), *names))
    return [name for name in first if name in names]


def valued_scores(metrics: Mapping[str, Any]) -> list[str]:
    """The scores that have a value, by importance: the first one of each metric, then the others."""
    scores = metrics["overall"]["scores"]
    names = [name for name in by_importance(table_scores(metrics), metrics) if scores[name]["n_ok"]]
    firsts = {metrics["declared"][name]["metric"] or name: name for name in reversed(names)}.values()
    return sorted(names, key=lambda name: name not in firsts)


def times_of(data: ReportData) -> str:
    """When the run was started, how long it took, and the system with it (`run_words`)."""
    return run_words({**data.run, "suite_s": suite_seconds(data.metrics["overall"]["operations"])})


def iteration_count(metrics: Mapping[str, Any]) -> int:
    """The number of iterations that these figures are of: how often each case was judged."""
    return len(metrics.get("iterations", (1,)))


def iterations_text(metrics: Mapping[str, Any]) -> str:
    """`iteration 2`, `3 iterations`."""
    count = iteration_count(metrics)
    return f"{count} iterations" if count > 1 else f"iteration {metrics.get('iteration', 1)}"


def counted_per_iteration(metrics: Mapping[str, Any]) -> list[str]:
    """That a case counts in each of several iterations; empty for one."""
    count = iteration_count(metrics)
    return [f"Counted in each of {count} iterations: {whole(metrics['n_cases'])} cases x {count}."] if count > 1 else []


def share_of_cases(n: int, metrics: Mapping[str, Any]) -> str:
    """`7 of 40 (17.5%)`; over several iterations each case counts in each: `12 of 120 (10.0%)`."""
    cases = metrics["n_cases"] * iteration_count(metrics)
    return f"{whole(n)} of {whole(cases)} ({n / cases:.1%})"


def weights_of(used: Mapping[str, Any]) -> list[str]:
    """The judges of `cost.json` that are weights in this process: a detector's or an encoder's are in its name."""
    return [name for name in used.get("by_judge", ()) if "@" in name]


def scale_text(name: str, metrics: Mapping[str, Any], percent: Collection[str]) -> str:
    """A score's scale, as it stands behind its name: ` 1-5`, ` x100`, ` count`; empty for 0 to 1."""
    low, high = metrics["declared"][name]["low"], metrics["declared"][name]["high"]
    if name in percent:
        return " x100"
    if low is None or high is None:
        return " count"
    return "" if (low, high) == (0, 1) else f" {low:g}-{high:g}"


def heading(name: str, metrics: Mapping[str, Any], percent: Collection[str]) -> str:
    """A score's name with its scale: `correctness 1-5`, `faithfulness x100`, `scope_miss (lower is better)`."""
    direction = "" if metrics["declared"][name]["higher_is_better"] else " (lower is better)"
    return name + scale_text(name, metrics, percent) + direction


def measured_parts(name: str, metrics: Mapping[str, Any]) -> tuple[str, str]:
    """`2 of 4 parts` and the names of these two, for a composite or overall score that lacks some parts; else empty."""
    parts = metrics["composite_parts"].get(name)
    if not parts or not parts["absent"]:
        return "", ""
    measured = parts["measured"]
    return f"{len(measured)} of {len(measured) + len(parts['absent'])} parts", ", ".join(measured)


def missing_overall_score(metrics: Mapping[str, Any]) -> str:
    """Why a run with only one part of the overall score has none; empty where it has one, or no part of it."""
    parts = metrics["composite_parts"].get("overall_score")
    if parts is None or "overall_score" in metrics["overall"]["scores"]:
        return ""
    return f"no overall_score: it takes two of its parts, and this run measured only {parts['measured'][0]}"


def times_100(score: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a score that is shown in percent."""
    names = ("base_mean", "candidate_mean", "difference", "detectable", "smallest_effect", "low", "high")
    scaled = {name: None if score[name] is None else score[name] * 100 for name in names}
    interval = score["interval"]
    if interval is not None:
        interval = {**interval, **{end: interval[end] * 100 for end in ("low", "high")}}
    return {**score, **scaled, "interval": interval}


def score_cell(
    score: Mapping[str, Any] | None, *, percent: bool = False, declared: Mapping[str, Any] | None = None
) -> ScoreCell:
    """A score as text: `0.85 [0.82, 0.88]`, `78% of 412`, `coverage 96%`; with a plot where `declared` is passed.

    `score` is None where it applies to no case of the group.
    """
    if score is None:
        return ScoreCell("-", note="skipped")
    if score["mean"] is None:
        return ScoreCell("-", note=_missing_note(score) or "none")
    factor, places = (100.0, 1) if percent else (1.0, 2)
    rate, few = score.get("pass_rate"), has_few_questions(score)
    return ScoreCell(
        decimal(score["mean"] * factor, places),
        bracketed(score["interval"], factor, places),
        f"{rate:.0%} of {whole(score['n_judged'])}" if rate is not None else f"n = {whole(score['n_ok'])}",
        ", ".join(part for part in ("too few" if few else "", _missing_note(score)) if part),
        few,
        _plot(score, declared) if declared else None,
    )


def has_few_questions(score: Mapping[str, Any]) -> bool:
    """Whether a mean is of too few questions for its interval to say much, or to have one."""
    bounds = score["interval"]
    return bool(bounds.get("too_few")) if bounds else score.get("interval_reason") in ("one_value", "one_sample")


def _missing_note(score: Mapping[str, Any]) -> str:
    notes = []
    coverage = score.get("coverage")
    if coverage is not None and coverage < 1:
        notes.append(f"coverage {share_below_one(coverage)}")
    if unjudged := score.get("n_unjudged"):
        notes.append(f"{whole(unjudged)} without a verdict")
    if not score["n_ok"] and score.get("n_skipped"):
        notes.append("skipped")
    if missing := score.get("n_missing"):
        notes.append(f"{missing} missing")
    return ", ".join(notes)


def _plot(score: Mapping[str, Any], declared: Mapping[str, Any]) -> Plot | None:
    low, high = declared["low"], declared["high"]
    if low is None or high is None or high == low:
        return None

    def place(value: float) -> float:
        """The value's place on the axis, 0 to 100."""
        return round(min(1.0, max(0.0, float(value - low) / float(high - low))) * 100, 2)

    bounds, threshold = score["interval"], declared["threshold"]
    low_end, high_end = (place(bounds["low"]), place(bounds["high"])) if bounds else (None, None)
    return Plot(place(score["mean"]), low_end, high_end, None if threshold is None else place(threshold))
