"""Where a metric's rule ends: what counts as a citation, as a refusal, as an unknown number, as too long."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ragpipe.cli import compose
from ragpipe.metrics.base import run_skip_reason
from ragpipe.patterns.sentences import list_items
from ragpipe.schema.score import Score
from ragpipe.testing.scripted import JudgeQuestion, ScriptedJudge, make_case, score_of, shipped_metric, shipped_names
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
def test_the_systems_own_flag_is_a_refusal_and_its_absence_overrules_no_text(answer, abstained, expected, value, mode, detector):
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
    ("said", "written", "expected"), [({}, "medium", "medium"), ({"severity": "none"}, "low", "low"), ({"severity": "high"}, "low", "high")]
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


# From the worst to the best. A flag or word that says nothing good or bad of the answer or its contexts is in NEUTRAL.
FLAGS: dict[str, list[Any]] = {
    **{name: [False, True] for name in ("supported", "relevant", "addresses_question", "on_topic", "accurate", "cited",
                                        "correct", "kept", "major_claims_cited", "acknowledged", "declines")},
    "violated": [True, False],
}  # fmt: skip
WORDS: list[list[str]] = [
    ["NO", "YES"], ["contradicted", "not_supported", "supported"], ["WRONG", "CORRECT"], ["insufficient", "partial", "sufficient"],
    ["not_support", "partial_support", "support"], ["paraphrase", "direct_quote", "not_used"],
]  # fmt: skip
USED = {"context_utilization": ["not_used", "direct_quote"]}  # of contexts that may be used, which is then the good thing
NEUTRAL = {"training_cutoff", "importance", "severity"}
# What cannot be monotone, because the verdict is no praise of what the score measures: (metric, score, leaf).
BY_DEFINITION = {
    ("context_utilization", "context_utilization", "relevant"): "one more useful chunk that the answer might have used",
    ("noise_sensitivity", "noise_sensitivity_relevant", "relevant"): "the chunk's grade says to which of the two a claim counts",
    ("context_precision", "context_precision", "relevant"): "with method: ranked, a useful chunk at the end is ranked badly",
    ("context_precision", "context_precision_ranked", "relevant"): "a useful chunk at the end is one that is ranked badly",
}  # fmt: skip
ITEMS = ("claims", "nuggets", "citations", "rules", "sources", "contexts")  # what numbered verdicts are about, first wins
PARAMETERS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in shipped_names() if shipped_metric(name).step_names()),
    ("faithfulness", {"steps": "combined"}),
    ("context_recall", {"steps": "combined"}),
    ("chunk_faithfulness", {"exhaustive": True}),
    ("chunk_relevancy", {"exhaustive": True}),
    ("context_precision", {"method": "ranked"}),
    ("groundedness", {"cap_without_citations": 1}),
    ("rubric", {"scale": [-1.5, 2.0], "whole": False, "shows": ["answer", "reference"]}),
]
ASKING = {"rejection_calibration": {"detector": "judge"}, "format": {"wanted_tone": "polite"}}

Address = tuple[str, str, str]


class Replies:
    """Replies to whatever is asked: each leaf is drawn once and kept by step, item and name, so that a verdict on an item
    stays its verdict whatever number the item has in the next question."""

    def __init__(self, draw: Callable[..., Any], orders: dict[str, list[Any]]):
        self.draw = draw
        self.orders = orders
        self.leaves: dict[Address, Any] = {}
        self.worst_to_best: dict[Address, list[Any]] = {}

    def __call__(self, question: JudgeQuestion) -> Any:
        schema = question.payload.schema
        if schema.get("form") == "text":
            about = json.dumps({k: str(v) for k, v in question.values.items() if k != "existing"}, sort_keys=True)
            return self._leaf((question.step, about, "verdict"), {"enum": ["YES", "NO"]})
        return self._object(schema, question, "", "")

    def _object(self, schema: dict[str, Any], question: JudgeQuestion, item: str, path: str) -> dict[str, Any]:
        return {name: self._value(part, question, item, f"{path}{name}")
                for name, part in schema["properties"].items() if name != "index"}  # fmt: skip

    def _value(self, schema: dict[str, Any], question: JudgeQuestion, item: str, path: str) -> Any:
        schema = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)
        if schema.get("type") == "object":
            return self._object(schema, question, item, f"{path}.")
        if schema.get("type") == "array":
            return self._list(schema["items"], question, item, path)
        if schema.get("type") == "string" and "enum" not in schema:
            return item if path in ("claim", "nugget") else ""
        return self._leaf((question.step, item, path), schema)

    def _list(self, schema: dict[str, Any], question: JudgeQuestion, item: str, path: str) -> list[Any]:
        if schema.get("type") == "integer":  # the numbers of contexts that hold an item
            return [i for i in (1, 2) if self._drawn((question.step, item, f"{path}{i}"), st.booleans())]
        if schema.get("type") == "string":
            return ["fact 1", "fact 2", "fact 3"] if path == "claims" else []
        if "index" not in schema["properties"]:
            return [self._object(schema, question, f"fact {i}", "") for i in (1, 2, 3)]
        asked = next(question.values[name] for name in ITEMS if question.values.get(name))
        return [{"index": i, **self._object(schema, question, str(one), "")} for i, one in enumerate(asked, 1)]

    def _leaf(self, address: Address, schema: dict[str, Any]) -> Any:
        name = address[2].split(".")[-1]
        order = self.orders.get(name) or _order(name, schema)
        assert order or name in NEUTRAL, f"say in this file which {name} is the better one, or that neither is"
        if name not in NEUTRAL:
            self.worst_to_best[address] = order
        return self._drawn(address, st.sampled_from(schema.get("enum") or order or [False, True]))

    def _drawn(self, address: Address, values: st.SearchStrategy[Any]) -> Any:
        if address not in self.leaves:
            self.leaves[address] = self.draw(values)
        return self.leaves[address]

    def better(self) -> dict[Address, list[Any]]:
        """What each verdict and grade given so far could be raised to."""
        ranked = {a: (order, self.leaves[a]) for a, order in self.worst_to_best.items()}
        found = {a: order[order.index(value) + 1 :] for a, (order, value) in ranked.items() if value in order}
        return {address: values for address, values in found.items() if values}


def _order(name: str, schema: dict[str, Any]) -> list[Any] | None:
    """All values from the worst to the best; nine steps of a grade that need not be whole. None: nobody says."""
    if "minimum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        return list(range(low, high + 1)) if schema["type"] == "integer" else [low + (high - low) * i / 8 for i in range(9)]
    words = schema.get("enum")
    return FLAGS.get(name) if words is None else next((some for some in WORDS if set(some) == set(words)), None)


def scores(name: str, parameters: dict[str, Any], case: Any, replies: Replies) -> dict[str, Score]:
    metric = shipped_metric(name, **ASKING.get(name, {}), **parameters)
    return score_of(metric, case, ScriptedJudge(replies))


@st.composite
def cases(draw: Any) -> Any:
    """A case with every label, so that every metric asks; its answer cites, by marks or beside it, or does not."""
    chunks = [
        {"id": f"c{i}", "text": f"passage {i}", "rel_path": f"{i}.md", "policy": "quote_only"}
        for i in range(1, draw(st.integers(2, 4)) + 1)
    ]
    expected = {"behavior": "reject", "requires_citations": draw(st.sampled_from([None, False, True]))}
    return make_case(
        draw(st.sampled_from(["Alpha is one thing. Beta is another.", "Alpha is one thing [1]. Beta is another."])),
        chunks=chunks, references=["Alpha and beta."], answerable=False, recency_conflict_rule="acknowledge_both",
        anchors=[{"rel_path": "1.md", "role": "newer"}, {"rel_path": "2.md", "role": "older"}],
        citations=draw(st.sampled_from([["c1", "c2"], ["c1", "c2", "lost"]])), expected=expected,
    )  # fmt: skip


@pytest.mark.thorough(tried=8)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), PARAMETERS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(case=cases(), data=st.data())
def test_no_score_gets_worse_when_one_verdict_gets_better(name, parameters, case, data):
    replies = Replies(data.draw, {"use": USED[name]} if name in USED else {})
    before = scores(name, parameters, case, replies)
    assert replies.worst_to_best or before[name].reason == "citations_not_required", "it asks, and no reply holds a verdict"
    better = replies.better()
    assume(better)
    address = data.draw(st.sampled_from(sorted(better)))
    replies.leaves[address] = data.draw(st.sampled_from(better[address]))
    after = scores(name, parameters, case, replies)
    specs = {spec.name: spec for spec in shipped_metric(name, **ASKING.get(name, {}), **parameters).scores()}
    for score_name, spec in specs.items():
        old, new = before[score_name].value, after[score_name].value
        if old is None or new is None or (name, score_name, address[2].split(".")[-1]) in BY_DEFINITION:
            continue
        gain = new - old if spec.higher_is_better else old - new
        assert gain >= -1e-9, f"{score_name} {old} -> {new} when {address} rose to {replies.leaves[address]!r}"


FIVE_OF_LIST_COMPLETENESS = "Here are five:\n1. Revenue\n2. Margin\n3. Cash\n4. Debt\n5. Outlook\n"
NESTED = "- Revenue\n  - up 4 %\n  - driven by Asia\n- Margin\n\nThat is all."


@pytest.mark.parametrize(("text", "items"), [
    (FIVE_OF_LIST_COMPLETENESS, ["Revenue", "Margin", "Cash", "Debt", "Outlook"]),
    (NESTED, ["Revenue", "Margin"]),
    ("* **Bold** one\n* two", ["Bold one", "two"]),
    ("(1) one\n(2) two", ["one", "two"]),
    ("  1) indented as a whole\n  2) so the outermost level is this one", ["indented as a whole", "so the outermost level is this one"]),
    ("Sales rose by 4 - 5 percent.\n2024 was good.", []),
    ("-5 degrees is no item\n- this is one", ["this is one"]),
    ("", []),
])  # fmt: skip
def test_list_items(text: str, items: list[str]) -> None:
    assert list_items(text) == items


@pytest.mark.parametrize(
    ("answer", "has", "values"),
    [
        (FIVE_OF_LIST_COMPLETENESS, 5, (1.0, 0.0)),  # "10 highlights" of which 5 are known: complete with 5
        (FIVE_OF_LIST_COMPLETENESS, 10, (0.5, 0.0)),
        (FIVE_OF_LIST_COMPLETENESS, 3, (1.0, 2.0)),  # two more than the contexts hold
        (NESTED, 4, (0.5, 0.0)),
    ],
)
def test_values(answer: str, has: int, values: tuple[float, float]) -> None:
    metric = shipped_metric("list_completeness")
    case = make_case(answer=answer, expected={"context_has": has})
    assert run_skip_reason(metric, case, embedder=False) is None
    (scores,) = metric.compute([case])  # type: ignore[attr-defined]
    assert tuple(score.value for score in scores) == values


@pytest.mark.parametrize(("expected", "reason"), [({}, "no_item_count"), ({"context_has": 0}, "no_items_in_contexts")])
def test_without_a_label_it_does_not_apply(expected: dict[str, int], reason: str) -> None:
    assert (
        run_skip_reason(shipped_metric("list_completeness"), make_case(answer=FIVE_OF_LIST_COMPLETENESS, expected=expected), embedder=False)
        == reason
    )


def test_an_answer_without_a_list_is_not_counted() -> None:
    (scores,) = shipped_metric("list_completeness").compute([make_case(answer="Revenue rose.", expected={"context_has": 5})])  # type: ignore[attr-defined]
    assert {(score.status, score.reason) for score in scores} == {("skipped", "no_list")}


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
    ("scope_miss", "nothing selected", folders([]), {}, 1),
    ("scope_miss", "nothing selected, falls back", folders([], "on_with_fallback"), {}, 0),
    ("scope_miss", "left out, although it may fall back", folders(["home"], "on_with_fallback"), {}, 1),
    ("scope_miss", "the root", folders(["/"]), {}, 0),
    ("scope_miss", "this folder", folders(["."]), {}, 0),
    ("scope_miss", "other spelling", folders([".\\work\\plans"]), {}, 0),
    ("scope_miss", "documents that are paths", folders(["work"], anchors=[], relevant_docs=["work/a.md"]), {}, 0),
    ("scope_miss", "documents that are ids", folders(["work"], anchors=[], relevant_docs=["17"]), {}, ("skipped", "no_gold_paths")),
    ("scope_miss", "mode off", folders(["work"], "off"), {}, ("skipped", "no_folder_mode")),
    ("scope_miss", "no mode", folders(["work"], None), {}, ("skipped", "no_folder_mode")),
    ("scope_miss", "not recorded", folders(None), {}, ("skipped", "no_folder_selection_recorded")),
    ("scope_miss", "no labels", {"folder_mode": "on", "selected_folders": ["work"]}, {}, ("skipped", "no_relevance_labels")),
    ("attribution_hit", "cited", {"chunks": NOTES, "anchors": [NEW], "citations": ["c3", "c1"]}, {}, 1),
    ("attribution_hit", "cited something else", {"chunks": NOTES, "anchors": [NEW], "citations": ["c3"]}, {}, 0),
    ("attribution_hit", "cited nothing", {"chunks": NOTES, "anchors": [NEW], "citations": []}, {}, 0),
    ("attribution_hit", "a dangling citation", {"chunks": NOTES, "anchors": [NEW], "citations": [{"marker": "[7]"}]}, {}, 0),
    ("attribution_hit", "by document", {"chunks": [{"id": "x", "doc_id": "d"}], "relevant_docs": ["d"], "citations": ["x"]}, {}, 1),
    ("attribution_hit", "by path", {"chunks": [{"id": "x", "rel_path": "a.md"}], "relevant_docs": ["a.md"], "citations": ["x"]}, {}, 1),
    ("attribution_hit", "by a gain of a chunk", {"chunks": [{"id": "x", "doc_id": "d"}], "gains": {"x": 2.0}, "citations": ["x"]}, {}, 1),
    ("attribution_hit", "only groups", {"chunks": NOTES, "required_support_groups": [["c1"]], "citations": ["c1"]}, {}, ("skipped", "no_gold_items")),
    ("attribution_hit", "by chunk", {"chunks": [{"id": "x"}], "relevant_chunks": ["x"], "citations": ["x"]}, {}, 1),
    ("attribution_hit", "a gold id that was not retrieved", {"chunks": NOTES, "relevant_chunks": ["x"], "citations": ["x"]}, {}, 0),
    ("attribution_hit", "a mark without an id", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "[2]"}]}, {}, 1),
    ("attribution_hit", "a mark of another rank", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "[1]"}]}, {}, 0),
    ("attribution_hit", "a mark beyond the ranks", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "[99]"}]}, {}, 0),
    ("attribution_hit", "no citation names a chunk", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "see the notes"}]}, {}, ("skipped", "citations_name_no_chunk")),
    ("attribution_hit", "documents before chunks", {"chunks": [{"id": "x", "doc_id": "d"}], "relevant_docs": ["e"], "relevant_chunks": ["x"], "citations": ["x"]}, {}, 0),
    ("attribution_hit", "chunks before documents", {"chunks": [{"id": "x", "doc_id": "d"}], "relevant_docs": ["e"], "relevant_chunks": ["x"], "citations": ["x"]}, {"unit": "chunk"}, 1),
    ("attribution_hit", "snippet missing", {"chunks": NOTES, "anchors": [NEW | {"snippets": ["z"]}], "citations": ["c1"]}, {"require_snippet": True}, 0),
    ("attribution_hit", "not recorded", {"chunks": NOTES, "anchors": [NEW]}, {}, ("skipped", "no_citations_recorded")),
    ("attribution_hit", "not answerable", {"chunks": NOTES, "anchors": [NEW], "citations": [], "answerable": False}, {}, ("skipped", "not_answerable")),
    ("attribution_hit", "nothing is relevant", {"chunks": NOTES, "relevant_docs": [], "citations": []}, {}, ("skipped", "no_relevant_items")),
    ("attribution_hit", "no labels", {"chunks": NOTES, "citations": []}, {}, ("skipped", "no_relevance_labels")),
]  # fmt: skip

RULES = [
    ("cite_newer", ["c1"], 1), ("cite_newer", ["c1", "c2"], 1), ("cite_newer", ["c2"], 0), ("cite_newer", [], 0),
    ("cite_both", ["c2", "c1"], 1), ("cite_both", ["c1"], 0), ("cite_both", ["c2", "c3"], 0), ("cite_both", [], 0),
    (None, ["c1"], ("skipped", "no_recency_conflict_rule")),
]  # fmt: skip
TABLE += [
    (
        "recency_conflict",
        f"{rule} {cited}",
        {"chunks": NOTES, "anchors": [NEW, OLD], "recency_conflict_rule": rule, "citations": cited},
        {},
        expected,
    )
    for rule, cited, expected in RULES
]
CONFLICT = {"chunks": NOTES, "recency_conflict_rule": "cite_both"}
TABLE += [
    ("recency_conflict", "no roles", CONFLICT | {"anchors": [{"rel_path": "new.md"}], "citations": []}, {}, ("skipped", "no_anchor_with_role_newer_and_older")),
    ("recency_conflict", "one role", CONFLICT | {"anchors": [NEW], "citations": []}, {}, ("skipped", "no_anchor_with_role_older")),
    ("recency_conflict", "no citations", CONFLICT | {"anchors": [NEW, OLD]}, {}, ("skipped", "no_citations_recorded")),
    ("recency_conflict", "heading", CONFLICT | {"anchors": [NEW | {"heading_path": "B"}, OLD], "citations": ["c1", "c2"]}, {}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "parameters", "expected"), [pytest.param(r[0], *r[2:], id=f"{r[0]}: {r[1]}") for r in TABLE])
def test_sources(name, fields, parameters, expected):
    score = score_of(shipped_metric(name, **parameters), make_case(**fields))[name]
    found = (score.status, score.reason) if isinstance(expected, tuple) else score.value
    assert found == expected
