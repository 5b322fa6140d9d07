"""The jobs of a sweep on the questions that they share: by hand."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragpipe.reports.comparison_page import comparison_lines, comparison_markdown
from ragpipe.reports.job_comparison import COMPARISON_SCHEMA, Job, comparison_rows, shared_questions
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.combine_iterations import combine_iterations
from ragpipe.stages.score_iteration import ScoreInputs, score_iteration
from ragpipe.store.run.run_folder import RunFolder
from tests.support.run_tables import Result, Row, spent, write_run

SPECS = [ScoreSpec("faithfulness"), ScoreSpec("answer_relevance")]
SETTINGS = ScoringSettings(slices=[])


def job(root: Path, number: int, values: Mapping[str, Sequence[Result]]) -> Job:
    """A run whose iterations gave these values of faithfulness to the questions."""
    folder = root / f"job {number}"
    count = len(next(iter(values.values())))
    for iteration in range(1, count + 1):
        rows = [
            Row(q, "a", {"faithfulness": given[iteration - 1], "answer_relevance": 1.0}) for q, given in values.items()
        ]
        shutil.move(write_run(folder / f"of {iteration}", rows), folder / f"iteration-{iteration}")
        for file in ("samples.parquet", "outputs.parquet"):
            shutil.copy(folder / f"of {iteration}" / file, folder / file)
        score_iteration(ScoreInputs(
            folder / f"iteration-{iteration}", samples=folder / "samples.parquet", outputs=folder / "outputs.parquet",
            specs=SPECS, settings=SETTINGS, signature=f"ragpipe 0 | test | iteration {iteration}",
            judge={"label": "scripted", "uncalibrated": False}, run_id="me", spent=spent(), rates={},
        ))  # fmt: skip
    metrics = combine_iterations(RunFolder(folder), range(1, count + 1), SETTINGS)
    return Job(number, [f"k={number}"], 0, "complete", folder=folder, metrics=metrics)


def compared(*jobs: Job) -> list[dict[str, Any]]:
    runs = {one.number: (one.folder, one.metrics) for one in jobs if one.folder and one.metrics}
    return comparison_rows(jobs, shared_questions(runs))


def faithfulness(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["score"] == "faithfulness" and row["method"] is None]


@pytest.mark.slow
def test_a_job_with_the_easy_questions_is_not_the_best(tmp_path: Path) -> None:
    """20 easy questions at 1 (job 1 has .9 there), 20 hard ones at 0 that job 1 alone was asked not: over all that each one
    was asked job 1 has .9 and job 0 .5; on the 20 that both were asked job 0 has 1 and job 1 .9."""
    easy, hard = [f"e{i:02}" for i in range(20)], [f"h{i:02}" for i in range(20)]
    both = job(tmp_path, 0, {**{q: (1.0,) for q in easy}, **{q: (0.0,) for q in hard}})
    some = job(tmp_path, 1, {q: (0.9 if i else 0.0,) for i, q in enumerate(easy)})
    rows = faithfulness(compared(both, some))
    assert [round(row["mean"], 3) for row in rows] == [0.5, 0.855]
    assert [row["n_shared"] for row in rows] == [20, 20]
    assert [row["shared_mean"] for row in rows] == pytest.approx([1.0, 0.855])
    assert [row["standing"] for row in rows] == ["best", "behind"], "over all their answers the means say the opposite"
    assert rows[1]["to_best"] == pytest.approx(-0.145)
    everything = compared(both, some)
    assert all(set(row) == set(COMPARISON_SCHEMA.names) for row in everything)
    cell = comparison_lines([both, some], everything)[1][0][1]
    assert "on 20 shared: 1.00 [" in cell
    assert "on 20 shared: 1.00 [" in comparison_markdown([both, some], everything, ["k=0,1"])


@pytest.mark.slow
def test_jobs_without_a_shared_question_are_not_compared(tmp_path: Path) -> None:
    rows = faithfulness(
        compared(
            job(tmp_path, 0, {f"a{i}": (1.0,) for i in range(30)}),
            job(tmp_path, 1, {f"b{i}": (0.1,) for i in range(30)}),
        )
    )
    assert [(row["n_shared"], row["shared_mean"], row["standing"]) for row in rows] == [(0, None, None)] * 2


@pytest.mark.slow
def test_the_figures_are_of_the_cases_means_over_the_iterations(tmp_path: Path) -> None:
    """q1 has .2 and .6 (mean .4), q2 a value in the second iteration alone (.8), q3 is not in the other job."""
    fail = ("error", "refused: no")
    first = job(tmp_path, 0, {"q1": (0.2, 0.6), "q2": (fail, 0.8), "q3": (0.0, 0.0)})
    rows = faithfulness(compared(first, job(tmp_path, 1, {"q1": (0.5,), "q2": (0.7,)})))
    assert [row["n_shared"] for row in rows] == [2, 2]
    assert [row["shared_mean"] for row in rows] == pytest.approx([0.6, 0.6])


@pytest.mark.slow
def test_jobs_on_the_same_questions_say_nothing_more(tmp_path: Path) -> None:
    jobs = [job(tmp_path, n, {f"q{i}": (value,) for i in range(8)}) for n, value in enumerate((0.4, 0.6))]
    rows = compared(*jobs)
    assert "shared" not in comparison_lines(jobs, rows)[1][0][1]
    assert "the same" in comparison_markdown(jobs, rows, ["k=0,1"])
