"""Where a metric's rule ends: what counts as a citation, as a refusal, as an unknown number, as too long."""

import pytest

from ragpipe.cli import compose
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.claim_verdicts import in_both_forms


def test_an_answer_too_long_for_patterns_is_an_error_of_its_case_and_no_question_of_the_plan():
    metric, case = shipped_metric("answer_class"), make_case("x " * 100_001, references=["x"])
    assert list(metric.planned_calls(case)) == []
    assert score_of(metric, case)["correct_answers"].reason.startswith("too_long: 200,002 characters")


MARKER = {"chunk_id": "c1", "marker": "1", "text": "The room is large."}
# (answer, the recorded citation, whether the judge is told of it)
TOLD = [
    ("The room is large.", MARKER, True),
    ("The room is 20 m² large [sic].", MARKER, True),
    ("It has 10^6 atoms and 1 door.", MARKER, True),
    ("The [large] room (see the plan) has a [link](https://example.org).", MARKER, True),
    ("The room is large [1].", MARKER, False),
    ("The room is large [1, 3].", {**MARKER, "marker": None}, False),
    ("The room is large [^2].", {**MARKER, "marker": None}, False),
    ("The room is large [a].", {**MARKER, "marker": "a"}, False),
    ("The room is a large one.", {**MARKER, "marker": "a"}, True),
    ("The room is large (Smith 2020).", {**MARKER, "marker": "(Smith 2020)"}, False),
    ("The room is large, by doc-1.", {**MARKER, "marker": "doc-1"}, False),
    ("The room is large, by doc-12.", {**MARKER, "marker": "doc-1"}, True),
    ("The room is large.²", {**MARKER, "marker": "²"}, False),
]


@pytest.mark.parametrize(("answer", "citation", "told"), TOLD)
def test_groundedness_tells_of_recorded_citations_that_the_text_does_not_show(answer, citation, told):
    required = {"requires_citations": True}
    case = make_case(answer, chunks=["The room is large."], citations=[citation], expected=required)
    judge = ScriptedJudge([GRADE])
    score_of(shipped_metric("groundedness"), case, judge)
    assert ("Citations recorded with the answer" in judge.asked[0].user) == told
    assert judge.asked[0].values.get("citations") == (["[1]: The room is large."] if told else None)


GRADE = {"supported_claims": ["x"], "unsupported_claims": [], "reason": "", "score": 5}
# (answer, the value where the judge says that the claims are cited, the value where it does not say)
CAPPED = [
    ("The room is large.", 3, 3),
    ("The room is 20 m² large.", 3, 3),
    ("It has 10^6 atoms [sic] and costs (net) 5 euros.", 3, 3),
    ("The room is large [1].", 5, 5),
    ("The room is large.¹", 5, 5),
    ("The room is large²", 5, 5),
    ("The room is large (source: plan).", 5, 5),
    ("The room is large (Smith, 2020).", 5, 3),
    ("According to the plan, the room is large.", 5, 3),
    ("The room is large: https://example.org/plan", 5, 3),
]


@pytest.mark.parametrize(("answer", "said", "unsaid"), CAPPED)
def test_groundedness_caps_a_5_where_nothing_is_cited(answer, said, unsaid):
    for reply, value in ((GRADE | {"major_claims_cited": True}, said), (GRADE, unsaid)):
        case = make_case(answer, expected={"requires_citations": True})
        score = score_of(shipped_metric("groundedness"), case, ScriptedJudge([reply]))["groundedness"]
        assert score.value == value
        assert ("required_citations_missing" in score.details["flags"]) == (value == 3)


def test_groundedness_names_no_context_that_it_does_not_show():
    """Numbers in the prompt are those of the contexts in it; an id that two contexts have names both."""
    chunks = [
        {"id": "d1", "text": "alpha"},
        {"id": "d2", "text": "beta"},
        {"id": "d1", "text": "a"},
        {"id": "d3", "text": "g"},
    ]
    cited = ["d1", "d3", {"marker": "[9]", "chunk_id": "gone"}]
    case = make_case("Alpha.", chunks=chunks, citations=cited, expected={"requires_citations": True})
    shown = {
        None: ["[1], [3]: the answer as a whole", "[4]: the answer as a whole", "[9]: the answer as a whole"],
        2: [
            "[1]: the answer as a whole",
            "a context that is not shown: the answer as a whole",
            "[9]: the answer as a whole",
        ],
    }
    for top_k, lines in shown.items():
        judge = ScriptedJudge([GRADE])
        score_of(shipped_metric("groundedness", top_k=top_k), case, judge)
        assert judge.asked[0].values["citations"] == lines


REJECT, ANSWER = {"behavior": "reject"}, {"behavior": "answer"}
NO, FIVE = "I cannot answer that.", "The five courses are A, B, C, D and E."
# (answer, abstained, expected, value, failure mode)
FLAGGED = [
    ("", True, REJECT, 1, None),
    ("...", True, REJECT, 1, None),
    ("", True, ANSWER, 0, "false_rejection"),
    (FIVE, True, REJECT, 1, None),
    (FIVE, True, ANSWER, 0, "false_rejection"),
    (FIVE, False, REJECT, 0, "false_acceptance"),
    (NO, False, REJECT, 1, None),
    (NO, False, ANSWER, 0, "false_rejection"),
    ("", False, REJECT, 0, None),
    ("My training data ends in 2023.", True, ANSWER, 0, "training_cutoff_excuse"),
]


@pytest.mark.parametrize(("answer", "abstained", "expected", "value", "mode"), FLAGGED)
@pytest.mark.parametrize("detector", ["patterns", "judge"])
def test_the_systems_own_flag_is_a_refusal_and_its_absence_overrules_no_text(
    answer, abstained, expected, value, mode, detector
):
    judge = ScriptedJudge(lambda asked: {"declines": answer == NO, "training_cutoff": False})
    metric = shipped_metric("rejection_calibration", detector=detector)
    case = make_case(answer, abstained=abstained, expected=expected)
    score = score_of(metric, case, judge)["rejection_calibration"]
    assert (score.value, score.details["failure_mode"]) == (value, mode)
    assert len(judge.asked) == sum(ask.times for ask in metric.planned_calls(case))
    assert bool(judge.asked) == (detector == "judge" and not abstained and bool(answer))
    assert not abstained or score.details["detector"] == "flag"


def test_relevance_by_questions_plans_the_grade_that_it_falls_back_to():
    metric, case = shipped_metric("answer_relevance", method="questions"), make_case()
    direct = {"addresses_question": False, "on_topic": True, "completeness": 0, "score": 0}
    judge = ScriptedJudge([{"questions": []}, direct], vectors={})
    score_of(metric, case, judge)
    assert [ask.prompt.step for ask in metric.planned_calls(case)] == judge.steps == ["questions", "direct"]


def test_null_in_place_of_an_optional_quote_is_none():
    reply = {"verdicts": [{"index": 1, "evidence": None, "reason": ""} | in_both_forms(False)]}
    judge = ScriptedJudge([{"claims": ["Paris is in France."]}, reply])
    score = score_of(shipped_metric("faithfulness"), make_case(), judge)["faithfulness"]
    assert (score.value, score.details["claims"][0]["evidence"]) == (0, [])
    judge = ScriptedJudge([{"claims": ["a"]}, {"verdicts": [{"index": 1, "supported": None}]}])
    assert score_of(shipped_metric("faithfulness"), make_case(), judge)["faithfulness"].status == "error"


@pytest.mark.parametrize(
    ("said", "written", "expected"),
    [({}, "medium", "medium"), ({"severity": "none"}, "low", "low"), ({"severity": "high"}, "low", "high")],
)
def test_a_violation_without_a_severity_has_that_of_its_policy(said, written, expected):
    own = {"policy": "no_colours", "severity": written, "rule": "No colours are named.", "patterns": []}
    metric = shipped_metric("policy_compliance", patterns=[own], policies={"no_cats": "No cats."})
    broken = [{"index": i, "evidence": "Red cats.", "reason": "", "violated": True, **said} for i in (1, 2)]
    score = score_of(metric, make_case("Red cats."), ScriptedJudge([{"verdicts": broken}]))["policy_compliance"]
    found = {one["policy"]: one["severity"] for one in score.details["violations"]}
    assert found == {"no_colours": expected, "no_cats": said.get("severity", "none").replace("none", "high")}


def test_a_quote_of_a_source_that_may_not_be_used_is_no_quote_that_was_asked_for():
    secret = {"text": "Profits doubled in the last quarter of the year.", "policy": "no_use"}
    case = make_case('It said "profits doubled in the last quarter".', chunks=[secret], expected={"must_quote": True})
    score = score_of(shipped_metric("must_quote"), case)["must_quote"]
    assert (score.value, score.reason) == (0, "no_quote_only_chunk_retrieved")


def test_acknowledging_both_needs_the_older_note_cited_too():
    case = make_case(
        "The fee was 45 euros and is now 60 euros.",
        chunks=[{"rel_path": "new.md", "text": "60 euros"}, {"rel_path": "old.md", "text": "45 euros"}],
        anchors=[{"rel_path": "new.md", "role": "newer"}, {"rel_path": "old.md", "role": "older"}],
        citations=["c1"],
        recency_conflict_rule="acknowledge_both",
    )
    judge = ScriptedJudge([])
    score = score_of(shipped_metric("recency_conflict"), case, judge)["recency_conflict"]
    assert (score.value, score.reason, judge.asked) == (0, "not cited: older", [])


def composed(name, *words):
    """The metric as a run gets it, through the composition of files and command line."""
    return compose(["dataset=jsonl", "dataset.path=d.jsonl", f"metrics=[{name}]", *words]).metrics[name]


@pytest.mark.slow
def test_what_stands_for_the_shipped_rubric_goes_with_its_criteria():
    case, means = make_case(), "cannot be understood"
    for words, shown, absent in (
        ([], [means], ["rude"]),
        (["metrics.rubric.criteria='Tact.'"], [], [means, "What the numbers"]),
        (["metrics.rubric.criteria=Tact", "metrics.rubric.anchors={2: rude}"], ["2 = <", "> rude </"], [means]),
        (["metrics.rubric.anchors={2: rude}"], ["2 = <", "> rude </"], [means]),
        (["metrics.rubric.scale=[0,10]"], [], [means]),
    ):
        metric = composed("rubric", *words)
        text = next(iter(metric.planned_calls(case))).prompt.render(**metric.values(case))[-1]["content"]
        assert all(part in text for part in shown)
        assert not any(part in text for part in absent)


@pytest.mark.slow
def test_another_length_takes_the_place_of_the_shipped_one():
    metric = composed("format", "metrics.format.length={sentences: [1, 3]}")
    assert score_of(metric, make_case("word " * 400))["format"].value == 1
    assert score_of(metric, make_case("It rains. It snows. It hails. It pours."))["format"].value == 0
