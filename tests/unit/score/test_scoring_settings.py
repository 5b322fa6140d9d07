"""Settings of scoring: their defaults, what is refused, what differs; rules against a second, plain implementation."""

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from ragpipe.core.errors import DataError, FormatMismatch
from ragpipe.core.score import ScoreSpec
from ragpipe.core.version import FORMAT
from ragpipe.metrics.from_config import shipped_scores
from ragpipe.score.calibration_file import Binding, asked_shapes, binding_differences, binding_of, read_calibration
from ragpipe.score.cross_checks import scoring_faults
from ragpipe.score.settings import ScoringSettings

CORRECTNESS = ScoreSpec("correctness", 1, 5)
COUNT = ScoreSpec("n_claims", None, None)
NOTED = ScoreSpec("noise", diagnostic=True)


def test_defaults_are_those_of_the_sources_and_weights_are_relative() -> None:
    """rag-evaluation-framework.md section 4.2 and the pass marks of section 4.3, core metrics and synthesis."""
    settings = ScoringSettings()
    assert settings.weights == {
        "retrieval_score": 0.10, "context_relevance": 0.10, "faithfulness": 0.20, "answer_relevance": 0.15,
        "citation": 0.15, "source_policy": 0.10, "policy_compliance": 0.10, "rejection_calibration": 0.10,
    }  # fmt: skip
    assert (settings.weight_shares(), settings.warnings()) == (settings.weights, [])
    pass_marks = {"retrieval_score": 0.6, "faithfulness": 0.85, "correctness": 4.0, "answer_completeness": 4}
    assert {name: settings.thresholds[name] for name in pass_marks} == pass_marks
    # section 5.8 overrides four weights; merged with the defaults they sum to 1.40.
    settings = ScoringSettings(weights={"faithfulness": 0.40, "citation": 0.25, "answer_relevance": 0.20, "context_relevance": 0.15})
    used = settings.weight_shares()
    assert sum(settings.weights.values()) == pytest.approx(1.40)
    assert used["faithfulness"] == pytest.approx(0.40 / 1.40)
    assert used["retrieval_score"] == pytest.approx(0.10 / 1.40)
    assert sum(used.values()) == pytest.approx(1)
    assert settings.warnings() == [], "weights are relative: a sum of 1.40 is no fault"


@pytest.mark.parametrize(("weight", "warned"), [(0.06, False), (0.04, True), (0.0, True)])
def test_a_small_weight_under_a_critical_gate_is_warned_about(weight: float, warned: bool) -> None:
    """Of all weights together: 0.06 beside the 0.80 and more of the others is 6 %, 0.04 is 4 %."""
    gates = {"policy": {"score": "policy_compliance", "min": 0.95}}
    settings = ScoringSettings(weights={"policy_compliance": weight}, gates=gates)
    assert any("a critical gate is on policy_compliance" in w for w in settings.warnings()) is warned


@pytest.mark.parametrize(("weights", "measured", "share"), [
    ({"faithfulness": 9}, ["faithfulness", "answer_relevance"], "98%"),
    ({"faithfulness": 0.9}, ["faithfulness", "answer_relevance"], "86%"),  # .9 of 1.05, though half of all weights
    ({"faithfulness": 0.2}, ["faithfulness", "retrieval_score"], None),  # as shipped
    ({"faithfulness": 0.22}, ["faithfulness", "answer_relevance"], None),  # 59 %
    ({"faithfulness": 9}, ["faithfulness"], None),  # no overall score is shown
])  # fmt: skip
def test_a_weight_over_six_tenths_of_what_is_measured_is_warned_about(weights, measured, share) -> None:
    """rag-evaluation-framework.md, Weight Constraints: "Single weight > 0.6 may cause over-indexing"."""
    specs = [ScoreSpec(name, low=0, high=1) for name in measured]
    said = [line for line in ScoringSettings(weights=weights).warnings(specs) if "overall_score says little else" in line]
    expected = f"is {weights['faithfulness']:g}, {share} of the weights that the run measures"
    assert [expected in line for line in said] == ([True] if share else [])


ZEROS: dict[str, float] = dict.fromkeys(ScoringSettings().weights, 0.0)


@pytest.mark.parametrize(("given", "said"), [
    ({"weights": {"faithfulness": -0.1}}, "greater than or equal to 0"),
    ({"weights": {"faithfulness": float("nan")}}, "finite number"), ({"weights": {"faithfulness": float("inf")}}, "finite number"),
    ({"weights": {"faithfulness": "0.5"}}, "valid number"), ({"weights": {"faithfulness": True}}, "valid number"),
    ({"weights": [0.5]}, "valid dictionary"), ({"weights": ZEROS}, "all weights are 0"),
    ({"thresholds": {"faithfulness": float("nan")}}, "finite number"), ({"coverage_floor": 1.2}, "less than or equal to 1"),
    ({"level": 1.0}, "less than 1"), ({"slices": ["categroy"]}, "did you mean 'category'"),
    ({"slices": ["method*typ"]}, "unknown field 'typ'"), ({"slices": ["meta."]}, "unknown field"),
    ({"slices": ["tag*tag"]}, "crosses `tag` with itself"), ({"gates": []}, "valid dictionary"),
    *(({"composites": {"mine": composite}}, said) for composite, said in (
        ({"weights": {}}, "at least 1 item"), ({"weights": {"faithfulness": 0}}, "a weight over 0"),
        ({"weights": {"faithfulness": -1}}, "greater than or equal to 0"),
        ({"weights": {"faithfulness": 1}, "scale": [1, 5]}, r"\[0, 1\] or \[0, 100\]"),
        ({"scale": [0, 1]}, "Field required"), ({"weights": {"faithfulness": 1}, "treshold": 1}, "Extra inputs"),
    )),
    *(({"gates": {"g": gate}}, said) for gate, said in (
        ({}, "either `score` or `failure_mode`"), ({"score": "a", "failure_mode": "b", "min": 0.5}, "either `score` or `failure_mode`"),
        ({"score": "a"}, "a limit: `min`, `max` or both"), ({"score": "a", "min": 0.8, "max": 0.2}, "`min` up to `max`"),
        ({"score": "a", "min": 0.8, "max_rise": 0.2}, "`against` beside `max_rise`"),
        ({"failure_mode": "a"}, "`max`: the largest share"), ({"failure_mode": "a", "max": 0.1, "min": 0.1}, "only `max`"),
        ({"failure_mode": "a", "max": 1.5}, "the failure mode, 0 to 1"), ({"score": "a", "min": float("nan")}, "finite number"),
        ({"score": "a", "min": 0.5, "where": {"categroy": "x"}}, "did you mean 'category'"),
        ({"score": "a", "min": 0.5, "where": {"tags": "x"}}, "did you mean 'tag'"),
        ({"score": "a", "min": 0.5, "where": {"category": []}}, "at least 1 item"),
        ({"score": "a", "min": 0.5, "where": {"category": None}}, "valid string"),
        ({"score": "a", "min": 0.5, "tier": "hard"}, "'critical', 'quality' or 'diagnostic'"),
        ({"score": "a", "min": 0.5, "of": "median"}, "'mean', 'pass_rate', 'p50' or 'p95'"),
        ({"score": "a", "against": "latest", "min": 0.8}, "a gate of its own"),
        ({"failure_mode": "m", "against": "latest", "max": 0.1}, "`max_rise` alone beside `against`, found `max`"),
        ({"failure_mode": "m", "against": "latest", "max_drop": 0.1}, "`max_rise` beside `against`, found `max_drop`"),
        ({"failure_mode": "m", "against": "latest", "of": "mean"}, "no `of` beside `failure_mode`"),
        ({"failure_mode": "m", "max": 0.1, "max_rise": 0.1}, "`against` beside `max_rise`"),
        ({"failure_mode": "m", "max_rise": 0.1}, "`against` beside `max_rise`"),
        ({"failure_mode": "m", "max": 0.1, "of": "mean"}, "only `max`"),
        ({"score": "a", "against": "latest", "max_rise": 0.1}, "`max_drop` beside `against`, found `max_rise`"),
        ({"score": "a", "against": "latest", "by": "point"}, "`by: interval`"),
        ({"score": "a", "max_drop": 0.1}, "`against` beside `max_drop`"),
        ({"score": "a", "min": 0.8, "accept": ["judge"]}, "`against` beside `accept`"),
    )),
    *(({"low_scores": given}, said) for given, said in (
        ({"bands": {"x": [{"name": "Bad", "up_to": 1}]}}, "should match pattern"),
        ({"bands": {"x": [{"name": "a", "up_to": 1}, {"name": "a", "up_to": 2}]}}, "a name of its own"),
        ({"bands": {"x": [{"name": "a"}, {"name": "b", "up_to": 2}]}}, "without `up_to` as the last one"),
        ({"bands": {"x": [{"name": "a", "up_to": 1}, {"name": "b", "up_to": 3}, {"name": "c", "up_to": 2}]}}, "from the worst on"),
        ({"bands": {"x": [{"name": "a", "up_to": 1, "low": False}, {"name": "b", "up_to": 2}]}}, "after all others"),
        ({"by": ["categroy"]}, "did you mean 'category'"),
    )),
    *(({"failure_modes": {"m": rule}}, said) for rule, said in (
        ({"score": "x", "belw": 3}, "unknown key 'belw', did you mean 'below'"), ({"score": "x"}, "at least one of below, above"),
        ({"score": "x", "field": "answerable", "below": 1}, "one condition in a mapping, not score and field"),
        ({"field": "answerble", "equals": False}, "did you mean 'answerable'"),
        ({"field": "expected.behaviour", "equals": "answer"}, "did you mean 'expected.behavior'"),
        ({"fild": "answerable", "equals": 1}, "one of the keys score, field"),
        ({"score": "x", "status": "failed"}, "'ok', 'skipped' or 'error'"), ({"score": "x", "passed": "no"}, "valid boolean"),
        ({"score": "x", "below": float("nan")}, "finite number"), ({"score": [], "passed": True}, "at least 1 item"),
        ({"all": []}, "at least 1 item"), ([], "at least 1 item"), ("faithfulness", "one of the keys score, field"),
    )),
])  # fmt: skip
def test_nonsense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ScoringSettings(**given)


@pytest.mark.parametrize(("given", "key", "found"), [
    ({"weights": {"faithfullness": 0.2}}, "scoring.weights.faithfullness", "did you mean 'faithfulness'"),
    ({"thresholds": {"corectness": 4}}, "scoring.thresholds.corectness", "did you mean 'correctness'"),
    ({"weights": {"overall_score": 0.2}}, "scoring.weights.overall_score", "unknown score"),
    ({"weights": {"n_claims": 0.1}}, "scoring.weights.n_claims", "0.1"),
    ({"weights": {"noise": 0.1}}, "scoring.weights.noise", "0.1"),
    ({"thresholds": {"correctness": 0.7}}, "scoring.thresholds.correctness", "0.7"),
    ({"thresholds": {"overall_score": 70}}, "scoring.thresholds.overall_score", "70"),
    ({"thresholds": {"correctness": {"direct": 4}}}, "scoring.thresholds.correctness", "it has no methods"),
    ({"thresholds": {"answer_relevance": {"direkt": 0.7}}}, "scoring.thresholds.answer_relevance.direkt",
     "unknown method 'direkt', did you mean 'direct'?"),
    *(({"composites": {name: {"weights": {part: 1}}}}, f"scoring.composites.{key}", found) for name, part, key, found in (
        ("correctness", "faithfulness", "correctness", "the name 'correctness'"),
        ("answer", "faithfulness", "answer", "the name 'answer'"),
        ("mine", "faithfullness", "mine.weights.faithfullness", "did you mean 'faithfulness'"),
        ("mine", "n_claims", "mine.weights.n_claims", "a count"),
        ("mine", "ragas_score", "mine.weights.ragas_score", "the composite 'ragas_score'"),
        ("mine", "overall_score", "mine.weights.overall_score", "unknown score"),
    )),
    *(({"gates": {"g": gate}}, f"scoring.gates.g.{key}", found) for gate, key, found in (
        ({"score": "faithfullness", "min": 0.5}, "score", "did you mean 'faithfulness'"),
        ({"failure_mode": "unsuported_claim", "max": 0}, "failure_mode", "did you mean 'unsupported_claim'"),
        ({"score": "correctness", "min": 4}, "min", "4"),  # on 0-1, not on the native 1-5
        ({"score": "noise", "of": "pass_rate", "min": 0.5}, "of", "no threshold"),
        ({"score": "correctness", "min": 1, "by": "interval"}, "by", "interval"),
        ({"failure_mode": "empty_answer", "max": 0, "by": "interval"}, "by", "interval"),
    )),
    *(({"low_scores": {"bands": bands}}, f"scoring.low_scores.bands.{key}", found) for key, bands, found in (
        ("corectness", {"corectness": [{"name": "a", "up_to": 1}]}, "did you mean 'correctness'"),
        ("correctness", {"correctness": [{"name": "a", "up_to": 0.5}]}, "up_to 0.5"),
        ("correctness", {"correctness": [{"name": "a", "up_to": 3}, {"name": "b", "up_to": 2}]}, "up_to 3, 2"),
    )),
    ({"failure_modes": {"m": {"score": "faithfullness", "passed": False}}}, "scoring.failure_modes.m", "did you mean 'faithfulness'"),
    ({"failure_modes": {"m": {"failure_mode": "judge_error"}}}, "scoring.failure_modes.m", "the failure mode 'judge_error'"),
    ({"diagnosis": {"d": {"when": {"failure_mode": "retreival_miss"}, "message": "It."}}}, "scoring.diagnosis.d.when",
     "did you mean 'retrieval_miss'"),
    ({"failure_items": {"unsuported_claim": {"name": "x", "of": [{"score": "faithfulness", "detail": "d"}]}}},
     "scoring.failure_items.unsuported_claim", "did you mean 'unsupported_claim'"),
])  # fmt: skip
def test_what_does_not_fit_the_scores_is_named(given: dict[str, Any], key: str, found: str) -> None:
    (problem,) = scoring_faults(ScoringSettings(**given), [CORRECTNESS, COUNT, NOTED])
    assert problem.key == key
    assert found in problem.found


def test_thresholds_by_the_methods_of_a_plugins_metric_are_its_own_matter() -> None:
    own = ScoringSettings(thresholds={"answer_relevance": {"direct": 0.7}, "mine": {"a": 0.5, "b": None}})
    assert scoring_faults(own, [ScoreSpec("answer_relevance", method="questions"), ScoreSpec("mine", method="a")]) == []


@pytest.mark.parametrize(("method", "warned"), [("questions", True), ("direct", False)])
def test_a_fixed_limit_by_a_method_with_a_scale_of_its_own_is_warned_about(method: str, warned: bool) -> None:
    settings = ScoringSettings(gates={"relevant": {"score": "answer_relevance", "min": 0.8}})
    said = [line for line in settings.warnings([ScoreSpec("answer_relevance", method=method)]) if "scoring.gates.relevant" in line]
    assert [("by method questions are on a scale of their own" in line) for line in said] == ([True] if warned else [])


@pytest.mark.parametrize(
    "given",
    [
        {"weights": {"groundedness": 2.0, "format": 1.0, "ndcg@5": 1.0}},
        {"thresholds": {"format": 1.0, "nuggets": 0.5}},
        {"composites": {"mine": {"weights": {"correctness": 1.0, "format": 1.0}}}},
    ],
)
def test_scores_of_metrics_that_are_not_switched_on_may_be_named(given: dict[str, Any]) -> None:
    """Several experiments can share one file: what a run does not measure is left out of it."""
    assert scoring_faults(ScoringSettings(**given), [CORRECTNESS], shipped_scores) == []


NAMES = "answer_relevance, citation, context_relevance, correctness, faithfulness, policy_compliance, ragas_score, "
NAMES += "rejection_calibration, retrieval_score, source_policy"
SURPLUS = "list_completeness_surplus"


@pytest.mark.parametrize(("given", "found", "expected"), [
    ({"weights": {"groundednes": 2.0}}, "unknown score 'groundednes', did you mean 'groundedness'?",
     f"one of {NAMES}, or another score of docs/metrics.md"),
    ({"weights": {"nuggets_all": 0.5}}, "0.5", "0, because a diagnostic score weighs nothing"),
    ({"weights": {SURPLUS: 0.5}}, "0.5", "0, because a count has no scale and cannot be part of a mean"),
    ({"composites": {"mine": {"weights": {SURPLUS: 1}}}}, f"'{SURPLUS}', a count", "scores on a scale: a count has none"),
])  # fmt: skip
def test_what_no_run_could_weigh_is_a_fault_in_every_run(given: dict[str, Any], found: str, expected: str) -> None:
    (problem,) = scoring_faults(ScoringSettings(**given), [CORRECTNESS], shipped_scores)
    assert (problem.found, problem.expected) == (found, expected)


IDENTITY: dict[str, Any] = {
    "judge_identity": {"model": "openai/gpt-4o-mini-2024-07-18", "temperature": 0.0},
    "metrics": {
        "faithfulness": {
            "class": "FaithfulnessMetric", "version": 2, "parameters": {"batch": 20, "steps": "separate"},
            "prompts": {"extract": "a" * 64, "verify": "b" * 64},
        },
        "retrieval": {"class": "RetrievalMetric", "version": 1, "parameters": {"k": [5]}, "prompts": {}},
    },
}  # fmt: skip
SHAPES = {"extract": "Claims@0123456789ab", "verify": "Verdicts@ba9876543210"}


def bound(threshold: float | None = 0.85, shapes: dict[str, str] = SHAPES, **changed: Any) -> Binding:
    identity = copy.deepcopy(IDENTITY)
    for path, value in changed.items():
        *parents, last = path.split("__")
        place = identity
        for parent in parents:
            place = place[parent]
        place[last] = value
    return binding_of(identity, "faithfulness", shapes, threshold)


def content() -> dict[str, Any]:
    interval = {"level": 0.95, "low": 0.7, "high": 0.95, "method": "jackknife_wilson", "too_few": False}
    kappa = {"n": 60, "clusters": 50, "value": 0.86, "interval": interval, "reason": None}
    score = {
        "metric": "faithfulness", "draw_id": "d1", "recorded": None, "reference": "single",
        "bound_to": bound().model_dump(mode="json"),
        "target": {"statistic": "kappa", "above": 0.8},
        "state": "not_enough_labels", "labels_needed": 240, "reason": None, "unjudged": 0, "statistics": {"kappa": kappa},
        "confusion": {"classes": ["failed", "passed"], "counts": [[20, 2], [2, 36]]}, "prevalence": None,
        "judged_prevalence": None, "ceiling": None, "slices": [], "length_baseline": None,
        "by_method": False,
        "labels": [{
            "sample_id": "q1", "method": "rag", "repeat": 1, "answer_sha256": "c" * 64, "label": 1.0, "annotators": 1,
            "part": "random", "stratum": "all", "probability": 0.6, "passed": True, "judge_passed": None,
        }],
    }  # fmt: skip
    judge = {"label": "openai/gpt-4o-mini-2024-07-18", "identity": "d" * 64}
    return {"format": FORMAT, "run_id": "0123456789ab", "judge": judge, "scores": {"faithfulness": score}}


def written(folder: Path, document: Any) -> Path:
    path = folder / "calibration.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(("state", "calibrated"), [("passed", True), ("failed", False), ("not_enough_labels", None)])
def test_the_state_says_whether_a_score_is_calibrated(tmp_path: Path, state: str, calibrated: bool | None) -> None:
    document = content()
    document["scores"]["faithfulness"]["state"] = state
    assert read_calibration(written(tmp_path, document)).scores["faithfulness"].calibrated is calibrated


def _without(document: dict[str, Any], *path: str) -> dict[str, Any]:
    place = document
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return document


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", ("file", "no readable JSON")),
        ("[]", ("file", "another JSON document")),
        ({"format": FORMAT, "run_id": "x"}, ("file", "another JSON document")),
        (json.dumps(content()).replace("0.86", "NaN"), ("file", "NaN")),
        (_without(content(), "run_id"), ("run_id", "nothing")),
        (_without(content(), "scores", "faithfulness", "state"), ("scores.faithfulness.state", "nothing")),
        ({**content(), "judged_by": "x"}, ("judged_by", "an unknown key")),
    ],
)
def test_a_damaged_file_is_refused_with_its_place(tmp_path: Path, document: Any, words: tuple[str, str]) -> None:
    path = written(tmp_path, document)
    with pytest.raises(DataError) as caught:
        read_calibration(path)
    problem = caught.value.problems[0]
    assert (problem.where, problem.key) == (str(path), words[0])
    assert words[1] in problem.found
    assert "task=calibrate" in problem.fix


def test_a_missing_file_and_another_format_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_calibration(tmp_path / "calibration.json")
    with pytest.raises(FormatMismatch, match=f"format {FORMAT - 1}"):
        read_calibration(written(tmp_path, {**content(), "format": FORMAT - 1}))


@pytest.mark.parametrize(("changed", "line"), [
    ({"judge_identity__model": "openai/gpt-5-2025-08-07"},
     "judge.model: openai/gpt-4o-mini-2024-07-18 -> openai/gpt-5-2025-08-07"),
    ({"judge_identity__season": "autumn"}, "judge.season: (absent) -> autumn"),
    ({"metrics__faithfulness__version": 3}, "metric_version: 2 -> 3"),
    ({"metrics__faithfulness__parameters__batch": 5}, "settings.parameters.batch: 20 -> 5"),
    ({"metrics__faithfulness__prompts__verify": "e" * 64}, "prompts.verify: bbbbbbbbbbbb -> eeeeeeeeeeee"),
    ({"shapes": {**SHAPES, "verify": "QuotedVerdicts@ba9876543210"}},
     "answer_shape.verify: Verdicts@ba9876543210 -> QuotedVerdicts@ba9876543210"),
    ({"shapes": {**SHAPES, "verify": "Verdicts@ffffffffffff"}},
     "answer_shape.verify: Verdicts@ba9876543210 -> Verdicts@ffffffffffff"),
    ({"threshold": 0.7}, "threshold: 0.85 -> 0.7"),
    ({"threshold": None}, "threshold: 0.85 -> None"),
])  # fmt: skip
def test_every_difference_is_named(changed: dict[str, Any], line: str) -> None:
    assert binding_differences(bound(), bound(**changed)) == [line]


@pytest.mark.parametrize(
    "shapes",
    [
        SHAPES,
        {"extract": "Claims@0123456789ab"},  # no answer had a claim, so nothing was verified
        {"extract": "Claims", "verify": "Verdicts"},  # the run keeps no messages
        {**SHAPES, "repair": "Verdicts@ba9876543210"},
    ],
)
def test_what_was_not_asked_or_not_kept_is_no_difference(shapes: dict[str, str]) -> None:
    assert binding_differences(bound(), bound(shapes=shapes)) == []
    assert binding_differences(bound(shapes=shapes), bound()) == []


def test_the_forms_of_answers_come_from_the_questions(tmp_path: Path) -> None:
    rows = [
        ("faithfulness", "extract", "Claims", '{"a": 1}', "m"),
        ("faithfulness", "extract", "Claims", '{"a":1}', "m"),  # the same schema in other white space
        ("faithfulness", "verify", "Verdicts", None, "m"),
        ("similarity", "embed", "Vector", None, "minilm@1"),
    ]
    path = tmp_path / "judge_inputs.parquet"
    names = ["metric", "step", "answer", "schema", "judge"]
    pq.write_table(pa.table([pa.array(column) for column in zip(*rows, strict=True)], names), path)
    shapes = asked_shapes(path)
    assert shapes["faithfulness"]["verify"] == "Verdicts"
    # sha256 of {"a":1}
    assert shapes["faithfulness"]["extract"] == "Claims@015abd7f5cc5"
    assert shapes["similarity"] == {"embed": "minilm@1"}
