"""Jobs of a sweep beside each other: who is best and who cannot be told apart, from literal figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ragpipe.reports.comparison_page import (
    compared_scores,
    comparison_lines,
    comparison_markdown,
    comparison_notes,
)  # fmt: skip
from ragpipe.reports.job_comparison import COMPARISON_SCHEMA, Job, comparison_rows, job_labels

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
        "declared": {
            name: {key: one.get(key, usual) for key, usual in DECLARED.items()} for name, one in everything.items()
        },
        "overall": group(scores),
        "by": by,
    }
    bill = {"calls": 30, "calls_computed": 0, "usd": 0.5, "usd_known": 0.5}
    cost = {"total": {"used": bill, "spent": {"calls": 12, "usd": 0.2, "usd_known": 0.2}}}
    return Job(number, words, 0, "complete", folder=Path(f"out/x/{number:012x}"), metrics=metrics, cost=cost)


@pytest.mark.parametrize(
    ("figures", "standings"),
    [
        ([(0.9, 0.85, 0.95), (0.5, 0.4, 0.6)], ["best", "behind"]),
        ([(0.7, 0.6, 0.8), (0.75, 0.65, 0.85)], ["not_separable", "not_separable"]),
        ([(0.7, 0.6, 0.8), (0.9, 0.8, 1.0)], ["not_separable", "not_separable"]),  # ends that touch tell nothing apart
        ([(0.9, 0.85, 0.95), (0.88, 0.8, 0.93), (0.5, 0.4, 0.6)], ["not_separable", "not_separable", "behind"]),
        ([(0.2, 0.1, 0.3), (0.9, 0.8, 1.0), (0.5, 0.4, 0.6)], ["behind", "best", "behind"]),
        ([(0.7, 0.6, 0.8), (0.7, 0.6, 0.8)], ["equal", "equal"]),
        ([(1.0, None, None), (1.0, None, None)], ["equal", "equal"]),
        ([(0.9, None, None), (0.5, 0.4, 0.6)], [None, None]),  # one interval alone compares with nothing
        ([(0.9, 0.85, 0.95), (0.95, None, None), (0.5, 0.4, 0.6)], [None, None, "behind"]),  # it may be better
        ([(0.9, 0.85, 0.95), (0.87, None, None), (0.5, 0.4, 0.6)], [None, None, "behind"]),  # or as good
        ([(0.9, 0.85, 0.95), (0.7, None, None), (0.5, 0.4, 0.6)], ["best", None, "behind"]),
        ([(1.0, None, None), (0.8, 0.7, 0.9), (0.4, 0.3, 0.5)], [None, None, "behind"]),  # every case the same value
        ([(0.9, 0.85, 0.95)], [None]),
    ],
)
def test_best_only_where_intervals_keep_jobs_apart(figures: list[Figures], standings: list[str | None]) -> None:
    rows = comparison_rows([job(i, f"k={i}", faithfulness=score(f)) for i, f in enumerate(figures)])
    assert [row["standing"] for row in rows] == standings


def test_a_job_under_the_coverage_floor_is_not_the_best_and_nobody_is_while_it_may_be() -> None:
    few = score((0.95, 0.9, 1.0), n_ok=1, n_judged=1, n_error=9, coverage=0.1)
    jobs = [
        job(i, f"k={i}", faithfulness=one)
        for i, one in enumerate((few, score((0.8, 0.75, 0.85)), score((0.4, 0.3, 0.5))))
    ]
    rows = comparison_rows(jobs)
    assert [row["standing"] for row in rows] == [None, None, "behind"]
    cells = [line[1] for line in comparison_lines(jobs, rows)[1]]
    assert cells[0] == "0.95 [0.90, 1.00]\n50% of 1 passed\ncoverage 10.0%"
    assert cells[1] == "0.80 [0.75, 0.85]\n50% of 8 passed"
    worse = [
        job(i, f"k={i}", faithfulness=one)
        for i, one in enumerate((few, score((0.8, 0.75, 0.85)), score((0.4, 0.3, 0.5))))
    ]
    for one in worse[:1]:
        one.metrics["overall"]["scores"]["faithfulness"].update(mean=0.2, interval=None)  # type: ignore[index]
    assert [row["standing"] for row in comparison_rows(worse)] == [None, "best", "behind"]


def test_a_cell_without_a_threshold_says_of_how_many() -> None:
    jobs = [job(0, "k=0", recall=score((0.9, 0.8, 1.0), pass_rate=None, n_judged=0))]
    assert comparison_lines(jobs, comparison_rows(jobs))[1][0][1] == "0.90 [0.80, 1.00]\nn = 8"


def test_equal_means_that_pass_another_threshold_are_not_equal() -> None:
    found = [score((0.7, 0.6, 0.8), threshold=t, pass_rate=p) for t, p in ((0.5, 0.9), (0.8, 0.3))]
    rows = comparison_rows([job(i, f"k={i}", faithfulness=one) for i, one in enumerate(found)])
    assert [row["standing"] for row in rows] == ["not_separable"] * 2
    page = comparison_markdown([job(i, f"k={i}", faithfulness=one) for i, one in enumerate(found)], rows, ["k=0,1"])
    assert "90.0%" in page
    assert "30.0%" in page


def test_lower_is_better_by_the_normalised_mean() -> None:
    """Of two shares of misses the smaller one is best."""
    misses = [score(f, higher_is_better=False) for f in ((0.1, 0.05, 0.15), (0.5, 0.4, 0.6))]
    rows = comparison_rows([job(i, f"k={i}", scope_miss=one) for i, one in enumerate(misses)])
    assert [row["standing"] for row in rows] == ["best", "behind"]


def test_a_count_is_not_placed() -> None:
    rows = comparison_rows(
        [job(i, f"k={i}", n_claims=score((m, m - 1, m + 1), low=None, high=None)) for i, m in enumerate((3, 9))]
    )
    assert [row["standing"] for row in rows] == [None, None]


def test_methods_are_placed_among_their_own() -> None:
    def of(number: int, a: Figures, b: Figures) -> Job:
        return job(
            number, f"k={number}", faithfulness=score((0.5, 0.1, 0.9)),
            methods={"a": {"faithfulness": score(a)}, "b": {"faithfulness": score(b)}},
        )  # fmt: skip

    rows = comparison_rows([of(0, (0.9, 0.8, 1.0), (0.2, 0.1, 0.3)), of(1, (0.3, 0.2, 0.4), (0.6, 0.5, 0.7))])
    found = {(row["job"], row["method"]): row["standing"] for row in rows}
    assert found == {
        (0, None): "equal", (1, None): "equal", (0, "a"): "best", (1, "a"): "behind", (0, "b"): "behind", (1, "b"): "best",
    }  # fmt: skip


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
    assert (rows[0]["flip_rate"], rows[0]["spread_sd"], rows[0]["iterations"], rows[0]["calls_spent"]) == (
        0.25,
        0.01,
        2,
        12,
    )


def test_labels_are_the_words_that_not_all_share() -> None:
    jobs = [Job(i, ("+experiment=x", f"k={i}", "z=1"), 0, "complete") for i in range(2)]
    assert job_labels(jobs) == [["k=0"], ["k=1"]]


def test_words_and_reasons_are_never_markup() -> None:
    bad = "k=<script>alert(1)</script>|`*a*`\x1b[31m"
    jobs = [job(0, "k=0", faithfulness=score((0.9, 0.8, 1.0))), Job(1, (bad,), 6, "not writable", bad)]
    page = comparison_markdown(jobs, comparison_rows(jobs), [bad])
    outside = re.sub(r"(`+)(?:(?!\1).)+\1", "", page)
    assert "<script" not in outside
    assert "*a*" not in outside
    assert "\x1b" not in page
    heads, lines = comparison_lines(jobs, comparison_rows(jobs))
    assert all(len(line) == len(heads) for line in lines)


def test_the_scores_that_a_reader_compares_first() -> None:
    plain = score((0.9, 0.8, 1.0))
    free = score((0.9, 0.8, 1.0), threshold=None)
    count = score((3.0, 2.0, 4.0), low=None, high=None)
    absent = {**plain, "mean": None}
    some = job(0, "k=0", overall_score=plain, faithfulness=plain, recall=free, n_claims=count, correctness=absent)
    assert compared_scores([some]) == ["faithfulness", "overall_score"]
    assert compared_scores([job(0, "k=0", recall=free, n_claims=count)]) == ["recall"]


def test_marks_are_explained_where_they_stand() -> None:
    near = [job(i, f"k={i}", faithfulness=score(f)) for i, f in enumerate([(0.7, 0.6, 0.8), (0.75, 0.65, 0.85)])]
    rows = comparison_rows(near)
    assert comparison_lines(near, rows)[1][0][1].startswith("0.70 [0.60, 0.80] ~")
    assert [note[0] for note in comparison_notes(rows)] == ["~"]
    far = [job(i, f"k={i}", faithfulness=score(f)) for i, f in enumerate([(0.9, 0.85, 0.95), (0.5, 0.4, 0.6)])]
    rows = comparison_rows(far)
    assert comparison_lines(far, rows)[1][0][1].startswith("0.90 [0.85, 0.95] *")
    assert [note[0] for note in comparison_notes(rows)] == ["*"]
