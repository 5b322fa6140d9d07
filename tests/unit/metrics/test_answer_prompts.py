"""The questions about answers: earlier versions ask what they always asked; later ones have scales without gaps."""

from __future__ import annotations

import re

import pytest

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.unit.metrics.test_metric_prompts import ASKING, CASE

PARAMETERS = ASKING | {"answer_relevance": {"method": "questions"}}
FROZEN = {
    ("answer_relevance", "questions", "v1"): "2d306969ee487c1a",
    ("answer_relevance", "direct", "v1"): "e142330cb653ed58",
    ("correctness", "grade", "v1"): "f8b29c778eed34ff",
    ("contextual_correctness", "grade", "v1"): "50c767782e0974b3",
    ("factual_accuracy", "grade", "v1"): "a496ec1d89c3faab",
    ("groundedness", "grade", "v1"): "e14bfa79b2a84cd5",
    ("groundedness", "grade", "v2"): "343594175530bfae",
    ("answer_synthesis", "grade", "v1"): "fd78446c6a72d464",
    ("abstention", "detect", "v1"): "3bad95b26825b553",
    ("answer_class", "classify", "v1"): "d6b62c1ccd13344a",
    ("nuggets", "nuggetize", "v1"): "c5d076af7075cd67",
    ("nuggets", "assign", "v1"): "4a4567a7c348c912",
    ("format", "tone", "v1"): "65d2ca66731bcfb2",
    ("policy_compliance", "examine", "v1"): "4cd946ea58b786df",
    ("recency_conflict", "acknowledge", "v1"): "fd759742f2095025",
    ("rubric", "grade", "v1"): "c5e403a535c7c3ed",
    ("rejection_calibration", "detect", "v1"): "3bad95b26825b553",
}


def planned(name, case=CASE, **versions):
    """The planned questions by step: of the versions by step, and of the shipped ones of all other steps."""
    parameters = PARAMETERS.get(name, {})
    shipped = shipped_metric(name, **parameters).prompts()
    prompts = {step: prompt.version for step, prompt in shipped.items()} | versions
    calls = shipped_metric(name, **parameters, prompts=prompts).planned_calls(case)
    return {call.prompt.step: call for call in calls}


@pytest.mark.parametrize(("name", "step", "version"), FROZEN)
def test_an_earlier_version_asks_what_it_always_asked(name, step, version):
    """Messages and answer schema are the question's key: another hash would ask every stored question again."""
    call = planned(name, **{step: version})[step]
    asked = [call.prompt.render(**call.values), answer_schema(call.answer)]
    assert sha256(canonical_json(asked))[:16] == FROZEN[name, step, version]


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("answer_relevance", ["0.0", "0.25", "0.5", "0.75", "1.0"]),
        ("correctness", ["1", "2", "3", "4", "5"]),
        ("groundedness", ["0", "1", "2", "3", "4", "5"]),
    ],
)
def test_every_point_of_a_scale_is_anchored_once(name, points):
    (*_, call) = planned(name).values()
    text = "\n".join(message["content"] for message in call.prompt.render(**call.values))
    assert sorted(re.findall(r"^(\d(?:\.\d+)?) = \S", text, re.M)) == points


DIRECT = {"reason": "half of it", "addresses_question": True, "on_topic": True}


@pytest.mark.parametrize(
    ("version", "reply", "expected", "completeness"),
    [
        ("v1", DIRECT | {"completeness": 0.5, "score": 0.75}, 0.75, 0.5),
        ("v1", DIRECT | {"score": 0.75}, "error", None),
        ("v1", DIRECT | {"completeness": 1.5, "score": 0.75}, "error", None),
        ("v2", DIRECT | {"score": 0.75}, 0.75, None),
        ("v2", DIRECT | {"completeness": 0.5, "score": 0.75}, 0.75, None),
        ("v2", DIRECT, "error", None),
        ("v2", DIRECT | {"score": 1.25}, "error", None),
    ],
)
def test_answer_relevance_reads_the_form_that_its_template_asks_for(version, reply, expected, completeness):
    """The completeness that version 1 asks for doubles the score: version 2 does not ask for it."""
    metric = shipped_metric("answer_relevance", prompts={"direct": version})
    score = score_of(metric, CASE, ScriptedJudge([reply]))["answer_relevance"]
    assert (score.value if score.status == "ok" else score.status) == expected
    assert (score.details or {}).get("completeness") == completeness
    if score.status == "ok":
        assert score.details["flags"] == []


def test_a_grade_for_an_answer_that_does_not_address_the_question_is_flagged_in_both_forms():
    reply = {"addresses_question": False, "on_topic": True, "completeness": 0.5, "score": 0.5}
    for version in ("v1", "v2"):
        metric = shipped_metric("answer_relevance", prompts={"direct": version})
        score = score_of(metric, CASE, ScriptedJudge([reply]))["answer_relevance"]
        assert (score.value, score.details["flags"]) == (0.5, ["grade_contradicts_findings"])


@pytest.mark.parametrize(("version", "in_the_scale"), [("v1", True), ("v2", True), ("v3", False)])
@pytest.mark.parametrize("required", [True, False])
def test_groundedness_speaks_of_citations_only_where_they_are_required(version, in_the_scale, required):
    """From version 3 on missing citations lower the score once, by the metric's cap, not in the judge's grade too."""
    case = make_case("Paris is the capital [1].", expected={"requires_citations": required})
    text = planned("groundedness", case, grade=version)["grade"]
    message = text.prompt.render(**text.values)[1]["content"]
    scale = "\n".join(re.findall(r"^\d = .*", message, re.M))
    assert ("citation" in scale) == (in_the_scale and required)
    assert ("cited" in message) == (required or version == "v1")
