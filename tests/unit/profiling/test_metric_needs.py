"""What metrics need: by hand for some, and for all of them by what the embedded judge really does."""

from __future__ import annotations

import asyncio

import pytest

from ragpipe.core.errors import Skipped
from ragpipe.judging.case_judge import CaseJudge
from ragpipe.judging.heuristic.heuristic_judge import HeuristicJudge
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.session import JudgeSession
from ragpipe.metrics.base import Computed, run_skip_reason
from ragpipe.profiling.label_fields import FIELDS, DataFacts
from ragpipe.profiling.metric_needs import REFUSED_CASE, WHOLE_CASES, default_metrics, metric_needs, need_of
from ragpipe.testing.scripted import make_case, shipped_metric

GOLD = "relevant_docs or relevant_chunks or gains or anchors"
# metric -> (the embedded judge answers, embedder, labels)
BY_HAND = {
    "faithfulness": ("yes", False, ("answer", "contexts")),
    "correctness": ("no", False, ("answer", "reference")),
    "context_precision": ("partly", False, ("contexts",)),  # with a reference only
    "recency_conflict": (
        "partly",  # whether both notes are acknowledged is a question to a model, whether the newer is cited is not
        False,
        ("answer", "contexts", "citations", "anchors", "anchors[].role", "recency_conflict_rule"),
    ),
    "semantic_similarity": ("yes", True, ("answer", "reference")),
    "retrieval": ("yes", False, ("contexts", f"{GOLD} or required_support_groups")),
    "attribution_hit": ("yes", False, ("contexts", "citations", GOLD)),
    "abstention": ("yes", False, ("answerable=false", "answer or abstained")),
    "rejection_calibration": ("yes", False, ("answer", "expected.behavior")),
    "source_policy": ("yes", False, ("answer", "contexts", "contexts[].policy")),
    "scope_miss": ("yes", False, ("folder_mode", "selected_folders", "anchors")),
    "list_completeness": ("yes", False, ("answer", "expected.context_has")),
    "recorded": ("yes", False, ("recorded",)),
}


@pytest.fixture(scope="module")
def needs():
    return {need.name: need for need in metric_needs(DataFacts())}


@pytest.mark.parametrize("name", BY_HAND)
def test_needs_by_hand(needs, name):
    need = needs[name]
    assert (need.embedded_judge, need.needs_embedder, need.labels) == BY_HAND[name]
    assert need.missing == need.labels, "without facts everything is missing"


def _answers(metric, case):
    """Whether the embedded judge gives the metric's scores for a case: measured."""
    settings = HeuristicSettings()
    session = JudgeSession(identity={}, label="", embedded=HeuristicJudge(settings))
    try:
        scores = asyncio.run(metric.measure(case, CaseJudge(session, case.key, metric.name)))
    except Skipped as reason:
        return str(reason) != "evidence_cannot_answer"
    every = scores if isinstance(scores, list | tuple) else [scores]
    return all(score.reason != "evidence_cannot_answer" for score in every)


def test_what_the_embedded_judge_can_answer_is_what_it_answers(needs):
    """The needs are read from planned questions, which are asked here in earnest: about answers that claim something, unless a
    metric is about refusals only."""
    reference = next(field for field in FIELDS if field.name == "reference")
    for metric in (metric for metric in default_metrics() if not isinstance(metric, Computed)):
        whole = [case for case in WHOLE_CASES if run_skip_reason(metric, case, embedder=True) is None]
        claiming = [case for case in whole if case is not REFUSED_CASE] or whole
        cases = [variant for case in claiming for variant in (case, reference.without(case))]
        answers = {_answers(metric, case) for case in cases if run_skip_reason(metric, case, embedder=True) is None}
        measured = "partly" if len(answers) == 2 else "yes" if answers == {True} else "no"
        assert needs[metric.name].embedded_judge == measured, metric.name


def test_every_label_named_is_one_that_facts_can_have(needs):
    facts = DataFacts.of(WHOLE_CASES)
    for need in metric_needs(facts):
        assert need.missing == (("recorded",) if need.name == "recorded" else ()), need.name


def test_only_what_no_case_has_is_missing():
    cases = [
        make_case(answer="Ada.", chunks=["Ada."], references=["Ada."]),
        make_case(answer="Ada.", relevant_docs=["d1"]),
    ]
    facts = DataFacts.of(cases)
    assert need_of(shipped_metric("retrieval"), facts).missing == ()
    assert need_of(shipped_metric("attribution_hit"), facts).missing == ("citations",)
    assert need_of(shipped_metric("abstention"), facts).missing == ("answerable=false",)


def test_a_question_that_has_an_answer_is_no_label_for_abstention():
    facts = DataFacts.of([make_case(answer="Ada.", answerable=True)])
    assert need_of(shipped_metric("abstention"), facts).missing == ("answerable=false",)
    facts.add(make_case(answer="Ada.", answerable=False))
    assert need_of(shipped_metric("abstention"), facts).missing == ()


def test_recorded_values_are_needed_by_name():
    metric = shipped_metric("recorded", take={"human": {"from": "grades.ann", "low": 1, "high": 4}})
    facts = DataFacts.of([make_case(answer="Ada.", recorded={"other": 1})])
    assert need_of(metric, facts).labels == ("recorded.grades",)
    assert need_of(metric, facts).missing == ("recorded.grades",)
    assert need_of(shipped_metric("recorded"), facts).missing == ()
