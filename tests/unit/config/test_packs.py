"""Packs of metrics per use case: they compose, and weigh what the framework document says to put first."""

import pytest

from ragpipe.cli import compose

# rag-evaluation-framework.md, "Weight Tuning Process", step 2
PRIORITIES = {
    "financial_legal": {"faithfulness", "source_policy"},
    "customer_support": {"answer_relevance", "rejection_calibration"},
    "research_assistant": {"citation", "context_relevance"},
    "chatbot": {"answer_relevance", "faithfulness"},
}


@pytest.mark.slow
@pytest.mark.parametrize("pack", PRIORITIES)
def test_a_pack_weighs_its_priorities_most(pack: str) -> None:
    config = compose(["dataset=demo", f"+mode=pack_{pack}"])
    weights = {name: weight for name, weight in config.scoring.weights.items() if weight}
    assert set(sorted(weights, key=lambda name: -weights[name])[:2]) == PRIORITIES[pack]
    assert sum(weights.values()) == pytest.approx(1)
    given = {spec.name for metric in config.metrics.values() for spec in metric.scores()}
    assert set(weights) <= given, "a weight on a score that no metric of the pack gives"
    assert {gate.score for gate in config.scoring.gates.values()} <= given


@pytest.mark.slow
def test_financial_and_legal_answers_name_the_source_of_a_quote() -> None:
    config = compose(["dataset=demo", "+mode=pack_financial_legal"])
    assert config.metrics["source_policy"].attribution == "required"  # type: ignore[attr-defined]
