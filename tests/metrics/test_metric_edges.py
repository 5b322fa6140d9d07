"""Where a metric's rule ends: what counts as a citation, as a refusal, as an unknown number, as too long."""

from __future__ import annotations

import pytest
from scripted import ScriptedJudge, make_case, score_of, shipped_metric


def test_an_answer_too_long_for_patterns_is_an_error_of_its_case_and_no_question_of_the_plan():
    metric, case = shipped_metric("answer_class"), make_case("x " * 100_001, references=["x"])
    assert list(metric.asks(case)) == []
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
    case = make_case(answer, chunks=["The room is large."], citations=[citation])
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
        score = score_of(shipped_metric("groundedness"), make_case(answer), ScriptedJudge([reply]))["groundedness"]
        assert score.value == value
        assert ("capped_without_citations" in score.details["flags"]) == (value == 3)


def test_groundedness_names_no_context_that_it_does_not_show():
    """Numbers in the prompt are those of the contexts in it; an id that two contexts have names both."""
    chunks = [
        {"id": "d1", "text": "alpha"},
        {"id": "d2", "text": "beta"},
        {"id": "d1", "text": "a"},
        {"id": "d3", "text": "g"},
    ]
    case = make_case("Alpha.", chunks=chunks, citations=["d1", "d3", {"marker": "[9]", "chunk_id": "gone"}])
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
