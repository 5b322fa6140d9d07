"""The questions about answers: earlier versions ask what they always asked; later ones have scales without gaps."""

import pytest

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.judging.heuristic.heuristic_judge import HeuristicJudge
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.prompting.fences import OnOneLine, fence
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.unit.metrics.test_metric_prompts import ASKING, CASE

PARAMETERS = ASKING | {"answer_relevance": {"method": "questions"}}
FROZEN = {
    ("answer_relevance", "questions", "v1"): "2d306969ee487c1a", ("answer_relevance", "direct", "v1"): "e142330cb653ed58",
    ("correctness", "grade", "v1"): "f8b29c778eed34ff", ("contextual_correctness", "grade", "v1"): "50c767782e0974b3",
    ("factual_accuracy", "grade", "v1"): "a496ec1d89c3faab", ("groundedness", "grade", "v1"): "e14bfa79b2a84cd5",
    ("groundedness", "grade", "v2"): "343594175530bfae", ("answer_synthesis", "grade", "v1"): "fd78446c6a72d464",
    ("abstention", "detect", "v1"): "3bad95b26825b553", ("answer_class", "classify", "v1"): "d6b62c1ccd13344a",
    ("nuggets", "nuggetize", "v1"): "c5d076af7075cd67", ("nuggets", "assign", "v1"): "4a4567a7c348c912",
    ("format", "tone", "v1"): "65d2ca66731bcfb2", ("policy_compliance", "examine", "v1"): "4cd946ea58b786df",
    ("recency_conflict", "acknowledge", "v1"): "fd759742f2095025", ("rubric", "grade", "v1"): "c5e403a535c7c3ed",
    ("rejection_calibration", "detect", "v1"): "3bad95b26825b553",
}  # fmt: skip


def planned(name, case=CASE, **versions):
    """The planned questions by step: of the versions by step, and of the shipped ones of all other steps."""
    parameters = PARAMETERS.get(name, {})
    shipped = shipped_metric(name, **parameters).prompts()
    prompts = {step: prompt.version for step, prompt in shipped.items()} | versions
    calls = shipped_metric(name, **parameters, prompts=prompts).planned_calls(case)
    return {call.prompt.step: call for call in calls}


def message(call):
    """What the judge is shown after the preamble."""
    return call.prompt.render(**call.values)[1]["content"]


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


def test_a_grade_for_an_answer_that_does_not_address_the_question_is_flagged_in_both_forms():
    reply = {"addresses_question": False, "on_topic": True, "completeness": 0.5, "score": 0.5}
    for version in ("v1", "v2"):
        metric = shipped_metric("answer_relevance", prompts={"direct": version})
        score = score_of(metric, CASE, ScriptedJudge([reply]))["answer_relevance"]
        assert (score.value, score.details["flags"]) == (0.5, ["grade_contradicts_findings"])


@pytest.mark.parametrize(("version", "confidence"), [("v1", 70), ("v2", None)])
def test_factual_accuracy_follows_from_either_form(version, confidence):
    """The confidence changes nothing: version 2 does not ask for it."""
    grades = {part: {"reasoning": part, "score": 80} for part in ("correctness", "completeness", "consistency")}
    reply = {**grades, "reason": "right", "confidence": 70}
    metric = shipped_metric("factual_accuracy", prompts={"grade": version})
    score = score_of(metric, CASE, ScriptedJudge([reply]))["factual_accuracy"]
    assert (score.value, score.details["grade"], score.details.get("confidence")) == (80.0, "A", confidence)


@pytest.mark.parametrize(
    ("ranks", "newer", "older", "expected"),
    [
        ((1, 2, 3), "2.md", "3.md", [2, 3]),
        ((1, 2, 3), "3.md", "1.md", [3, 1]),
        ((4, 7, 9), "3.md", "2.md", [9, 7]),  # a mark [9] names the context of rank 9
        ((1, 1, 1), "3.md", "2.md", [3, 2]),  # ranks that name no single context: the places
        ((1, 2, 3), "2.md", "2.md", [2, 2]),
    ],
)
def test_sources_that_disagree_keep_the_numbers_of_the_answers_marks(ranks, newer, older, expected):
    texts = ["The fee is 5.", "The fee is 6.", "The fee is 7."]
    chunks = [{"text": t, "rel_path": f"{i}.md", "rank": r} for i, (t, r) in enumerate(zip(texts, ranks, strict=True), 1)]
    anchors = [{"rel_path": newer, "role": "newer"}, {"rel_path": older, "role": "older"}]
    labels = {"anchors": anchors, "recency_conflict_rule": "acknowledge_both", "citations": ["c1", "c2", "c3"]}
    text = message(planned("recency_conflict", make_case("The fee was raised.", chunks=chunks, **labels))["acknowledge"])
    shown = "".join(
        f"{head} sources:\n[{number}]\n{fence(texts[int(path[0]) - 1])}\n\n"
        for head, number, path in zip(("Newer", "Older"), expected, (newer, older), strict=True)
    )
    assert text.startswith(f"{shown}Question:\n")


def test_items_of_a_list_stand_on_one_line():
    """An item with a line break stays between tags on lines of their own."""
    nuggets = shipped_metric("nuggets")
    text = nuggets.assign.render(**nuggets.assign_values(CASE, ["Paris is the capital.", "It has\ntwo million people."]))
    one, two = fence(OnOneLine("Paris is the capital.")), fence("It has\ntwo million people.")
    assert f"Nuggets:\n1. {one}\n2. {two}\n" in text[1]["content"]
    assert one.count("\n") == 0
    rules = [rule for _, rule in shipped_metric("policy_compliance").rules()]
    listed = "".join(f"{i}. {fence(OnOneLine(rule))}\n" for i, rule in enumerate(rules, 1))
    assert f"Rules for answers:\n{listed}\n" in message(planned("policy_compliance")["examine"])
    anchored = shipped_metric("rubric", anchors={"1": "rude", "5": "kind"})
    (call,) = anchored.planned_calls(make_case())
    lines = f"1 = {fence(OnOneLine('rude'))}\n5 = {fence(OnOneLine('kind'))}\n"
    assert f"What the numbers mean:\n{lines}" in message(call)
    case = make_case("Paris.", citations=[{"chunk_id": "c1", "text": "Paris."}], expected={"requires_citations": True})
    cited = f"Citations recorded with the answer:\n{fence(OnOneLine('[1]: Paris.'))}\n"
    assert cited in message(planned("groundedness", case)["grade"])


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


@pytest.mark.parametrize(
    ("name", "step", "versions"), [("groundedness", "grade", ("v1", "v2", "v3")), ("abstention", "detect", ("v1", "v2"))]
)
def test_the_embedded_judge_answers_every_version_alike(name, step, versions):
    judge = HeuristicJudge(HeuristicSettings())
    calls = [planned(name, **{step: version})[step] for version in versions]
    first, *others = [judge.answer(call.prompt, call.answer, call.values) for call in calls]
    assert others == [first] * len(others)
