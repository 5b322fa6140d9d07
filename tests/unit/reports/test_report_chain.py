"""`task=explain`: why a case has no overall score, or failed with a high one; from the records that the score stage wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragpipe.reports.explanation import CaseExplanation, explanation_lines
from ragpipe.schema.sample import Case, Output, Sample
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from tests.support.run_tables import Row, records, score, write_run

FAITHFUL, REJECT = ScoreSpec("faithfulness"), ScoreSpec("rejection_calibration", binary=True)
GATE = {"no_refusals": {"score": "rejection_calibration", "min": 0.5, "where": {"category": "partial"}}}
FAIL = ("error", "refused: no")


def lines(root: Path, results: dict[str, Any], category: str = "partial", **settings: Any) -> list[str]:
    given = ScoringSettings(gates=GATE, **settings)
    write_run(root, [Row("q", "a", results, {"category": category})])
    score(root, [FAITHFUL, REJECT], given)
    case = Case(Sample(id="q", question="Why?", category=category), Output(sample_id="q", method="a", answer="So."))
    specs = {spec.name: spec for spec in (FAITHFUL, REJECT)}
    return list(explanation_lines(CaseExplanation(case, [], [], records(root)[0], specs, {}, given)))


@pytest.mark.parametrize(
    ("results", "category", "said"),
    [
        (
            {"faithfulness": 0.9, "rejection_calibration": 0},
            "partial",
            "passes from 0.5 on, and when every critical gate's score passes (rejection_calibration did not pass): not passed",
        ),
        (
            {"faithfulness": 0.9, "rejection_calibration": FAIL},
            "partial",
            "passes from 0.5 on, and when every critical gate's score passes (rejection_calibration has no result): not judged",
        ),
        ({"faithfulness": 0.9, "rejection_calibration": 1}, "partial", "passes from 0.5 on: passed"),
        ({"faithfulness": 0.9, "rejection_calibration": 0}, "whole", "passes from 0.5 on: passed"),  # no gate is about it
    ],
)  # fmt: skip
def test_a_case_that_a_gate_failed_says_which(
    tmp_path: Path, results: dict[str, Any], category: str, said: str
) -> None:
    weights, thresholds = {"rejection_calibration": 0}, {"overall_score": 0.5}
    found = lines(tmp_path, results, category, weights=weights, thresholds=thresholds)
    assert f"  threshold: {said}" in found


def test_a_case_without_an_overall_score_says_which_score_failed(tmp_path: Path) -> None:
    found = lines(tmp_path, {"faithfulness": FAIL, "rejection_calibration": 1})
    assert "overall_score: none (part_error: faithfulness)" in found
