import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ragpipe.core.score import ScoreSpec, warning_texts
from ragpipe.report.report_data import score_cell
from ragpipe.score.aggregate import score_declarations
from ragpipe.score.cross_checks import scoring_faults
from ragpipe.score.gate_rules import decide_gate, decide_gates, define, exit_code, gates_document, measure_gate, value_text
from ragpipe.score.gate_settings import Gate
from ragpipe.score.settings import ScoringSettings, shipped
from ragpipe.stats.intervals import estimate_rate
from tests.support.run_tables import Chunk, Row, records, score, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
FAITHFUL, CORRECT = ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5)
REJECT = ScoreSpec("rejection_calibration", binary=True)
MISS = ScoreSpec("scope_miss", higher_is_better=False, binary=True)
CLAIMS = ScoreSpec("n_claims", None, None)
FAITHFUL_ALONE = {name: 0.0 for name in shipped()["weights"] if name != "faithfulness"}
FAIL, SKIP = ("error", "refused: no"), ("skipped", "no_label")


def definition(spec: ScoreSpec | None = FAITHFUL, **gate: Any) -> dict[str, Any]:
    """A gate as it is judged; by the value alone unless it says otherwise."""
    given = {"by": "point", **({"score": "faithfulness"} if "failure_mode" not in gate else {}), **gate}
    more = {"judged": True, "rests_on": [], "coverage_floor": 0.95, "inconclusive": "fail", "untrusted": given.pop("untrusted", False)}
    return define("g", Gate(**given), spec, **more)


def measured(value: float | None, low: float | None = None, high: float | None = None, **counts: int) -> dict[str, Any]:
    interval = None if low is None else {"level": 0.95, "low": low, "high": high, "method": "t"}
    none = ("n_skipped", "n_error", "n_system_error", "n_not_recorded", "n_missing")
    found = {"n_ok": 100, **dict.fromkeys(none, 0), **counts}
    absent = None if value is not None else "no case has a value"
    return {"value": value, "interval": interval, "n_cases": sum(found.values()), **found, "absent": absent}


@pytest.mark.parametrize(("gate", "one", "verdict", "outcome"), [
    # by the value alone; the limit itself passes, as does what equals it but for rounding
    ({"min": 0.8}, measured(0.8), "passed", "passed"),
    ({"min": 0.3}, measured(0.1 + 0.2 - 1e-12), "passed", "passed"),
    ({"min": 0.8}, measured(0.79), "failed", "blocked"),
    ({"min": 0.8, "tier": "diagnostic"}, measured(0.79), "failed", "reported"),
    ({"max": 0.1}, measured(0.1), "passed", "passed"),
    ({"max": 0.1}, measured(0.11), "failed", "blocked"),
    ({"min": 0.2, "max": 0.4}, measured(0.3), "passed", "passed"),
    ({"min": 0.2, "max": 0.4}, measured(0.1), "failed", "blocked"),
    # coverage: 95 of 100 is enough, 90 of 100 is not, whatever the value
    ({"min": 0.8}, measured(0.9, n_ok=95, n_error=5), "passed", "passed"),
    ({"min": 0.8}, measured(1.0, n_ok=90, n_error=10), "not_enough_evidence", "blocked"),
    ({"min": 0.8, "coverage_floor": 0.9}, measured(0.9, n_ok=90, n_error=10), "passed", "passed"),
    ({"min": 0.8, "tier": "quality"}, measured(0.9, n_ok=90, n_error=10), "not_enough_evidence", "warned"),
    ({"min": 0.8}, measured(0.9, n_ok=10, n_skipped=90), "passed", "passed"),  # a skip is no failure
    ({"min": 0.8}, measured(0.9, n_ok=99, n_missing=1), "not_enough_evidence", "blocked"),
    ({"min": 0.8}, measured(None, n_ok=0, n_error=7), "no_evidence", "blocked"),
    # by the whole interval
    ({"min": 0.8, "by": "interval"}, measured(0.9, 0.8, 1.0), "passed", "passed"),
    ({"min": 0.8, "by": "interval"}, measured(0.9, 0.79, 1.0), "inconclusive", "blocked"),
    ({"min": 0.8, "by": "interval"}, measured(0.7, 0.6, 0.8), "inconclusive", "blocked"),
    ({"min": 0.8, "by": "interval"}, measured(0.7, 0.6, 0.79), "failed", "blocked"),
    ({"max": 0.1, "by": "interval"}, measured(0.05, 0.0, 0.1), "passed", "passed"),
    ({"max": 0.1, "by": "interval"}, measured(0.05, 0.0, 0.2), "inconclusive", "blocked"),
    ({"max": 0.1, "by": "interval"}, measured(0.2, 0.11, 0.3), "failed", "blocked"),
    ({"min": 0.2, "max": 0.4, "by": "interval"}, measured(0.3, 0.1, 0.5), "inconclusive", "blocked"),
    ({"min": 0.8, "by": "interval"}, measured(1.0), "inconclusive", "blocked"),  # one question: no interval
    ({"min": 0.8, "by": "interval", "tier": "quality"}, measured(0.9, 0.79, 1.0), "inconclusive", "warned"),
    ({"min": 0.8, "by": "interval", "tier": "diagnostic"}, measured(0.9, 0.79, 1.0), "inconclusive", "reported"),
    # without a case that it applies to; a failure, or a case that is not measured yet, is one
    ({"min": 1, "without_cases": "not_applicable"}, measured(None, n_ok=0, n_skipped=9), "not_applicable", "reported"),
    ({"min": 1, "without_cases": "not_applicable"}, measured(None, n_ok=0, n_error=1), "no_evidence", "blocked"),
    ({"min": 1, "without_cases": "not_applicable"}, measured(None, n_ok=0, n_missing=1), "no_evidence", "blocked"),
    ({"min": 1, "without_cases": "not_applicable"}, measured(0.9), "failed", "blocked"),
    # an uncalibrated judge passes no critical gate; that one fails needs no calibration
    ({"min": 0.8, "untrusted": True}, measured(0.9), "uncalibrated", "blocked"),
    ({"min": 0.8, "untrusted": True}, measured(0.7), "failed", "blocked"),
    ({"min": 0.8, "untrusted": True, "tier": "quality"}, measured(0.9), "passed", "passed"),
])  # fmt: skip
def test_verdicts(gate: dict[str, Any], one: dict[str, Any], verdict: str, outcome: str) -> None:
    found = decide_gate(definition(**gate), [one])
    assert (found["verdict"], found["outcome"]) == (verdict, outcome), found["sentence"]


def test_an_inconclusive_gate_has_not_passed_and_warns_unless_told_to_fail(tmp_path: Path) -> None:
    """18 of 20 questions pass; Wilson's interval of .9 holds .85 (Newcombe's formula: .699 to .972)."""
    rows = [Row(f"q{i}", "a", {"rejection_calibration": int(i > 1)}) for i in range(20)]
    gates = {"g": {"score": "rejection_calibration", "min": 0.85}}
    for settings, outcome, code in (({}, "warned", 0), ({"inconclusive": "fail"}, "blocked", 3)):
        write_run(tmp_path, rows)
        document = gates_document([score(tmp_path, [REJECT], ScoringSettings(gates=gates, **settings))])
        (gate,) = document["gates"]
        assert (gate["by"], gate["verdict"], gate["outcome"]) == ("interval", "inconclusive", outcome)
        assert "its interval 0.699 to 0.9721 contains the limit" in gate["sentence"]
        assert exit_code(document) == code


@pytest.mark.parametrize(
    ("gate", "spec", "by"),
    [
        ({"score": "faithfulness", "min": 0.8}, FAITHFUL, "interval"),
        ({"score": "faithfulness", "min": 0, "max": 1}, FAITHFUL, "interval"),  # any interval is within
        ({"score": "faithfulness", "min": 1}, FAITHFUL, "point"),  # no interval ever is
        ({"score": "faithfulness", "max": 0}, FAITHFUL, "point"),
        ({"score": "faithfulness", "min": 0.8, "by": "point"}, FAITHFUL, "point"),
        ({"score": "n_claims", "min": 1}, CLAIMS, "interval"),  # 1 is no end of a count
        ({"score": "n_claims", "min": 1, "of": "pass_rate"}, CLAIMS, "point"),
        ({"failure_mode": "m", "max": 0}, None, "point"),
        ({"failure_mode": "m", "max": 0.1}, None, "interval"),
    ],
)
def test_a_gate_goes_by_the_interval_where_one_can_be_within(gate: dict[str, Any], spec: ScoreSpec | None, by: str) -> None:
    assert definition(spec, **{"by": None, **gate})["by"] == by


@pytest.mark.parametrize(("gate", "text"), [
    ({"value": 0.87123}, "0.8712"), ({"value": 0.72354, "corrected": True}, "0.7235 corrected"), ({"value": None}, "-"),
    ({"value": 0.85004}, "0.85004"), ({"value": 1234.5, "unit": "ms"}, "1,234 ms"), ({"value": 0, "against": "a"}, "change 0"),
    ({"value": -0.14381, "against": "a"}, "change -0.1438"), ({"value": 0.25, "against": "a"}, "change +0.25"),
])  # fmt: skip
def test_a_value_is_shown_with_as_many_digits_as_tell_it_from_its_limit(gate: dict[str, Any], text: str) -> None:
    assert value_text({"min": 0.85, "max": None, **gate}) == text


def test_iterations_are_averaged_unless_their_mean_is_given() -> None:
    found = decide_gate(definition(min=0.8), [measured(0.9, 0.8, 1.0, n_ok=98, n_error=2), measured(0.72, 0.6, 0.84, n_ok=90, n_error=10)])
    assert (found["value"], found["values"]) == (pytest.approx(0.81), [0.9, 0.72])
    assert (found["interval"]["low"], found["interval"]["high"]) == (pytest.approx(0.7), pytest.approx(0.92))
    assert (found["n_cases"], found["n_ok"], found["n_error"]) == (200, 188, 12)
    assert (found["coverage"], found["verdict"]) == (0.94, "not_enough_evidence")
    assert "only 188 of 200 judgements came out (coverage 94.0%, floor 95%)" in found["sentence"]
    gate, iterations = definition(min=0.8), [measured(0.9), measured(0.6)]
    assert decide_gate(gate, iterations)["verdict"] == "failed"  # .75
    alone = decide_gate(gate, iterations, {"value": 0.82})
    (among,) = decide_gates([(gate, iterations)], {gate["name"]: {"value": 0.82}})
    for found in (alone, among):
        assert (found["value"], found["values"], found["verdict"]) == (0.82, [0.9, 0.6], "passed")


SUMMARY = {
    "n_cases": 10,
    "scores": {
        "faithfulness": {"mean": 0.6, "pass_rate": 0.4, "interval": {"low": 0.5, "high": 0.7}, "pass_interval": {"low": 0.2, "high": 0.6}},
        "correctness": {"mean": 4.0, "pass_rate": 0.7, "interval": {"low": 3.0, "high": 5.0}, "pass_interval": None},
        "scope_miss": {"mean": 0.2, "interval": {"low": 0.1, "high": 1.0}},
        "n_claims": {"mean": 7.5, "interval": None},
    },
}
for _score in SUMMARY["scores"].values():  # type: ignore[attr-defined]
    _score.update(n_ok=10, n_judged=10)
DECLARED = score_declarations([FAITHFUL, CORRECT, MISS, CLAIMS], ScoringSettings())


@pytest.mark.parametrize(
    ("spec", "gate", "judged", "of", "value", "interval"),
    [
        (FAITHFUL, {"min": 0.5}, True, "mean", 0.6, (0.5, 0.7)),
        (FAITHFUL, {"min": 0.5, "of": "pass_rate"}, True, "pass_rate", 0.4, (0.2, 0.6)),
        (CORRECT, {"min": 0.5}, True, "mean", 0.75, (0.5, 1.0)),  # 1-5 brought to 0-1
        (CORRECT, {"min": 0.5, "of": "pass_rate"}, True, "pass_rate", 0.7, None),
        (MISS, {"min": 0.5}, False, "mean", 0.8, (0.0, 0.9)),  # lower is better: turned round
        (ScoreSpec("faithfulness", binary=True), {"min": 0.5}, True, "pass_rate", 0.4, (0.2, 0.6)),
        (CLAIMS, {"max": 9}, False, "mean", 7.5, None),  # a count has no scale: its own mean
    ],
)
def test_what_is_measured(spec, gate, judged, of, value, interval) -> None:
    given = define("g", Gate(score=spec.name, **gate), spec, judged=judged, rests_on=[], coverage_floor=0.95,
                    inconclusive="fail", untrusted=False)  # fmt: skip
    found = measure_gate(given, SUMMARY, DECLARED)
    assert (given["of"], found["value"]) == (of, pytest.approx(value))
    bounds = found["interval"]
    assert (bounds and (pytest.approx(bounds["low"]), pytest.approx(bounds["high"]))) == interval


def test_a_score_that_the_run_does_not_have_is_no_evidence() -> None:
    gate = definition(None, score="policy_compliance", min=0.95)
    found = decide_gate(gate, [measure_gate(gate, SUMMARY, DECLARED)])
    assert (found["verdict"], found["outcome"]) == ("no_evidence", "blocked")
    assert found["sentence"] == "policy_compliance: no evidence, this run does not give policy_compliance"


@pytest.mark.parametrize(("of", "found", "reason"), [
    ("pass_rate", {"n_ok": 7, "n_unjudged": 7}, "a score that decides it has an error or is not measured"),
    ("pass_rate", {"n_ok": 7}, "it has no threshold, or depends on scores that were not measured"),
    ("mean", {"n_missing": 9}, "no case has a value: 9 not measured yet"),
    ("mean", {"n_skipped": 4, "skipped": dict.fromkeys("abcd", 1)}, "no case has a value: 4 skipped (a, b, c)"),
    ("mean", {"n_skipped": 2, "n_error": 5, "n_missing": 2, "skipped": {"no_label": 2}, "errors": {"refused": 5}},
     "no case has a value: 2 skipped, 5 errors, 2 not measured yet (refused)"),
])  # fmt: skip
def test_a_score_without_a_value_says_why(of: str, found: dict[str, Any], reason: str) -> None:
    gate = definition(min=0.5, of=of)
    summary = {"n_cases": 9, "scores": {"faithfulness": {"n_ok": 0, "mean": None, "interval": None, **found}}}
    decided = decide_gate(gate, [measure_gate(gate, summary, DECLARED)])
    assert (decided["value"], decided["verdict"]) == (None, "no_evidence")
    assert decided["sentence"].endswith(reason)


ROWS = [
    Row(f"q{i}", method, {"rejection_calibration": int(i != 3) if method == "a" else 1, "faithfulness": 0.9},
        {"category": "partial" if i < 5 else "whole", "answerable": i != 0, "meta": {"lang": "de" if i < 2 else "en"}},
        {"chunks": [Chunk(id="c", rank=1, doc_type="letter" if i == 9 else "report")]})
    for i in range(10)
    for method in "ab"
]  # fmt: skip


def gated(root: Path, gates: dict[str, Any], rows: list[Row] = ROWS, **more: Any) -> dict[str, dict[str, Any]]:
    """By the value alone, for the gates that do not say otherwise."""
    write_run(root, rows)
    gates = {name: {"by": "point", **gate} for name, gate in gates.items()}
    settings = ScoringSettings(slices=[], gates=gates, **more.pop("settings", {}))
    metrics = score(root, [FAITHFUL, REJECT], settings, judge={"label": "m", "calibrated": {"kappa": 0.9}}, **more)
    return {gate["name"]: gate for gate in metrics["gates"]}


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(
    ("where", "n", "value"),
    [
        ({}, 20, 0.95), ({"category": "partial"}, 10, 0.9), ({"category": ["partial", "whole"]}, 20, 0.95),
        ({"category": "partial", "method": "a"}, 5, 0.8), ({"answerable": False}, 2, 1.0),
        ({"meta.lang": "en", "method": "a"}, 8, 7 / 8), ({"doc_type": "letter"}, 2, 1.0), ({"sample_id": "q3"}, 2, 0.5),
        ({"n_chunks": 1}, 20, 0.95),
    ],
)  # fmt: skip
def test_a_gate_over_a_slice(tmp_path: Path, where: dict[str, Any], n: int, value: float) -> None:
    found = gated(tmp_path, {"g": {"score": "rejection_calibration", "where": where, "min": 0.85}})["g"]
    assert (found["n_ok"], found["value"]) == (n, pytest.approx(value))
    assert found["verdict"] == ("passed" if value >= 0.85 else "failed")


def test_a_slice_gate_names_its_slice_and_without_a_case_what_there_is(tmp_path: Path) -> None:
    partial = {"score": "rejection_calibration", "where": {"category": "partial", "method": "a"}, "min": 0.85}
    found = gated(tmp_path, {"partial": partial, "g": {"score": "faithfulness", "where": {"category": "partail"}, "min": 0.5}})
    assert found["partial"]["sentence"] == (
        "pass rate of rejection_calibration where category = partial and method = a is 0.8 over 5 cases (at least 0.85): failed"
    )
    assert (found["g"]["verdict"], found["g"]["outcome"]) == ("no_evidence", "blocked")
    assert "category is partial, whole" in found["g"]["sentence"]


ASKED = {
    "sample_id": "q0", "method": "a", "iteration": 1, "metric": "faithfulness", "template": "faithfulness/verify", "key": "k",
    "judge": "m", "status": "ok",
}  # fmt: skip
MODE = {"not_said": {"score": "rejection_calibration", "passed": False}}


@pytest.mark.parametrize(
    ("gate", "verdict", "value"),
    [
        ({"failure_mode": "not_said", "max": 0}, "failed", 0.05),
        ({"failure_mode": "not_said", "max": 0.05}, "passed", 0.05),
        ({"failure_mode": "not_said", "max": 0, "where": {"method": "b"}}, "passed", 0.0),
        ({"failure_mode": "not_said", "max": 0, "where": {"method": "a"}}, "failed", 0.1),
        ({"failure_mode": "not_said", "max": 0.05, "by": "interval"}, "inconclusive", 0.05),
        ({"failure_mode": "irrelevant_context", "max": 0}, "no_evidence", None),  # its scores are not in the run
    ],
)
def test_a_gate_on_a_failure_mode(tmp_path: Path, gate: dict[str, Any], verdict: str, value: float | None) -> None:
    found = gated(tmp_path, {"g": gate}, settings={"failure_modes": MODE})["g"]
    assert (found["verdict"], found["value"]) == (verdict, value if value is None else pytest.approx(value))


def test_failed_judgements_may_hide_a_failure_mode(tmp_path: Path) -> None:
    rows = [Row(f"q{i}", "a", {"rejection_calibration": FAIL if i < 2 else 1}) for i in range(20)]
    gate = {"g": {"failure_mode": "not_said", "max": 0}}
    found = gated(tmp_path, gate, rows, settings={"failure_modes": MODE})["g"]
    assert (found["n_ok"], found["n_error"], found["verdict"]) == (18, 2, "not_enough_evidence")
    loose = {"g": {**gate["g"], "coverage_floor": 0.5}}
    found = gated(tmp_path, loose, rows, settings={"failure_modes": MODE})["g"]
    assert found["sentence"] == "share of not_said is 0 over 20 cases, 2 of them undecided (at most 0): passed", "of all cases"


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(
    ("asked", "template", "calibrated", "accept", "verdict"),
    [
        ("faithfulness", "faithfulness/verify", None, False, "uncalibrated"),
        ("faithfulness", "faithfulness/verify", None, True, "passed"),
        ("faithfulness", "faithfulness/verify", {"kappa": 0.9}, False, "passed"),
        ("faithfulness", None, None, False, "passed"),  # a text for an embedder
        ("rejection_calibration", "x", None, False, "passed"),  # not the metric of these scores
        (None, None, None, False, "passed"),  # computed scores need no calibration
    ],
)
def test_only_judged_scores_need_a_calibrated_judge(tmp_path, asked, template, calibrated, accept, verdict) -> None:
    """A composite is judged when one of its parts is; the overall score has no other weight here."""
    write_run(tmp_path, ROWS, [{**ASKED, "metric": asked, "template": template}] if asked else [])
    gates = {name: {"score": name, "min": 0.5} for name in ("faithfulness", "mine", "overall_score")}
    composites = {"mine": {"weights": {"faithfulness": 1}}}
    settings = ScoringSettings(gates=gates, accept_uncalibrated=accept, weights=FAITHFUL_ALONE, composites=composites)
    metrics = score(tmp_path, [FAITHFUL, REJECT], settings, judge={"calibrated": calibrated})
    assert [gate["verdict"] for gate in metrics["gates"]] == [verdict] * 3


CASE_GATE = {"g": {"score": "rejection_calibration", "min": 0.5}}
PARTIAL_GATE = {"g": {**CASE_GATE["g"], "where": {"category": "partial"}}}


@pytest.mark.parametrize(("gates", "results", "labels", "passed"), [
    ({}, {"faithfulness": 0.9, "rejection_calibration": 0}, {}, False),  # by the weights alone: (.2 x .9 + 0) / .3
    ({}, {"faithfulness": 1.0, "rejection_calibration": 1}, {}, True),
    (CASE_GATE, {"faithfulness": 1.0, "rejection_calibration": 1}, {}, True),
    (CASE_GATE, {"faithfulness": 1.0, "rejection_calibration": 0}, {}, False),
    (CASE_GATE, {"faithfulness": 1.0, "rejection_calibration": FAIL}, {}, None),
    (CASE_GATE, {"faithfulness": 0.1, "rejection_calibration": FAIL}, {}, None),
    (CASE_GATE, {"faithfulness": 1.0, "rejection_calibration": SKIP}, {}, True),  # does not apply to the case
    (CASE_GATE, {"faithfulness": FAIL, "rejection_calibration": 1}, {}, None),
    (CASE_GATE, {"faithfulness": SKIP, "rejection_calibration": SKIP}, {}, None),  # nothing was scored
    (PARTIAL_GATE, {"faithfulness": 1.0, "rejection_calibration": FAIL}, {"category": "whole"}, None),  # overall failed
])  # fmt: skip
def test_overall_passed(tmp_path, gates: dict[str, Any], results: dict[str, Any], labels: dict[str, Any], passed: bool | None) -> None:
    write_run(tmp_path, [Row("q", "a", results, labels)])
    score(tmp_path, [FAITHFUL, REJECT], ScoringSettings(slices=[], gates=gates))
    assert records(tmp_path)[0]["overall_passed"] is passed


@pytest.mark.parametrize(
    ("tier", "where", "passed"),
    [
        ("critical", {}, False),
        ("quality", {}, True),  # a gate that only warns says nothing of a case
        ("critical", {"category": "partial"}, False),
        ("critical", {"category": "whole"}, True),  # the gate is not about this case
    ],
)
def test_a_gate_score_decides_over_a_case(tmp_path: Path, tier: str, where: dict[str, str], passed: bool) -> None:
    """Without a weight of its own, the failed score can act through the gate alone."""
    gates = {"g": {"score": "rejection_calibration", "min": 0.5, "tier": tier, "where": where}}
    settings = ScoringSettings(slices=[], gates=gates, weights={"rejection_calibration": 0})
    write_run(tmp_path, [Row("q", "a", {"faithfulness": 1.0, "rejection_calibration": 0}, {"category": "partial"})])
    score(tmp_path, [FAITHFUL, REJECT], settings)
    (row,) = records(tmp_path)
    assert (row["overall_score"], row["overall_passed"]) == (1.0, passed)


def test_gates_without_a_metric_are_no_fault_and_said_before_the_run() -> None:
    gates: dict[str, Any] = {"p": {"score": "policy_compliance", "min": 0.95}, "f": {"score": "faithfulness", "min": 0.5}, "h": None}
    settings = ScoringSettings(gates=gates)
    assert (scoring_faults(settings, [FAITHFUL]), list(settings.active_gates())) == ([], ["p", "f"])
    (said,) = settings.warnings([FAITHFUL])
    assert "scoring.gates.p: this run does not give policy_compliance" in said
    assert settings.warnings() == []


OVERALL_RATE = {"score": "overall_score", "of": "pass_rate", "min": 0.1, "tier": "quality"}


def test_a_pass_rate_is_of_the_cases_that_were_judged(tmp_path: Path) -> None:
    """12 cases, all with an overall score; on 7 the gate score failed: 4 did not pass, 1 passed, 7 are unknown."""
    rejection = [FAIL] * 7 + [0] * 4 + [1]
    rows = [Row(f"q{i}", "a", {"faithfulness": 1.0, "rejection_calibration": one}) for i, one in enumerate(rejection)]
    gates = {"own": {"score": "rejection_calibration", "min": 0.0, "coverage_floor": 0}, "rate": OVERALL_RATE}
    write_run(tmp_path, rows)
    metrics = score(tmp_path, [FAITHFUL, REJECT], ScoringSettings(gates=gates, weights=FAITHFUL_ALONE))
    found = metrics["overall"]["scores"]["overall_score"]
    assert (found["n_ok"], found["n_judged"], found["n_unjudged"], found["pass_rate"]) == (12, 5, 7, 0.2)
    assert (score_cell(found).passed, score_cell(found).note) == ("20% of 5", "7 without a verdict")
    gate = next(one for one in metrics["gates"] if one["name"] == "rate")
    assert (gate["n_ok"], gate["n_error"], gate["coverage"]) == (5, 7, 5 / 12)
    assert (gate["verdict"], gate["value"]) == ("not_enough_evidence", 0.2)
    assert "only 5 of 12 judgements came out (coverage 41.7%, floor 95%)" in gate["sentence"]
    assert any(text.startswith("overall_score: only 5 of 12 cases with a value are judged") for text in warning_texts(metrics))


WITH_JUDGED = {"passes_with": {"rejection_calibration": ["faithfulness"]}}


@pytest.mark.parametrize(("gate", "settings"), [
    ({"failure_mode": "any", "max": 0.5}, {"failure_modes": {"any": {"score": "*", "passed": False}}}),
    # the verdict of a computed score that passes with a judged one rests on the judge
    ({"score": "rejection_calibration", "min": 0.5}, WITH_JUDGED),
    ({"failure_mode": "not_said", "max": 0.5}, {"failure_modes": MODE, **WITH_JUDGED}),
])  # fmt: skip
def test_what_rests_on_an_uncalibrated_judge_passes_no_critical_gate(tmp_path, gate: dict[str, Any], settings: dict[str, Any]) -> None:
    rows = [Row(f"q{i}", "a", {"faithfulness": 1.0, "rejection_calibration": 1}) for i in range(20)]
    write_run(tmp_path, rows, [ASKED])
    metrics = score(tmp_path, [FAITHFUL, REJECT], ScoringSettings(gates={"g": gate}, **settings))
    assert [one["verdict"] for one in metrics["gates"]] == ["uncalibrated"]
    calibrated = score(tmp_path, [FAITHFUL, REJECT], ScoringSettings(gates={"g": gate}, **settings), judge={"calibrated": {"kappa": 0.9}})
    assert [one["verdict"] for one in calibrated["gates"]] == ["passed"]


def shares(text: str) -> list[float]:
    return [float(share) for share in re.findall(r"(?<![\d.])[01]?\.\d\d(?!\d)", text)]


def test_the_page_says_how_often_a_gate_is_right() -> None:
    """docs/gates.md, a gate `min: 0.85`: every outcome of n single draws, weighed by the binomial distribution."""
    page = (Path(__file__).parents[3] / "docs/gates.md").read_text(encoding="utf-8")
    gate = definition(REJECT, score="rejection_calibration", min=0.85, by="interval")

    def chances(n: int, rate: float, verdict: str, by: str) -> float:
        found = 0.0
        for hits in range(n + 1):
            bounds = estimate_rate(np.repeat([1.0, 0.0], [hits, n - hits])).interval
            one = measured(hits / n, bounds.low, bounds.high)
            if decide_gate({**gate, "by": by}, [one])["verdict"] == verdict:
                found += stats.binom.pmf(hits, n, rate)
        return found

    for n in (30, 100, 300):
        (line,) = re.findall(rf"^\| {n} \|(.*)$", page, re.MULTILINE)
        blocks = chances(n, 0.88, "failed", "point")
        expected = [blocks, 2 * blocks * (1 - blocks), *(chances(n, 0.88, v, "interval") for v in ("failed", "passed"))]
        assert shares(line) == [round(one, 2) for one in expected], n
    (below, above) = re.findall(r"At a true \.75 (.*?); at a true \.95 (.*?\))", page, re.DOTALL)[0]
    assert shares(below) == [round(chances(n, 0.75, "failed", "interval"), 2) for n in (30, 100, 300)]
    assert shares(above) == [round(chances(n, 0.95, "passed", "interval"), 2) for n in (30, 100, 300)]
    assert shares(page.partition("n / (n + 3.84)")[2].partition("100")[0]) == [0.89, 0.96]


def failing(name: str, p: float | None, **gate: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A gate whose interval lies below its limit, with this p-value."""
    return {**definition(**{"min": 0.8, "by": "interval", **gate}), "name": name}, [{**measured(0.7, 0.6, 0.79), "p_value": p}]


@pytest.mark.parametrize(
    ("p_values", "verdicts"),
    [
        ([0.02], ["failed"]),
        ([0.02, 0.4], ["inconclusive", "inconclusive"]),  # .02 * 2 is above .025
        ([0.012, 0.4], ["failed", "inconclusive"]),
        ([0.006, 0.01, 0.024], ["failed", "failed", "failed"]),  # .018, .020, .024
        ([0.02, None], ["failed", "failed"]),  # what has no test is none
        ([], []),
    ],
)
def test_among_several_gates_each_must_be_more_certain_to_fail(p_values: list[Any], verdicts: list[str]) -> None:
    found = decide_gates([failing(str(number), p) for number, p in enumerate(p_values)])
    assert [gate["verdict"] for gate in found] == verdicts


@pytest.mark.parametrize(
    ("p_values", "verdicts"),
    [
        ([0.02], ["failed"]),
        ([0.02, 0.9], ["inconclusive", "inconclusive"]),  # .02 * 2 is above .025
        ([0.02, 0.001], ["failed", "failed"]),  # .001 * 2, then .02 alone
    ],
)
def test_a_drop_must_be_more_certain_among_several_gates(p_values: list[float], verdicts: list[str]) -> None:
    """What fell and what did not: the state of each gate alone is `failed` where its p-value is below .025."""
    gate = definition(against="1a2b3c4d5e6f", by="interval", of="mean")
    alone = [{"state": "failed" if p < 0.025 else "inconclusive", "reason": "too_wide"} for p in p_values]
    sides = {"base": 0.84, "candidate": 0.64, "n": 98, "only_base": 0, "only_candidate": 0}
    drops = [{**measured(-0.2, -0.3, -0.1), "p_value": p, "paired": {**sides, **state}} for p, state in zip(p_values, alone, strict=True)]
    found = decide_gates([({**gate, "name": str(place)}, [each]) for place, each in enumerate(drops)])
    assert [each["verdict"] for each in found] == verdicts


def test_gates_that_cannot_fail_by_an_interval_make_no_other_less_certain() -> None:
    fails = failing("g", 0.02)
    others = [
        failing("point", 0.5, by="point"),
        failing("shown", 0.5, tier="diagnostic"),
        ({**definition(min=0.8, by="interval"), "name": "short"}, [{**measured(0.7, 0.6, 0.79, n_ok=1, n_error=9), "p_value": 0.5}]),
    ]  # fmt: skip
    assert decide_gates([fails, *others])[0]["verdict"] == "failed"


def test_p_values_of_a_run_are_those_of_its_intervals(tmp_path: Path) -> None:
    """12 of 20 pass: P(Z <= (.6 - .85) / sqrt(.85 * .15 / 20)), and 1 - P(Z <= (.6 - .4) / sqrt(.4 * .6 / 20)) for the other end."""
    write_run(tmp_path, [Row(f"q{i}", "a", {"rejection_calibration": int(i < 12)}) for i in range(20)])
    gates = {
        "low": {"score": "rejection_calibration", "min": 0.85},
        "high": {"score": "rejection_calibration", "max": 0.4},
        "count": {"score": "rejection_calibration", "min": 0.5, "by": "point"},
    }
    low, high, _ = score(tmp_path, [REJECT], ScoringSettings(gates=gates))["gates"]
    assert low["p_value"] == pytest.approx(stats.norm.cdf((0.6 - 0.85) / np.sqrt(0.85 * 0.15 / 20)))
    assert high["p_value"] == pytest.approx(stats.norm.sf((0.6 - 0.4) / np.sqrt(0.4 * 0.6 / 20)))


@pytest.mark.parametrize(("state", "value", "only_base", "verdict", "sentence"), [
    ("passed", -0.03, 0, "passed", "mean of faithfulness fell by 0.03 against 1a2b3c4d5e6f (0.84 to 0.81, 98 cases on both; drop at most 0.05): passed"),
    ("failed", -0.2, 0, "failed", "mean of faithfulness fell by 0.2 against 1a2b3c4d5e6f (0.84 to 0.64, 98 cases on both; drop at most 0.05): failed"),
    ("passed", 0.1, 0, "passed", "mean of faithfulness rose by 0.1 against 1a2b3c4d5e6f (0.84 to 0.94, 98 cases on both; drop at most 0.05): passed"),
    ("inconclusive", 0.0, 0, "inconclusive", "mean of faithfulness did not change against 1a2b3c4d5e6f (0.84 to 0.84, 98 cases on both; drop at most 0.05): inconclusive, its interval -0.06 to 0 of the difference says neither"),
    ("passed", -0.03, 1035, "passed", "mean of faithfulness fell by 0.03 against 1a2b3c4d5e6f (0.84 to 0.81, 98 cases on both, 1,035 in the baseline only; drop at most 0.05): passed"),
])  # fmt: skip
def test_a_gate_against_a_baseline_says_what_fell(state: str, value: float, only_base: int, verdict: str, sentence: str) -> None:
    sides = {"base": 0.84, "candidate": 0.84 + value, "n": 98, "only_base": only_base, "state": state, "reason": None}
    measure = {**measured(value, -0.06, 0.0, n_ok=98), "p_value": 0.02, "paired": sides}
    found = decide_gate(definition(against="1a2b3c4d5e6f", by="interval", of="mean"), [measure])
    assert (found["verdict"], found["sentence"]) == (verdict, sentence)
