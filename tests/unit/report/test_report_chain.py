"""`task=explain`: why a case has no overall score, or failed with a high one, from the records that the score stage wrote; and
which passages support or contradict its claims."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.sample import Case, Chunk, Output, Sample
from ragpipe.core.score import ScoreSpec
from ragpipe.report.explanation import CaseExplanation, explanation_lines
from ragpipe.score.settings import ScoringSettings, shipped
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


@pytest.mark.parametrize(("results", "category", "said"), [
    (
        {"faithfulness": 0.9, "rejection_calibration": 0},
        "partial",
        "passes where >= 0.5, and when every critical gate's score passes (rejection_calibration did not pass): not passed",
    ),
    (
        {"faithfulness": 0.9, "rejection_calibration": FAIL},
        "partial",
        "passes where >= 0.5, and when every critical gate's score passes (rejection_calibration has no result): not judged",
    ),
    ({"faithfulness": 0.9, "rejection_calibration": 1}, "partial", "passes where >= 0.5: passed"),
    ({"faithfulness": 0.9, "rejection_calibration": 0}, "whole", "passes where >= 0.5: passed"),  # no gate is about it
])  # fmt: skip
def test_a_case_that_a_gate_failed_says_which(tmp_path: Path, results: dict[str, Any], category: str, said: str) -> None:
    weights, thresholds = {name: float(name == "faithfulness") for name in shipped()["weights"]}, {"overall_score": 0.5}
    assert f"  threshold: {said}" in lines(tmp_path, results, category, weights=weights, thresholds=thresholds)


def test_a_case_without_an_overall_score_says_which_score_failed(tmp_path: Path) -> None:
    found = lines(tmp_path, {"faithfulness": FAIL, "rejection_calibration": 1})
    assert "overall_score: none (part_error: faithfulness)" in found


@pytest.mark.parametrize(("item", "sentence"), [
    ({"claim": "It is so.", "verdict": "not_supported", "supported": False, "evidence_found": True}, "not supported: It is so."),
    ({"chunk": "c7", "rank": 3, "relevant": False}, "not relevant: chunk c7, rank 3"),
    ({"text": "So.", "accurate": False, "valid": True, "citation": "[1]"}, "not accurate, valid: So. (citation [1])"),
])  # fmt: skip
def test_a_finding_is_a_sentence(item: dict[str, Any], sentence: str) -> None:
    assert f"  {sentence}" in explained({"claims": [item]}).splitlines()


def explained(details: dict[str, Any]) -> str:
    chunks = [Chunk(id="h", rank=1, text="It opened in 1901."), Chunk(id="k", rank=2, text="The roof is of slate.")]
    output = Output(sample_id="q", answer="It opened in 1803, by the sea.", chunks=chunks)
    row = {
        "metric": "faithfulness", "score_name": "faithfulness", "status": "ok", "value": 0.5, "reason": "", "details": json.dumps(details),
    }  # fmt: skip
    case, specs = Case(Sample(id="q", question="Why?"), output), {"faithfulness": FAITHFUL}
    return "\n".join(explanation_lines(CaseExplanation(case, [row], [], {}, specs, {}, ScoringSettings())))


SLATE = {"quote": "of slate", "places": [{"chunk": "k", "rank": 2, "start": 12, "end": 20}]}
OPENED = {"quote": "opened in 1901", "places": [{"chunk": "h", "rank": 1, "start": 3, "end": 17}]}
NOWHERE = {"quote": "by the harbour", "places": []}


@pytest.mark.parametrize(("finding", "expected"), [
    (
        {"claim": "c", "supported": True, "verdict": "supported", "evidence": [SLATE, NOWHERE]},
        ['supported by "of slate" in context 2 (chunk k), characters 12 to 20', 'supported by "by the harbour" in no context word for word'],
    ),
    (
        {"claim": "c", "supported": False, "verdict": "contradicted", "evidence": [OPENED]},
        ['contradicted by "opened in 1901" in context 1 (chunk h), characters 3 to 17'],
    ),
    (
        {"claim": "c", "supported": False, "verdict": "not_supported", "evidence": [OPENED]},
        ['evidence "opened in 1901" in context 1 (chunk h), characters 3 to 17'],
    ),
    ({"claim": "c", "supported": False, "verdict": "contradicted", "evidence": []}, []),
    # metrics that keep one quote and do not look it up
    ({"chunk": "k", "evidence": "roof ... slate"}, ['evidence "roof ... slate" in context 2 (chunk k), characters 4 to 8 and 15 to 20']),
    ({"policy": "p", "evidence": "by the sea"}, ['evidence "by the sea" in the answer, characters 19 to 29']),
    ({"policy": "p", "evidence": "the moon"}, ['evidence "the moon" in no context word for word']),
    ({"policy": "p", "evidence": ""}, []),
])  # fmt: skip
def test_each_quote_says_what_it_does_and_where_it_stands(finding: dict[str, Any], expected: list[str]) -> None:
    lines = [line.strip() for line in explained({"claims": [finding]}).split("\n") if line.startswith("    ")]
    assert lines == expected


def test_claims_with_the_contexts_that_carry_them() -> None:
    claims = [
        {"claim": "It opened in 1901.", "supported": True, "evidence": [OPENED]},
        {"claim": "It is by the sea.", "supported": False, "evidence": []},
    ]
    expected = [
        "  supported: It opened in 1901.",
        '    supported by "opened in 1901" in context 1 (chunk h), characters 3 to 17',
        "  not supported: It is by the sea.",
        "  YES from context 1 on: 1 of 2 claims with context 1",
        "  carry nothing: 1 of 2 contexts (2)",
    ]
    assert "\n".join(expected) in explained({"claims": claims})
    claim = {"claim": "c", "supported": False, "verdict": "contradicted", "evidence": [OPENED]}
    text = explained({"references": [{"reference": 2, "claims": [claim]}]})
    parts = ("reference 2", "contradicted: c", 'contradicted by "opened in 1901" in context 1')
    assert [part for part in parts if part not in text] == []
