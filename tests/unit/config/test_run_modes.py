"""The run modes: what each measures and which gates it has."""

from __future__ import annotations

import pytest

from ragpipe.cli import compose
from ragpipe.core.resources import conf_dir
from ragpipe.profiling.metric_needs import needed_labels

IN_A_LOG = {"answer", "contexts", "citations", "contexts[].policy"}
"""What the system itself records; everything else would have to be labelled."""


@pytest.mark.slow
def test_monitoring_needs_what_a_log_holds_and_blocks_nothing() -> None:
    config = compose(["dataset=demo", "+mode=monitoring"])
    # rag-evaluation-framework.md, "Evaluation Run Modes", mode 1
    assert set(config.metrics) == {"faithfulness", "context_relevance", "answer_relevance", "citation", "source_policy"}
    assert {label for metric in config.metrics.values() for label in needed_labels(metric)} <= IN_A_LOG
    assert {gate.tier for gate in config.scoring.active_gates().values()} == {"quality"}
    assert set(config.scoring.active_gates()) == set(config.metrics)


@pytest.mark.slow
def test_a_full_evaluation_has_every_metric_that_needs_nothing_but_labels() -> None:
    words = ["scoring.gates.overall_drop.against=0123456789ab", "scoring.gates.overall_drop.accept=[data]"]
    config = compose(["dataset=demo", "+mode=full_evaluation", *words])
    shipped = {file.stem for file in (conf_dir() / "metrics").glob("*.yaml")}
    assert shipped - set(config.metrics) == {"recorded", "rubric", "semantic_similarity", "one_chunk_suffices"}
    gates = config.scoring.active_gates()
    assert {gate.against for gate in gates.values()} == {"0123456789ab"}, "one word names the baseline of all"
    assert {gate.max_drop for gate in gates.values()} == {0.05}
    assert [gate.accept for gate in gates.values()] == [["data"]] * 4, "one word says what may differ for all"
    critical = {gate.score for gate in gates.values() if gate.tier == "critical"}
    assert critical == {"retrieval_score", "rejection_calibration"}, "what no judge decides"


@pytest.mark.slow
@pytest.mark.parametrize(("words", "limit"), [([], 0.95), (["scoring.gates.policy_compliance.min=0.8"], 0.8)])
def test_a_regression_gate_has_one_limit_and_asks_no_judge(words: list[str], limit: float) -> None:
    config = compose(["dataset=demo", "+mode=regression_gate", *words])
    assert not [name for name, metric in config.metrics.items() if metric.prompts()]
    gates = config.scoring.active_gates()
    assert {name: (gate.min, gate.tier) for name, gate in gates.items()} == {
        "policy_compliance": (limit, "critical"),
        "rejection_calibration": (limit, "critical"),
    }


@pytest.mark.slow
def test_custom_weights_weigh_what_is_measured_and_nothing_else() -> None:
    config = compose(["dataset=demo", "+mode=custom_weights", "scoring.weights={faithfulness: 0.6}"])
    weights = {name: weight for name, weight in config.scoring.weights.items() if weight}
    assert weights == {"faithfulness": 0.6, "citation": 0.3, "answer_relevance": 0.2}, "named ones change, others stay"
    assert set(weights) == set(config.metrics)
