"""Where a metric's rule ends: what counts as a citation, as a refusal, as an unknown number, as too long."""

import pytest

from ragpipe.cli.command_line import compose
from ragpipe.core.text import list_items
from ragpipe.metrics.recording_judge import questions_of
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric


def test_an_answer_too_long_for_patterns_is_an_error_of_its_case_and_no_question_of_the_plan():
    metric, case = shipped_metric("answer_class"), make_case("x " * 100_001, references=["x"])
    assert questions_of(metric, case) == []
    assert score_of(metric, case)["correct_answers"].reason.startswith("too_long: 200,002 characters")


MARKER = {"chunk_id": "c1", "marker": "1", "text": "The room is large."}
# (answer, the recorded citation, whether the judge is told of it)
TOLD = [
    ("The room is large.", MARKER, True),
    ("It has 10^6 atoms and 1 door.", MARKER, True),
    ("The [large] room (see the plan) has a [link](https://example.org).", MARKER, True),
    ("The room is large [1].", MARKER, False),
    ("The room is large [^2].", {**MARKER, "marker": None}, False),
    ("The room is large [a].", {**MARKER, "marker": "a"}, False),
    ("The room is a large one.", {**MARKER, "marker": "a"}, True),
    ("The room is large (Smith 2020).", {**MARKER, "marker": "(Smith 2020)"}, False),
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
    ("The room is large.", 3, 3), ("The room is 20 m² large.", 3, 3), ("It has 10^6 atoms [sic] and costs (net) 5 euros.", 3, 3),
    ("The room is large [1].", 5, 5), ("The room is large.¹", 5, 5), ("The room is large²", 5, 5),
    ("The room is large (source: plan).", 5, 5), ("The room is large (Smith, 2020).", 5, 3),
    ("According to the plan, the room is large.", 5, 3), ("The room is large: https://example.org/plan", 5, 3),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "said", "unsaid"), CAPPED)
def test_groundedness_caps_a_5_where_nothing_is_cited(answer, said, unsaid):
    for reply, value in ((GRADE | {"major_claims_cited": True}, said), (GRADE, unsaid)):
        case = make_case(answer, expected={"requires_citations": True})
        score = score_of(shipped_metric("groundedness"), case, ScriptedJudge([reply]))["groundedness"]
        assert score.value == value
        assert ("required_citations_missing" in score.details["flags"]) == (value == 3)


def test_groundedness_names_no_context_that_it_does_not_show():
    """Numbers in the prompt are those of the contexts in it; an id that two contexts have names both."""
    chunks = [{"id": "d1", "text": "alpha"}, {"id": "d2", "text": "beta"}, {"id": "d1", "text": "a"}, {"id": "d3", "text": "g"}]
    cited = ["d1", "d3", {"marker": "[9]", "chunk_id": "gone"}]
    case = make_case("Alpha.", chunks=chunks, citations=cited, expected={"requires_citations": True})
    shown = {
        None: ["[1], [3]: the answer as a whole", "[4]: the answer as a whole", "[9]: the answer as a whole"],
        2: ["[1]: the answer as a whole", "a context that is not shown: the answer as a whole", "[9]: the answer as a whole"],
    }
    for top_k, lines in shown.items():
        judge = ScriptedJudge([GRADE])
        score_of(shipped_metric("groundedness", top_k=top_k), case, judge)
        assert judge.asked[0].values["citations"] == lines


REJECT, ANSWER = {"behavior": "reject"}, {"behavior": "answer"}
NO, FIVE = "I cannot answer that.", "The five courses are A, B, C, D and E."
EXCUSE = "I can't answer, my training data ends Oct 2023."
NOTED = "My training data ends in 2023, but the context gives revenue as $81.8 billion."
# (answer, abstained, expected, value, failure mode)
FLAGGED = [
    ("", True, REJECT, 1, None),
    ("", True, ANSWER, 0, "false_rejection"),
    (FIVE, True, REJECT, 1, None),
    (FIVE, True, ANSWER, 0, "false_rejection"),
    (FIVE, False, REJECT, 0, "false_acceptance"),
    (NO, False, ANSWER, 0, "false_rejection"),
    ("My training data ends in 2023.", True, ANSWER, 0, "training_cutoff_excuse"),
    (EXCUSE, None, ANSWER, 0, "training_cutoff_excuse"),
    (EXCUSE, None, REJECT, 1, None),
    (NOTED, None, ANSWER, 1, None),
    (NOTED, None, REJECT, 0, "false_acceptance"),
]


@pytest.mark.parametrize(("answer", "abstained", "expected", "value", "mode"), FLAGGED)
@pytest.mark.parametrize("detector", ["patterns", "judge"])
def test_the_systems_own_flag_is_a_refusal_and_its_absence_overrules_no_text(answer, abstained, expected, value, mode, detector):
    judge = ScriptedJudge(lambda asked: {"declines": answer in (NO, EXCUSE), "training_cutoff": answer in (EXCUSE, NOTED)})
    metric = shipped_metric("rejection_calibration", detector=detector)
    case = make_case(answer, abstained=abstained, expected=expected)
    score = score_of(metric, case, judge)["rejection_calibration"]
    assert (score.value, score.details["failure_mode"]) == (value, mode)
    assert len(judge.asked) == len(questions_of(metric, case))
    assert bool(judge.asked) == (detector == "judge" and not abstained and bool(answer))
    assert not abstained or score.details["detector"] == "flag"


@pytest.mark.parametrize(
    ("said", "written", "expected"), [({}, "medium", "medium"), ({"severity": "none"}, "low", "low"), ({"severity": "high"}, "low", "high")]
)
def test_a_violation_without_a_severity_has_that_of_its_policy(said, written, expected):
    own = {"policy": "no_colours", "severity": written, "rule": "No colours are named.", "patterns": []}
    metric = shipped_metric("policy_compliance", patterns=[own], policies={"no_cats": "No cats."})
    broken = [{"index": i, "evidence": "Red cats.", "reason": "", "violated": True, **said} for i in (1, 2)]
    score = score_of(metric, make_case("Red cats."), ScriptedJudge([{"verdicts": broken}]))["policy_compliance"]
    found = {one["policy"]: one["severity"] for one in score.details["violations"]}
    assert found == {"no_colours": expected, "no_cats": said.get("severity", "none").replace("none", "high")}


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
        metric = compose(["dataset=jsonl", "dataset.path=d.jsonl", "metrics=[rubric]", *words]).metrics["rubric"]
        text = questions_of(metric, case)[0].prompt.render(**metric.values(case))[-1]["content"]
        assert all(part in text for part in shown)
        assert not any(part in text for part in absent)


FIVE_OF_LIST_COMPLETENESS = "Here are five:\n1. Revenue\n2. Margin\n3. Cash\n4. Debt\n5. Outlook\n"
NESTED = "- Revenue\n  - up 4 %\n  - driven by Asia\n- Margin\n\nThat is all."


@pytest.mark.parametrize(("text", "items"), [
    (FIVE_OF_LIST_COMPLETENESS, ["Revenue", "Margin", "Cash", "Debt", "Outlook"]),
    (NESTED, ["Revenue", "Margin"]),
    ("* **Bold** one\n* two", ["Bold one", "two"]),
    ("  1) indented as a whole\n  2) so the outermost level is this one", ["indented as a whole", "so the outermost level is this one"]),
    ("Sales rose by 4 - 5 percent.\n2024 was good.", []),
    ("-5 degrees is no item\n- this is one", ["this is one"]),
    ("", []),
])  # fmt: skip
def test_list_items(text, items):
    assert list_items(text) == items


NEW, OLD = {"rel_path": "new.md", "role": "newer"}, {"rel_path": "old.md", "role": "older"}
NOTES = [{"rel_path": "new.md", "heading_path": "A"}, {"rel_path": "old.md"}, {"rel_path": "other.md"}]
ANCHOR = {"rel_path": "work/plans/q3.md", "heading_path": "Budget"}


def folders(selected, mode="on", anchors=(ANCHOR,), **other):
    return {"folder_mode": mode, "selected_folders": selected, "anchors": list(anchors), **other}


# (metric, what, case, parameters, value or (status, reason))
TABLE = [
    ("scope_miss", "in a selected folder", folders(["work"]), {}, 0),
    ("scope_miss", "in a folder below", folders(["x", "work/plans/"]), {}, 0),
    ("scope_miss", "left out", folders(["home", "work/other"]), {}, 1),
    ("scope_miss", "a piece of a name is no folder", folders(["wor", "work/plan"]), {}, 1),
    ("scope_miss", "one of two gold items is enough", folders(["home"], anchors=[ANCHOR, {"rel_path": "home/a.md"}]), {}, 0),
    ("scope_miss", "nothing selected, falls back", folders([], "on_with_fallback"), {}, 0),
    ("scope_miss", "other spelling", folders([".\\work\\plans"]), {}, 0),
    ("scope_miss", "documents that are paths", folders(["work"], anchors=[], relevant_docs=["work/a.md"]), {}, 0),
    ("scope_miss", "documents that are ids", folders(["work"], anchors=[], relevant_docs=["17"]), {}, ("skipped", "no_gold_paths")),
    ("scope_miss", "mode off", folders(["work"], "off"), {}, ("skipped", "no_folder_mode")),
    ("scope_miss", "not recorded", folders(None), {}, ("skipped", "no_folder_selection_recorded")),
    ("scope_miss", "no labels", {"folder_mode": "on", "selected_folders": ["work"]}, {}, ("skipped", "no_relevance_labels")),
    ("attribution_hit", "cited", {"chunks": NOTES, "anchors": [NEW], "citations": ["c3", "c1"]}, {}, 1),
    ("attribution_hit", "cited nothing", {"chunks": NOTES, "anchors": [NEW], "citations": []}, {}, 0),
    ("attribution_hit", "a dangling citation", {"chunks": NOTES, "anchors": [NEW], "citations": [{"marker": "[7]"}]}, {}, 0),
    ("attribution_hit", "by document", {"chunks": [{"id": "x", "doc_id": "d"}], "relevant_docs": ["d"], "citations": ["x"]}, {}, 1),
    ("attribution_hit", "by a gain of a chunk", {"chunks": [{"id": "x", "doc_id": "d"}], "gains": {"x": 2.0}, "citations": ["x"]}, {}, 1),
    ("attribution_hit", "only groups", {"chunks": NOTES, "required_support_groups": [["c1"]], "citations": ["c1"]}, {}, ("skipped", "no_gold_items")),
    ("attribution_hit", "a mark without an id", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "[2]"}]}, {}, 1),
    ("attribution_hit", "no citation names a chunk", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "see the notes"}]}, {}, ("skipped", "citations_name_no_chunk")),
    ("attribution_hit", "documents before chunks", {"chunks": [{"id": "x", "doc_id": "d"}], "relevant_docs": ["e"], "relevant_chunks": ["x"], "citations": ["x"]}, {}, 0),
    ("attribution_hit", "snippet missing", {"chunks": NOTES, "anchors": [NEW | {"snippets": ["z"]}], "citations": ["c1"]}, {"require_snippet": True}, 0),
    ("attribution_hit", "not recorded", {"chunks": NOTES, "anchors": [NEW]}, {}, ("skipped", "no_citations_recorded")),
    ("attribution_hit", "nothing is relevant", {"chunks": NOTES, "relevant_docs": [], "citations": []}, {}, ("skipped", "no_relevant_items")),
    ("attribution_hit", "no labels", {"chunks": NOTES, "citations": []}, {}, ("skipped", "no_relevance_labels")),
]  # fmt: skip

RULES = [
    ("cite_newer", ["c1"], 1), ("cite_newer", ["c1", "c2"], 1), ("cite_newer", ["c2"], 0), ("cite_newer", [], 0),
    ("cite_both", ["c2", "c1"], 1), ("cite_both", ["c1"], 0), ("cite_both", ["c2", "c3"], 0), ("cite_both", [], 0),
    (None, ["c1"], ("skipped", "no_recency_conflict_rule")),
]  # fmt: skip
CONFLICT = {"chunks": NOTES, "recency_conflict_rule": "cite_both"}
BOTH = CONFLICT | {"anchors": [NEW, OLD]}
TABLE += [
    ("recency_conflict", f"{rule} {cited}", BOTH | {"recency_conflict_rule": rule, "citations": cited}, {}, expected)
    for rule, cited, expected in RULES
]
TABLE += [
    ("recency_conflict", "no roles", CONFLICT | {"anchors": [{"rel_path": "new.md"}], "citations": []}, {}, ("skipped", "no_anchor_with_role_newer_and_older")),
    ("recency_conflict", "no citations", CONFLICT | {"anchors": [NEW, OLD]}, {}, ("skipped", "no_citations_recorded")),
    ("recency_conflict", "heading", CONFLICT | {"anchors": [NEW | {"heading_path": "B"}, OLD], "citations": ["c1", "c2"]}, {}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "parameters", "expected"), [pytest.param(r[0], *r[2:], id=f"{r[0]}: {r[1]}") for r in TABLE])
def test_sources(name, fields, parameters, expected):
    score = score_of(shipped_metric(name, **parameters), make_case(**fields))[name]
    found = (score.status, score.reason) if isinstance(expected, tuple) else score.value
    assert found == expected


@pytest.mark.parametrize(("answer", "has", "found"), [
    (FIVE_OF_LIST_COMPLETENESS, 5, [1.0, 0.0]),  # "10 highlights" of which 5 are known: complete with 5
    (FIVE_OF_LIST_COMPLETENESS, 10, [0.5, 0.0]),
    (FIVE_OF_LIST_COMPLETENESS, 3, [1.0, 2.0]),  # two more than the contexts hold
    (NESTED, 4, [0.5, 0.0]),
    ("Revenue rose.", 5, ["no_list"] * 2),
    (NESTED, None, ["no_item_count"] * 2),
    (NESTED, 0, ["no_items_in_contexts"] * 2),
])  # fmt: skip
def test_list_completeness(answer, has, found):
    scores = score_of(shipped_metric("list_completeness"), make_case(answer=answer, expected={"context_has": has}))
    assert [score.reason if score.value is None else score.value for score in scores.values()] == found
