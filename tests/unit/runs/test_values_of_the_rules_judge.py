"""The rules judge gives no value to the cases alone that cost no question: a mean must not cover failures only."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ragpipe.core.errors import Skipped
from ragpipe.core.sample import Case
from ragpipe.core.score import Score
from ragpipe.judge.case_judge import CaseJudge
from ragpipe.judge.rules.rules_judge import RulesJudge
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.judge.session import JudgeSession
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.metrics.needs import WHOLE_CASES, default_metrics
from ragpipe.runs.case_measuring import measure_case
from ragpipe.testing.scripted import make_case, shipped_metric

JUDGED = [metric for metric in default_metrics() if not isinstance(metric, Computed) and metric.prompts()]
REFERENCES: tuple[list[str], ...] = ([], ["It has four basins."], ["No."], ["x"], ["I cannot say.", "Yes, it is."], ["No.", "Four."])
MISSING: tuple[Mapping[str, Any], ...] = ({"chunks": []}, {"answer": ""}, {"citations": []})


def _scores(metric: Metric, case: Case) -> list[Score]:
    session = JudgeSession(identity={}, label="", in_process=RulesJudge(RulesSettings()))
    if run_skip_reason(metric, case, embedder=False):
        return []
    try:
        scores = asyncio.run(measure_case(metric, case, CaseJudge(session, case.key, metric.name)))
    except Skipped:
        return []
    return [scores] if isinstance(scores, Score) else list(scores)


@pytest.mark.parametrize("metric", JUDGED, ids=lambda metric: metric.name)
def test_no_value_where_the_whole_case_could_not_be_judged(metric: Metric) -> None:
    """Over cases with and without each part: where the judge cannot answer about the whole case, nothing missing gives a value."""
    for whole in WHOLE_CASES:
        for references in REFERENCES:
            case = replace(whole, sample=whole.sample.model_copy(update={"references": references}))
            if run_skip_reason(metric, case, embedder=False) or _scores(metric, case):
                continue
            for fields in MISSING:
                less = replace(case, output=case.output.model_copy(update=fields))
                assert not [score.value for score in _scores(metric, less) if score.value is not None], (references, fields)


@pytest.mark.parametrize("answer", ["", "I don't know.", "Whales sing."])
def test_phrases_of_not_knowing_count_only_beside_classes_of_other_answers(answer: str) -> None:
    case = make_case(answer=answer, chunks=["Whales sing."], references=["Whales sing."])
    assert _scores(shipped_metric("answer_class"), case) == []


def test_values_that_stay_with_any_judge() -> None:
    case = make_case(answer="You should buy this stock now.", chunks=["Whales sing."])
    assert [score.value for score in _scores(shipped_metric("policy_compliance"), case)] == [0]
    case = make_case(answer="A.", chunks=["Whales sing."], references=["The documents do not say."])
    (score,) = _scores(shipped_metric("context_recall"), case)
    assert (score.value, score.reason) == (100, "no_statements")


@pytest.mark.parametrize(("references", "chunks", "value"), [
    ([], ["Tea grows in China."], None),
    ([], [], None),  # without a reference it could not have graded a chunk
    (["Tea grows in China."], ["Tea grows in China."], 100),
    (["Tea grows in China."], [], 0),
    (["No."], [], None),
    (["I cannot answer that."], [], None),
])  # fmt: skip
def test_context_precision_counts_what_was_not_found_only_beside_what_was(references, chunks, value) -> None:
    scores = _scores(shipped_metric("context_precision"), make_case(answer="A.", chunks=chunks, references=references))
    assert [score.value for score in scores] == ([value] * 3 if value is not None else [])


@pytest.mark.parametrize("answer", ["I cannot answer that.", "Which one do you mean?", "Happy to help!"])
def test_an_answer_that_states_nothing_keeps_its_value(answer: str) -> None:
    (score,) = _scores(shipped_metric("faithfulness"), make_case(answer=answer, chunks=["Whales sing."]))
    assert (score.value, score.reason) == (1, "no_factual_claims")
