"""The questions about answers: earlier versions ask what they always asked; later ones have scales without gaps."""

import pytest

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.fences import fence
from ragpipe.judge.answer_type import answer_schema
from ragpipe.metrics.recording_judge import questions_of
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.unit.metrics.test_metric_prompts import ASKING, CASE

FROZEN = {
    ("answer_relevance", "questions", "v1"): "2d306969ee487c1a", ("answer_relevance", "direct", "v1"): "e142330cb653ed58",
    ("correctness", "grade", "v1"): "f8b29c778eed34ff", ("contextual_correctness", "grade", "v1"): "50c767782e0974b3",
    ("factual_accuracy", "grade", "v1"): "a496ec1d89c3faab", ("groundedness", "grade", "v1"): "e14bfa79b2a84cd5",
    ("groundedness", "grade", "v2"): "343594175530bfae", ("groundedness", "grade", "v3"): "3e3bd20ac80eaee2", ("answer_synthesis", "grade", "v1"): "fd78446c6a72d464",
    ("abstention", "detect", "v1"): "3bad95b26825b553", ("answer_class", "classify", "v1"): "d6b62c1ccd13344a",
    ("nuggets", "nuggetize", "v1"): "c5d076af7075cd67", ("nuggets", "assign", "v1"): "dd4855af661ffe36",
    ("format", "tone", "v1"): "65d2ca66731bcfb2", ("policy_compliance", "examine", "v1"): "4cd946ea58b786df",
    ("recency_conflict", "acknowledge", "v1"): "fd759742f2095025", ("rubric", "grade", "v1"): "c5e403a535c7c3ed",
    ("rejection_calibration", "detect", "v1"): "3bad95b26825b553",
}  # fmt: skip


def planned(name, case=CASE, **versions):
    """The questions by step: of the versions by step, and of the shipped ones of all other steps."""
    parameters = {"method": "questions"} if "questions" in versions else ASKING.get(name, {})
    shipped = shipped_metric(name, **parameters).prompts()
    prompts = {step: prompt.version for step, prompt in shipped.items()} | versions
    calls = questions_of(shipped_metric(name, **parameters, prompts=prompts), case)
    return {call.prompt.step: call for call in calls}


@pytest.mark.parametrize(("name", "step", "version"), FROZEN)
def test_an_earlier_version_asks_what_it_always_asked(name, step, version):
    """Messages and answer schema are the question's key: another hash would ask every stored question again."""
    call = planned(name, **{step: version})[step]
    asked = [call.prompt.render(**call.values), answer_schema(call.answer)]
    assert sha256(canonical_json(asked))[:16] == FROZEN[name, step, version]


DIRECT = {"reason": "half of it", "addresses_question": True, "on_topic": True}


@pytest.mark.parametrize(
    ("version", "reply", "expected", "completeness"),
    [
        ("v1", DIRECT | {"completeness": 0.5, "score": 0.75}, 0.75, 0.5), ("v1", DIRECT | {"score": 0.75}, "error", None),
        ("v1", DIRECT | {"completeness": 1.5, "score": 0.75}, "error", None), ("v2", DIRECT | {"score": 0.75}, 0.75, None),
        ("v2", DIRECT | {"completeness": 0.5, "score": 0.75}, 0.75, None), ("v2", DIRECT, "error", None),
        ("v2", DIRECT | {"score": 1.25}, "error", None),
    ],
)  # fmt: skip
def test_answer_relevance_reads_the_form_that_its_template_asks_for(version, reply, expected, completeness):
    """The completeness that version 1 asks for doubles the score: version 2 does not ask for it."""
    metric = shipped_metric("answer_relevance", prompts={"direct": version})
    score = score_of(metric, CASE, ScriptedJudge([reply]))["answer_relevance"]
    assert (score.value if score.status == "ok" else score.status) == expected
    assert (score.details or {}).get("completeness") == completeness
    if score.status == "ok":
        assert score.details["flags"] == []


@pytest.mark.parametrize(("told", "expected"), [("support", 1.0), ("partial_support", 0.0), ("not_support", 0.0)])
def test_a_reference_that_declines_is_one_vital_nugget(told, expected):
    """A refusal that gives the reason earns all, one without it half of the lenient scores, an answer that claims to know nothing."""
    case = make_case("I cannot say.", references=["The documents do not give the fee."])
    nugget = "It cannot be answered: the documents do not give the fee"
    judge = ScriptedJudge([{"nuggets": [{"nugget": nugget, "importance": "vital"}]}, {"verdicts": [{"index": 1, "support": told}]}])
    scores = score_of(shipped_metric("nuggets"), case, judge)
    assert scores["nuggets"].value == expected
    assert scores["nuggets_vital"].value == {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}[told]
    assert "there is one nugget, and it is vital" in judge.asked[0].user


def test_sources_that_disagree_keep_the_numbers_of_the_answers_marks():
    """A mark [9] names the context of rank 9."""
    chunks = [{"text": f"The fee is {n}.", "rel_path": f"{n}.md", "rank": n} for n in (4, 7, 9)]
    anchors = [{"rel_path": "9.md", "role": "newer"}, {"rel_path": "7.md", "role": "older"}]
    labels = {"anchors": anchors, "recency_conflict_rule": "acknowledge_both", "citations": ["c1", "c2", "c3"]}
    call = planned("recency_conflict", make_case("The fee was raised.", chunks=chunks, **labels))["acknowledge"]
    newer, older = fence("The fee is 9."), fence("The fee is 7.")
    shown = f"Newer sources:\n[9]\n{newer}\n\nOlder sources:\n[7]\n{older}\n\nQuestion:\n"
    assert call.prompt.render(**call.values)[1]["content"].startswith(shown)
