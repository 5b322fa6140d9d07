"""Agreement on recorded human labels: the figures of EXPECTED.json, which other libraries computed, to 6 places."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from ragpipe.stats.agreement_coefficients import cohen_kappa, kendall, pearson, spearman
from ragpipe.stats.agreement_intervals import estimate_correlation, estimate_kappa, estimate_quadratic_kappa
from ragpipe.stats.detection import (
    balanced_accuracy,
    estimate_auroc,
    estimate_balanced_accuracy,
    estimate_sensitivity,
)
from ragpipe.stats.jackknife import difference_of_versions

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

COVERAGE = {"not_covered": 0.0, "partially_covered": 0.5, "fully_covered": 1.0}
PREDICTED = {"NO_COVERAGE": 0.0, "PARTIAL_COVERAGE": 0.5, "FULL_COVERAGE": 1.0}


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def expected(folder: Path, block: str) -> Any:
    return read(folder, "EXPECTED.json")[block]


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """MT-RAG: task, the annotators' mean of each quality, the recorded judge's faithfulness `rl_f`."""
    return [
        {
            "task": row["task_id"],
            "model": row["model_id"],
            "rl_f": next(iter(row["annotations"]["rl_f"].values()))["value"],
            **{
                quality: mean(int(mark["value"]) for mark in row["annotations"][quality].values())
                for quality in ("faithfulness", "completeness", "appropriateness", "naturalness")
            },
        }
        for row in read(folder, "mtrag_human/mtrag_human_evaluations.json")["evaluations"]
    ]


def test_faithful_answers_told_apart_by_a_recorded_judge(real_data: Path) -> None:
    figures = expected(real_data, "mtrag")["faithful (human mean >= 3) vs rl_f >= 0.75"]
    rows = evaluations(real_data)
    labels = np.array([float(row["faithfulness"] >= 3) for row in rows])
    scores = np.array([row["rl_f"] for row in rows])
    verdicts = (scores >= 0.75).astype(float)
    _, questions = np.unique([row["task"] for row in rows], return_inverse=True)

    area = estimate_auroc(labels, scores, questions)
    kappa = estimate_kappa(labels, verdicts, questions)
    accuracy = estimate_balanced_accuracy(labels, verdicts, questions)
    recall = estimate_sensitivity(labels, verdicts, questions)
    assert (area.n, area.clusters) == (figures["n"], 78)
    assert area.value == pytest.approx(figures["auroc"], abs=1e-6)
    assert kappa.value == pytest.approx(figures["cohen_kappa"], abs=1e-6)
    assert accuracy.value == pytest.approx(figures["balanced_accuracy"], abs=1e-6)
    assert recall.mean == pytest.approx(figures["recall"], abs=1e-6)
    for estimate in (area, kappa, accuracy, recall):
        assert estimate.interval is not None
        assert 0.05 < estimate.interval.high - estimate.interval.low < 0.5


@pytest.mark.parametrize("judge", ["gpt-3.5-turbo", "pandalm-7b"])
def test_preferences_of_a_judge_against_the_majority(real_data: Path, judge: str) -> None:
    """Unordered classes 0 (tie), 1, 2; a reply without a readable verdict is left out."""
    figures = expected(real_data, "pandalm")[judge]
    majority = {
        row["idx"]: max(marks := [row[f"annotator{i}"] for i in (1, 2, 3)], key=marks.count)
        for row in read(real_data, "pandalm/testset-v1.json")
    }
    field = "gpt_result" if judge.startswith("gpt") else "pandalm_result"
    verdict_of = {"Tie": 0, "0": 0, "1": 1, "2": 2}
    pairs = [
        (majority[row["idx"]], verdict_of[str(row[field])])
        for row in read(real_data, f"pandalm/{judge}-testset-v1.json")
        if str(row[field]) in verdict_of
    ]
    labels, verdicts = np.array(pairs, dtype=float).T
    kappa = estimate_kappa(labels, verdicts)
    assert (kappa.n, kappa.value) == (figures["n"], pytest.approx(figures["cohen_kappa"], abs=1e-6))
    assert kappa.interval is not None
    assert kappa.interval.low < kappa.value < kappa.interval.high


@pytest.mark.parametrize("recorded", ["ChatGPT/Rating", "Falcon/Vanilla", "GPT-4/Vanilla", "LLaMA2/Vanilla"])
def test_both_orders_of_a_pair(real_data: Path, recorded: str) -> None:
    """The same judge shown both orders, its verdicts mapped back: how far it agrees with itself."""
    figures = expected(real_data, "llmbar")[f"Natural/{recorded}"]
    results = [row["results"][-1] for row in read(real_data, f"llmbar/Natural/{recorded}/result.json")]
    first, second = (np.array([float(row[f"swap = {order}"]["winner"]) for row in results]) for order in (False, True))
    assert estimate_kappa(first, second).value == pytest.approx(figures["kappa_agreement"], abs=1e-6)


def coverage(folder: Path, judge: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Summary of a Haystack: people's and the judge's grades of insights, 0, 1/2 or 1, and the summary of each."""
    rows = []
    for number, sample in enumerate(read(folder, "summhay_eval/eval_benchmark_data.json")):
        grades = {row["insight_id"]: PREDICTED[row["coverage"]] for row in sample[judge]}
        rows += [(COVERAGE[row["coverage"]], grades[row["insight_id"]], number) for row in sample["annotation"]]
    labels, verdicts, numbers = zip(*rows, strict=True)
    return np.array(labels), np.array(verdicts), np.array(numbers)


@pytest.mark.parametrize("judge", ["predictions_prompted_gpt-4o", "predictions_prompted_gpt3.5"])
def test_grades_of_insights(real_data: Path, judge: str) -> None:
    figures = expected(real_data, "summhay")[judge]["ordinal"]
    labels, verdicts, summaries = coverage(real_data, judge)
    grades = estimate_quadratic_kappa(labels, verdicts, summaries, low=0, high=1)
    classes = estimate_kappa(labels, verdicts, summaries)
    assert (grades.n, grades.clusters) == (figures["n"], 119)
    assert grades.value == pytest.approx(figures["kappa_quadratic"], abs=1e-6)
    assert classes.value == pytest.approx(figures["cohen_kappa"], abs=1e-6)


def test_difference_of_two_judges(real_data: Path) -> None:
    """Two judges of the same insights; the difference is that of their recorded kappas, and surely above 0 (.49 against .29)."""
    labels, better, summaries = coverage(real_data, "predictions_prompted_gpt-4o")
    _, worse, _ = coverage(real_data, "predictions_prompted_gpt3.5")
    blocks = expected(real_data, "summhay")
    kappas = [blocks[f"predictions_prompted_{name}"]["ordinal"]["cohen_kappa"] for name in ("gpt3.5", "gpt-4o")]
    result = difference_of_versions(cohen_kappa, labels, worse, better, summaries)
    assert (result.base, result.candidate) == pytest.approx(kappas, abs=1e-6)
    assert result.difference == pytest.approx(kappas[1] - kappas[0], abs=2e-6)
    assert result.interval is not None
    assert result.interval.low > 0.1
    whole = difference_of_versions(
        balanced_accuracy, *((grades == 1).astype(float) for grades in (labels, worse, better)), summaries
    )
    assert whole.interval is not None


@pytest.mark.parametrize("quality", ["faithfulness", "completeness", "appropriateness"])
def test_correlations_with_the_annotators_mean(real_data: Path, quality: str) -> None:
    figures = expected(real_data, "mtrag")[f"all: human {quality} vs rl_f"]
    rows = evaluations(real_data)
    labels, scores = (np.array([float(row[field]) for row in rows]) for field in (quality, "rl_f"))
    _, questions = np.unique([row["task"] for row in rows], return_inverse=True)
    for correlation, name in ((pearson, "pearson"), (spearman, "spearman"), (kendall, "kendall_tau_b")):
        estimate = estimate_correlation(correlation, labels, scores, questions)
        assert (estimate.n, estimate.value) == (figures["n"], pytest.approx(figures[name], abs=1e-6))
        assert estimate.interval is not None
        assert estimate.interval.low < estimate.value < estimate.interval.high
