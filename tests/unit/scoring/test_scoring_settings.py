from typing import Any

import pytest
from pydantic import ValidationError

from ragpipe.metrics.shipped_scores import shipped_scores
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.cross_checks import scoring_faults
from ragpipe.scoring.settings import ScoringSettings

CORRECTNESS = ScoreSpec("correctness", 1, 5)
COUNT = ScoreSpec("n_claims", None, None)
NOTED = ScoreSpec("noise", diagnostic=True)


def test_defaults_are_those_of_the_sources() -> None:
    """rag-evaluation-framework.md section 4.2 and the pass marks of section 4.3, core metrics and synthesis."""
    settings = ScoringSettings()
    assert settings.weights == {
        "retrieval_score": 0.10, "context_relevance": 0.10, "faithfulness": 0.20, "answer_relevance": 0.15,
        "citation": 0.15, "source_policy": 0.10, "policy_compliance": 0.10, "rejection_calibration": 0.10,
    }  # fmt: skip
    assert settings.weight_shares() == settings.weights
    assert settings.warnings() == []
    pass_marks = {"retrieval_score": 0.6, "faithfulness": 0.85, "correctness": 4.0, "answer_completeness": 4}
    assert {name: settings.thresholds[name] for name in pass_marks} == pass_marks


def test_the_documents_example_sums_to_1_40_and_is_scaled() -> None:
    """Section 5.8 overrides four weights; merged with the defaults they sum to 1.40."""
    settings = ScoringSettings(
        weights={"faithfulness": 0.40, "citation": 0.25, "answer_relevance": 0.20, "context_relevance": 0.15}
    )
    used = settings.weight_shares()
    assert sum(settings.weights.values()) == pytest.approx(1.40)
    assert used["faithfulness"] == pytest.approx(0.40 / 1.40)
    assert used["retrieval_score"] == pytest.approx(0.10 / 1.40)
    assert sum(used.values()) == pytest.approx(1)
    assert settings.warnings() == [], "weights are relative: a sum of 1.40 is no fault"


@pytest.mark.parametrize(("weight", "share"), [(0.3, 0.3 / 1.1), (0.5, 0.5 / 1.3), (2.0, 2.0 / 2.8)])
def test_weights_are_relative(weight: float, share: float) -> None:
    """The other shipped weights sum to 0.80."""
    settings = ScoringSettings(weights={"faithfulness": weight})
    assert settings.weight_shares()["faithfulness"] == pytest.approx(share)
    assert bool(settings.warnings()) is (share > 0.6)


@pytest.mark.parametrize(("weight", "warned"), [(0.06, False), (0.04, True), (0.0, True)])
def test_a_small_weight_under_a_critical_gate_is_warned_about(weight: float, warned: bool) -> None:
    """Of all weights together: 0.06 beside the 0.80 and more of the others is 6 %, 0.04 is 4 %."""
    gates = {"policy": {"score": "policy_compliance", "min": 0.95}}
    settings = ScoringSettings(weights={"policy_compliance": weight}, gates=gates)
    assert any("a critical gate is on policy_compliance" in w for w in settings.warnings()) is warned


def test_a_dominant_weight_is_warned_about() -> None:
    assert any("overall_score says little else" in w for w in ScoringSettings(weights={"faithfulness": 9}).warnings())


ZEROS: dict[str, float] = dict.fromkeys(ScoringSettings().weights, 0.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weights": {"faithfulness": -0.1}}, "greater than or equal to 0"),
        ({"weights": {"faithfulness": float("nan")}}, "finite number"),
        ({"weights": {"faithfulness": float("inf")}}, "finite number"),
        ({"weights": {"faithfulness": "0.5"}}, "valid number"),
        ({"weights": {"faithfulness": True}}, "valid number"),
        ({"weights": [0.5]}, "valid dictionary"),
        ({"weights": ZEROS}, "all weights are 0"),
        ({"thresholds": {"faithfulness": float("nan")}}, "finite number"),
        ({"coverage_floor": 1.2}, "less than or equal to 1"),
        ({"level": 1.0}, "less than 1"),
        ({"slices": ["categroy"]}, "did you mean 'category'"),
        ({"slices": ["method*typ"]}, "unknown field 'typ'"),
        ({"slices": ["meta."]}, "unknown field"),
        ({"slices": ["tag*tag"]}, "crosses `tag` with itself"),
        ({"gates": []}, "valid dictionary"),
    ],
)
def test_nonsense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ScoringSettings(**given)


@pytest.mark.parametrize(
    ("given", "key", "found"),
    [
        ({"weights": {"faithfullness": 0.2}}, "scoring.weights.faithfullness", "did you mean 'faithfulness'"),
        ({"thresholds": {"corectness": 4}}, "scoring.thresholds.corectness", "did you mean 'correctness'"),
        ({"weights": {"overall_score": 0.2}}, "scoring.weights.overall_score", "unknown score"),
        ({"weights": {"n_claims": 0.1}}, "scoring.weights.n_claims", "0.1"),
        ({"weights": {"noise": 0.1}}, "scoring.weights.noise", "0.1"),
        ({"thresholds": {"correctness": 0.7}}, "scoring.thresholds.correctness", "0.7"),
        ({"thresholds": {"overall_score": 70}}, "scoring.thresholds.overall_score", "70"),
    ],
)
def test_what_does_not_fit_the_scores_is_named(given: dict[str, Any], key: str, found: str) -> None:
    (problem,) = scoring_faults(ScoringSettings(**given), [CORRECTNESS, COUNT, NOTED])
    assert problem.key == key
    assert found in problem.found


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


@pytest.mark.parametrize(
    ("given", "found", "expected"),
    [
        (
            {"weights": {"groundednes": 2.0}},
            "unknown score 'groundednes', did you mean 'groundedness'?",
            "one of answer_relevance, citation, context_relevance, correctness, faithfulness, policy_compliance, ragas_score, "
            "rejection_calibration, retrieval_score, source_policy, or another score of docs/metrics.md",
        ),
        ({"weights": {"nuggets_all": 0.5}}, "0.5", "0, because a diagnostic score weighs nothing"),
        (
            {"weights": {"list_completeness_surplus": 0.5}},
            "0.5",
            "0, because a count has no scale and cannot be part of a mean",
        ),
        (
            {"composites": {"mine": {"weights": {"list_completeness_surplus": 1}}}},
            "'list_completeness_surplus', a count",
            "scores on a scale: a count has none",
        ),
    ],
)
def test_what_no_run_could_weigh_is_a_fault_in_every_run(given: dict[str, Any], found: str, expected: str) -> None:
    (problem,) = scoring_faults(ScoringSettings(**given), [CORRECTNESS], shipped_scores)
    assert (problem.found, problem.expected) == (found, expected)


def test_what_fits_is_no_problem() -> None:
    settings = ScoringSettings(
        weights={"citation": 0.0, "correctness": 0.2, "n_claims": 0}, thresholds={"correctness": None, "n_claims": 3}
    )
    assert scoring_faults(settings, [CORRECTNESS, COUNT]) == []


def test_the_identity_holds_the_merged_values() -> None:
    assert ScoringSettings().identity() == ScoringSettings(weights={"faithfulness": 0.20}).identity()
    assert ScoringSettings().identity() != ScoringSettings(thresholds={"faithfulness": 0.9}).identity()
