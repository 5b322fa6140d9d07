"""Jobs of a sweep beside each other: who is best and who cannot be told apart, from literal figures."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ragpipe.comparison.run_differences import ChangedKey
from ragpipe.core.score import ScoreSpec
from ragpipe.report import job_comparison
from ragpipe.report.job_comparison import COMPARISON_SCHEMA, Job, OtherJudging, SharedQuestions, comparison_rows
from ragpipe.report.markdown import render_answer
from ragpipe.report.report_data import score_cell
from ragpipe.report.sweep_page import compared_scores, sweep_report, sweep_section
from ragpipe.runs.combine_iterations import combine_iterations
from ragpipe.score.settings import ScoringSettings
from ragpipe.stats.intervals import estimate_mean
from ragpipe.store.run_folder import RunFolder
from tests.support.reports import report_of, terminal_of
from tests.support.run_tables import Result, Row, score_iterations

Figures = tuple[float, float, float] | tuple[float, None, None]


def score(figures: Figures, **more: Any) -> dict[str, Any]:
    mean, low, high = figures
    interval = None if low is None else {"level": 0.95, "low": low, "high": high, "method": "t"}
    return {
        "mean": mean, "interval": interval, "pass_rate": 0.5, "pass_interval": None,
        "n_ok": 8, "n_judged": 8, "coverage": 1.0, "spread": {"sd": 0.01, "min": 0, "max": 1}, "flips": {"rate": 0.25}, **more,
    }  # fmt: skip


DECLARED = {"low": 0, "high": 1, "higher_is_better": True, "threshold": 0.5}


def group(scores: dict[str, Any]) -> dict[str, Any]:
    return {"n_cases": 10, "n_samples": 10, "scores": scores}


def job(number: int, *words: str, methods: dict[str, Any] | None = None, **scores: dict[str, Any]) -> Job:
    by = {"method": {name: group(found) for name, found in (methods or {}).items()}}
    everything = {name: one for found in (*(methods or {}).values(), scores) for name, one in found.items()}
    metrics = {
        "iterations": [1, 2],
        "scoring": {"weights_used": {}, "coverage_floor": 0.95},
        "declared": {name: {key: one.get(key, usual) for key, usual in DECLARED.items()} for name, one in everything.items()},
        "overall": group(scores),
        "by": by,
    }
    bill = {"calls": 30, "calls_computed": 0, "usd": 0.5, "usd_known": 0.5}
    cost = {"total": {"used": bill, "spent": {"calls": 12, "usd": 0.2, "usd_known": 0.2}}}
    return Job(number, words, 0, "complete", folder=Path(f"out/x/{number:012x}"), metrics=metrics, cost=cost)


HIGHER = {"low": 0.0, "high": 1.0, "higher_is_better": True}
STEPS = np.array([0.0, 0.125] * 10)
"""What varies from question to question: 20 questions, mean 1/16."""
SPREAD = np.linspace(0.2, 0.8, 20)
LOWER = SPREAD - 0.125 - STEPS / 8


def on_shared(*values: np.ndarray | None, method: str | None = None, scale: Any = HIGHER) -> dict[Any, SharedQuestions]:
    """The figures of jobs 0, 1, ... in faithfulness, from their values by question; None for a job without any."""
    found = {number: column for number, column in enumerate(values) if column is not None}
    means = {number: estimate_mean(column, low=scale["low"], high=scale["high"]) for number, column in found.items()}
    return {(n, method, "faithfulness"): SharedQuestions(len(found[n]), means[n], found[n], scale, 0.95) for n in found}


def standings(*values: np.ndarray | None, coverage: Sequence[float] = ()) -> list[str | None]:
    jobs = [job(n, f"k={n}", faithfulness=score((n / 10, 0.0, 1.0), coverage=coverage[n] if coverage else 1.0)) for n in range(len(values))]
    return [row["standing"] for row in comparison_rows(jobs, on_shared(*values))]


def test_jobs_are_separated_by_their_paired_difference() -> None:
    """All 20 questions .125 lower: all signs alike, p far below .05, though the means' intervals overlap widely."""
    assert standings(SPREAD, LOWER) == ["best", "behind"]
    assert standings(LOWER, SPREAD) == ["behind", "best"]
    low, high = (estimate_mean(values, low=0, high=1).interval for values in (SPREAD - 0.2, SPREAD))
    assert low.high > high.low
    turned = SPREAD[::-1].copy()
    turned[0] += 0.1
    few = SPREAD.copy()
    few[:5] -= 0.2  # fewer than 6 changed questions decide nothing
    for other in (turned, few, SPREAD - 0.01 - STEPS / 100):  # the last is within .05 of the scale
        assert standings(SPREAD, other) == ["not_separable"] * 2
    # 7 of 20 questions .25 lower and none higher: p = 2/2^7 = .0156; of two jobs that is one pair, of four it is six.
    top = np.full(20, 0.5) + STEPS
    lower = top.copy()
    lower[:7] -= 0.25
    assert standings(top, lower) == ["best", "behind"]
    assert standings(top, lower, top - 0.4 - STEPS / 8, top - 0.45 - STEPS / 8) == ["not_separable", "not_separable", "behind", "behind"]


def test_jobs_without_figures_or_coverage() -> None:
    assert (standings(None, None), standings(SPREAD, None)) == ([None, None], [None, None])
    equal = [job(i, f"k={i}", faithfulness=score((0.7, 0.6, 0.8))) for i in range(2)]
    assert [row["standing"] for row in comparison_rows(equal)] == ["equal", "equal"]
    assert standings(SPREAD + 0.1, SPREAD, LOWER, coverage=(0.1, 1.0, 1.0)) == [None, None, "behind"]
    assert standings(LOWER, SPREAD, LOWER - 0.02, coverage=(0.1, 1.0, 1.0)) == [None, "best", "behind"]
    misses = [score((n / 10, 0.0, 1.0), higher_is_better=False) for n in range(2)]
    shared = on_shared(LOWER, SPREAD, scale={**HIGHER, "higher_is_better": False})
    rows = comparison_rows([job(i, f"k={i}", faithfulness=one) for i, one in enumerate(misses)], shared)
    assert [row["standing"] for row in rows] == ["best", "behind"]


def test_methods_are_placed_among_their_own() -> None:
    def of(number: int) -> Job:
        methods = {name: {"faithfulness": score((number / 10, 0, 1))} for name in "ab"}
        return job(number, f"k={number}", faithfulness=score((0.5, 0.1, 0.9)), methods=methods)

    shared = {**on_shared(SPREAD, LOWER, method="a"), **on_shared(LOWER, SPREAD, method="b")}
    rows = comparison_rows([of(0), of(1)], shared)
    found = {(row["job"], row["method"]): row["standing"] for row in rows}
    assert found == {(0, None): "equal", (1, None): "equal", (0, "a"): "best", (1, "a"): "behind", (0, "b"): "behind", (1, "b"): "best"}


def test_every_row_fits_the_table_and_a_failed_job_stands_in_it() -> None:
    failed = Job(1, ("k=1",), 2, "refused", "the configuration is wrong")
    rows = comparison_rows([job(0, "k=0", faithfulness=score((0.9, 0.8, 1.0))), failed])
    table = pa.Table.from_pylist(rows, schema=COMPARISON_SCHEMA)
    assert all(set(row) == set(COMPARISON_SCHEMA.names) for row in rows)
    assert table.column("usd_used").to_pylist() == [0.5, None]
    last = table.to_pylist()[-1]
    assert (last["state"], last["reason"], last["exit_code"], last["run_id"], last["score"]) == (
        "refused", "the configuration is wrong", 2, None, None,
    )  # fmt: skip
    assert (rows[0]["iterations"], rows[0]["calls_spent"]) == (2, 12)


def test_words_and_reasons_are_never_markup() -> None:
    bad = "k=<script>alert(1)</script>|`*a*`\x1b[31m"
    jobs = [job(0, "k=0", faithfulness=score((0.9, 0.8, 1.0))), Job(1, (bad,), 6, "not writable", bad)]
    page = render_answer(sweep_report(jobs, comparison_rows(jobs), [bad]))
    outside = re.sub(r"(`+)(?:(?!\1).)+\1", "", page)
    assert "<script" not in outside
    assert "*a*" not in outside
    assert "\x1b" not in page
    assert "\x1b" not in terminal_of(report_of(sweep_section(jobs, comparison_rows(jobs))))


def test_the_scores_that_a_reader_compares_first() -> None:
    plain = score((0.9, 0.8, 1.0))
    free = score((0.9, 0.8, 1.0), threshold=None)
    count = score((3.0, 2.0, 4.0), low=None, high=None)
    absent = {**plain, "mean": None}
    some = job(0, "k=0", overall_score=plain, faithfulness=plain, recall=free, n_claims=count, correctness=absent)
    assert compared_scores([some]) == ["faithfulness", "overall_score"]
    assert compared_scores([job(0, "k=0", recall=free, n_claims=count)]) == ["recall"]


def judged_by_b(first: int) -> OtherJudging:
    return OtherJudging(first, 0, [ChangedKey("judge", "judge.model", "a", "b")])


def faithful(*words: str) -> list[Job]:
    return [job(n, word, faithfulness=score((n / 10, 0.0, 1.0))) for n, word in enumerate(words)]


def test_judges_have_each_their_best_job() -> None:
    """The figures of `best` and `behind` above: here the judge alone makes them differ."""
    jobs, judgings = faithful("judge.model=a", "judge.model=b"), {1: judged_by_b(1)}
    rows = comparison_rows(jobs, on_shared(SPREAD, LOWER), judgings)
    assert [(row["standing"], row["to_best"], row["ranked_with"]) for row in rows] == [(None, None, 0), (None, None, 1)]
    said = terminal_of(report_of(sweep_section(jobs, rows, judgings)), 200)
    assert "model=b is not ranked with model=a, the judges differ: judge.model: a -> b" in said
    assert "task=calibrate" in said
    page = render_answer(sweep_report(jobs, rows, ["judge.model=a,b"], judgings))
    assert "`model=b` is not ranked with `model=a`, the judges differ: `judge.model: a -> b`" in page
    assert not re.search(r"\| (best|behind|not separable) \|", page)
    # k=2 is lower by either judge, and judge b is stricter: each judge has its best, whatever the other says.
    jobs = faithful("k=1 a", "k=1 b", "k=2 a", "k=2 b")
    rows = comparison_rows(jobs, on_shared(SPREAD, SPREAD - 0.05, LOWER, LOWER - 0.05), {1: judged_by_b(1), 3: judged_by_b(1)})
    assert [row["standing"] for row in rows] == ["best", "best", "behind", "behind"]
    assert [row["ranked_with"] for row in rows] == [0, 1, 0, 1]
    assert rows[3]["to_best"] == rows[2]["to_best"] == pytest.approx(-0.125 - 1 / 128)


def test_a_composite_is_not_ranked_across_weights_but_its_parts_are() -> None:
    jobs = [job(n, f"w={n}", overall_score=score((n / 10, 0, 1)), faithfulness=score((n / 10, 0, 1))) for n in range(2)]
    for each, weight in zip(jobs, (0.2, 0.5), strict=True):
        assert each.metrics
        each.metrics["scoring"]["weights_used"] = {"faithfulness": weight, "recall": 0.1}
    shared = on_shared(SPREAD, LOWER)
    shared |= {(number, None, "overall_score"): found for (number, _, _), found in shared.items()}
    rows = comparison_rows(jobs, shared)
    standing = {(row["job"], row["score"]): row["standing"] for row in rows}
    assert [standing[n, "faithfulness"] for n in (0, 1)] == ["best", "behind"]
    assert [standing[n, "overall_score"] for n in (0, 1)] == [None, None]
    assert "overall_score is not ranked across different weights: each job has its own" in terminal_of(report_of(sweep_section(jobs, rows)))
    assert "`overall_score` is not ranked across different weights" in render_answer(sweep_report(jobs, rows, ["w=0,1"]))


SPECS = [ScoreSpec("faithfulness"), ScoreSpec("answer_relevance")]
SETTINGS = ScoringSettings(slices=[])


def shared_job(root: Path, number: int, values: Mapping[str, Sequence[Result]]) -> Job:
    """A run whose iterations gave these values of faithfulness to the questions."""
    folder = root / f"job {number}"
    count = len(next(iter(values.values())))
    tables = [[Row(q, "a", {"faithfulness": given[n], "answer_relevance": 1.0}) for q, given in values.items()] for n in range(count)]
    score_iterations(folder, tables, SPECS, SETTINGS)
    metrics = combine_iterations(RunFolder(folder), range(1, count + 1), SETTINGS)
    return Job(number, [f"k={number}"], 0, "complete", folder=folder, metrics=metrics)


@pytest.mark.slow
def test_a_job_with_the_easy_questions_is_not_the_best(tmp_path: Path) -> None:
    """20 easy questions at 1 (job 1 has .9 there), 20 hard ones at 0 that job 1 alone was asked not: over all that each one
    was asked job 1 has .9 and job 0 .5; on the 20 that both were asked job 0 has 1 and job 1 .9."""
    easy, hard = [f"e{i:02}" for i in range(20)], [f"h{i:02}" for i in range(20)]
    both = shared_job(tmp_path, 0, {**{q: (1.0,) for q in easy}, **{q: (0.0,) for q in hard}})
    some = shared_job(tmp_path, 1, {q: (0.9 if i else 0.0,) for i, q in enumerate(easy)})
    runs = {one.number: (one.folder, one.metrics) for one in (both, some)}
    everything = comparison_rows([both, some], job_comparison.shared_questions(runs))
    rows = [row for row in everything if row["score"] == "faithfulness" and row["method"] is None]
    assert [round(row["mean"], 3) for row in rows] == [0.5, 0.855]
    assert [row["n_shared"] for row in rows] == [20, 20]
    assert [row["shared_mean"] for row in rows] == pytest.approx([1.0, 0.855])
    assert [row["standing"] for row in rows] == ["best", "behind"], "over all their answers the means say the opposite"
    assert rows[1]["to_best"] == pytest.approx(-0.145)
    assert rows[1]["to_best_low"] < rows[1]["to_best"] < rows[1]["to_best_high"] < 0
    assert all(set(row) == set(COMPARISON_SCHEMA.names) for row in everything)
    assert "| 20: 1.00 [" in render_answer(sweep_report([both, some], everything, ["k=0,1"]))


def shared_score_of(mean: float, low: float | None, high: float | None, **more: Any) -> dict[str, Any]:
    interval = None if low is None else {"low": low, "high": high, "method": "wilson", **more.pop("bounds", {})}
    return {"n_ok": 40, "mean": mean, "interval": interval, "coverage": 1.0, **more}


@pytest.mark.parametrize(("found", "percent", "lines"), [
    (shared_score_of(0.875, 0.789, 0.93, pass_rate=0.9, n_judged=40), True, ["87.5 [78.9, 93.0]", "90% of 40"]),
    (shared_score_of(0.875, 0.789, 0.93), False, ["0.88 [0.79, 0.93]", "n = 40"]),
    # the bounds of a mean at an end are on one side of it: no half-width says that
    (shared_score_of(1.0, 0.91, 1.0, n_ok=36), True, ["100.0 [91.0, 100.0]", "n = 36"]),
    (shared_score_of(0.0, 0.0, 0.56, n_ok=3, bounds={"too_few": True}), False, ["0.00 [0.00, 0.56]", "n = 3", "too few"]),
    (shared_score_of(1.0, None, None, n_ok=1, interval_reason="one_value"), False, ["1.00", "n = 1", "too few"]),
    (shared_score_of(4.0, None, None, n_ok=9, interval_reason="no_spread"), False, ["4.00", "n = 9"]),
    (shared_score_of(0.5, 0.4, 0.6, coverage=0.9), False, ["0.50 [0.40, 0.60]", "n = 40", "coverage 90.0%"]),
    (shared_score_of(0.5, 0.4, 0.6, coverage=0.9999), False, ["0.50 [0.40, 0.60]", "n = 40", "coverage 99.9%"]),
    (None, False, ["-", "skipped"]),
])  # fmt: skip
def test_a_cell_says_mean_interval_count_and_what_is_missing(found: dict[str, Any] | None, percent: bool, lines: list[str]) -> None:
    assert score_cell(found, percent=percent).lines == lines
