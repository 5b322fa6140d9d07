"""Pass rates by labels of other answers: which labels and cases count, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragpipe.calibrating.other_labels import rate_by_other_labels
from ragpipe.scoring.calibration_file import (
    Binding,
    CalibrationLabel,
    CalibrationTarget,
    LabelPart,
    ScoreCalibration,
)
from ragpipe.stats.rogan_gladen import rogan_gladen

RATES = np.array([1.0] * 60 + [0.0] * 40)
"""Of the judge 60 of 100 answers pass."""


def labels_of(
    people: bool | None, judge: bool | None, count: int, part: LabelPart = "random", start: int = 0
) -> list[CalibrationLabel]:
    return [
        CalibrationLabel(
            sample_id=f"q{start + place}", method="rag", repeat=1, answer_sha256="0" * 64, label=float(bool(people)),
            annotators=1, part=part, stratum="all", probability=0.5, passed=people, judge_passed=judge,
        )
        for place in range(count)
    ]  # fmt: skip


def calibration(labels: list[CalibrationLabel]) -> ScoreCalibration:
    return ScoreCalibration(
        metric="faithfulness", draw_id="d", recorded=None, reference="single",
        bound_to=Binding(judge={}, metric_version=1, settings={}, prompts={}, answer_shape={}, threshold=0.85),
        target=CalibrationTarget(statistic="kappa", above=0.8, relative_to_ceiling=False), limit=0.8,
        state="not_enough_labels", labels_needed=None, reason=None, unjudged=0, statistics={}, confusion=None, prevalence=None,
        judged_prevalence=None, ceiling=None, slices=[], length_baseline=None, labels=labels,
    )  # fmt: skip


def corrected(labels: list[CalibrationLabel], rates: Any = RATES, *, holds: bool = True) -> dict[str, Any]:
    values = np.array(rates, dtype=np.float64)
    return rate_by_other_labels(values, np.arange(len(values)), calibration(labels), holds=holds, level=0.95)


LENIENT = [
    *labels_of(True, True, 95),
    *labels_of(True, False, 5, start=100),
    *labels_of(False, False, 80, start=200),
    *labels_of(False, True, 20, start=300),
]
"""Sensitivity .95, specificity .80."""


def test_the_share_is_corrected_by_sensitivity_and_specificity() -> None:
    figures = corrected(LENIENT)
    assert (figures["raw"], figures["sensitivity"], figures["specificity"]) == (0.6, 0.95, 0.8)
    assert figures["mean"] == pytest.approx((0.6 + 0.8 - 1) / (0.95 + 0.8 - 1))
    same = rogan_gladen(
        RATES, np.array([1.0] * 100 + [0.0] * 100), np.array([1.0] * 95 + [0.0] * 85 + [1.0] * 20)
    ).interval
    assert same is not None
    assert (figures["interval"]["low"], figures["interval"]["high"]) == pytest.approx((same.low, same.high))
    assert (figures["labels"], figures["n"]) == (200, 100)


def test_only_labels_that_stand_for_all_and_have_both_verdicts_count() -> None:
    others = [
        *labels_of(True, False, 50, "stratified", 400),
        *labels_of(True, False, 50, "stratified", 500),
        *labels_of(None, True, 50, start=600),
        *labels_of(False, None, 50, start=700),
    ]
    assert corrected([*LENIENT, *others]) == corrected(LENIENT)
    recorded = [label.model_copy(update={"part": "recorded"}) for label in LENIENT]
    assert corrected(recorded) == corrected(LENIENT)


def test_a_case_passes_as_most_iterations_say_and_a_tie_is_left_out() -> None:
    figures = corrected(LENIENT, [2 / 3] * 60 + [1 / 3] * 40 + [0.5] * 7 + [np.nan] * 5)
    assert figures == corrected(LENIENT)


@pytest.mark.parametrize(
    ("labels", "rates", "holds", "reason"),
    [
        (LENIENT, RATES, False, "not_bound"),
        (LENIENT, [0.5, np.nan], True, "no_values"),
        (labels_of(True, True, 60), RATES, True, "one_class"),
        ([], RATES, True, "one_class"),
        # a judge that guesses: .5 and .5
        ([*labels_of(True, True, 30), *labels_of(True, False, 30, start=50),
          *labels_of(False, True, 30, start=100), *labels_of(False, False, 30, start=150)], RATES, True, "weak_judge"),
    ],
)  # fmt: skip
def test_what_cannot_be_corrected_has_a_reason(
    labels: list[CalibrationLabel], rates: Any, holds: bool, reason: str
) -> None:
    figures = corrected(labels, rates, holds=holds)
    assert (figures["mean"], figures["reason"]) == (None, reason)
