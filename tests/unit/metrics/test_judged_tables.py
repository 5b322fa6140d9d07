"""The later judge metrics by tables: a case, the judge's replies, and the scores that must come of them."""

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.unit.metrics.test_metric_answers import claims

BARE = {"chunks": ["alpha", "beta", "gamma"], "answer": "The tower is tall. It is red.", "references": ["It is tall."]}
MUTE = BARE | {"answer": " "}
EMPTY = BARE | {"chunks": []}
LOST = BARE | {"references": []}


def rows(key, *found):
    """Verdicts numbered from 1 under a metric's own key."""
    return {"verdicts": [{"index": i, key: one} for i, one in enumerate(found, 1)]}


def useful(*found):
    return {"verdicts": [{"index": i, "relevant": one, "relevance": 50} for i, one in enumerate(found, 1)]}


def some(key, **found):
    """Verdicts under given numbers: i2=True."""
    return {"verdicts": [{"index": int(name[1:]), key: one} for name, one in found.items()]}


def accuracy(correct, complete, consistent, **other):
    parts = {"correctness": correct, "completeness": complete, "consistency": consistent}
    return {name: {"reasoning": name, "score": score} for name, score in parts.items()} | other


def nuggets(*found):
    """vital: v..., okay: any other first letter"""
    return {"nuggets": [{"nugget": n, "importance": "vital" if n[0] == "v" else "okay"} for n in found]}


USED, NOT = "paraphrase", "not_used"
S, P, N = "support", "partial_support", "not_support"
FIVE = nuggets("v1", "v2", "o1", "v3", "o2")  # put in order: v1 v2 v3 o1 o2

# metric -> (what, case, parameters, replies, values in order | status, number of questions)
TABLES = {
    "context_utilization": [
        ("all used", BARE, {}, [useful(True, False, True), some("use", i1=USED, i3="direct_quote")], [1.0], 2),
        ("half used", BARE, {}, [useful(True, False, True), some("use", i1=USED, i3=NOT)], [0.5], 2),
        ("none used", BARE, {}, [useful(True, True, True), rows("use", NOT, NOT, NOT)], [0.0], 2),
        ("nothing useful", BARE, {}, [useful(False, False, False)], "skipped", 1),
        ("one a call", BARE, {"batch": 1}, [useful(True, True, False), rows("use", USED), some("use", i2=NOT)], [0.5], 3),
        ("no contexts", EMPTY, {}, [], "skipped", 0),
        ("no answer", MUTE, {}, [], "skipped", 0),
        ("a grade missing twice", BARE, {}, [useful(True), useful(True)], "error", 2),
        ("its place is not its number", BARE, {}, [useful(False, False, True), some("use", i1=USED), some("use", i3=USED)], [1.0], 3),
    ],
    "noise_sensitivity": [
        ("all right", BARE, {}, [claims("a", "b"), rows("correct", True, True)], [0.0, 0.0], 2),
        ("from a relevant chunk", BARE, {}, [claims("a", "b", "c", "d"), rows("correct", True, False, True, True), useful(True, False, False), rows("contexts", [1])], [0.25, 0.0], 4),
        ("from an irrelevant one", BARE, {}, [claims("a", "b"), rows("correct", True, False), useful(True, False, False), rows("contexts", [2, 3])], [0.0, 0.5], 4),
        ("in both: relevant", BARE, {}, [claims("a", "b"), rows("correct", False, True), useful(True, False, False), rows("contexts", [1, 2])], [0.5, 0.0], 4),
        ("made up", BARE, {}, [claims("a"), rows("correct", False), useful(True, False, False), rows("contexts", [])], [0.0, 0.0], 4),
        ("one of each", BARE, {}, [claims("a", "b", "c", "d"), rows("correct", False, False, False, True), useful(True, False, False), rows("contexts", [1], [2], [])], [0.25, 0.25], 4),
        ("one claim a call", BARE, {"batch": 1}, [claims("a", "b"), rows("correct", True), rows("correct", False), useful(True, False, False), rows("contexts", [1])], [0.5, 0.0], 5),
        ("no claims", BARE, {}, [claims()], "skipped", 1),
        ("no contexts", EMPTY, {}, [], "skipped", 0),
        ("no reference", LOST, {}, [], "skipped", 0),
        ("no answer", MUTE, {}, [], "skipped", 0),
        ("a context that is not there twice", BARE, {}, [claims("a"), rows("correct", False), useful(True, False, False), rows("contexts", [4]), rows("contexts", [0])], "error", 5),
        ("a context that is not there: asked again", BARE, {}, [claims("a"), rows("correct", False), useful(True, False, False), rows("contexts", [0]), rows("contexts", [1])], [1.0, 0.0], 5),
        ("only what was traced to nowhere is asked again", BARE, {}, [claims("a", "b"), rows("correct", False, False), useful(True, False, False), rows("contexts", [2], [4]), rows("contexts", [1])], [0.5, 0.5], 5),
    ],
    "factual_accuracy": [
        ("worked sum", BARE, {}, [accuracy(90, 80, 100)], [89.0, 90, 80, 100], 1),  # 45 + 24 + 20
        ("the model's own sum is ignored", BARE, {}, [accuracy(90, 80, 100, final_score=12)], [89.0, 90, 80, 100], 1),
        ("80 is 80", BARE, {}, [accuracy(80, 80, 80)], [80.0, 80, 80, 80], 1),
        ("nothing right", BARE, {}, [accuracy(0, 0, 0)], [0.0, 0, 0, 0], 1),
        ("other weights", BARE, {"weights": {"correctness": 1.0, "completeness": 1.0, "consistency": 0.0}}, [accuracy(50, 70, 10)], [60.0, 50, 70, 10], 1),
        ("no contexts: they play no part", EMPTY, {}, [accuracy(100, 100, 100)], [100.0, 100, 100, 100], 1),
        ("no reference", LOST, {}, [], "skipped", 0),
        ("no answer", MUTE, {}, [], [0.0, 0.0, 0.0, 0.0], 0),
        ("out of range", BARE, {}, [accuracy(101, 0, 0)], "error", 1),
        ("version 1 asks for the confidence", BARE, {"prompts": {"grade": "v1"}}, [accuracy(1, 1, 1)], "error", 1),
        ("with the confidence of version 1", BARE, {"prompts": {"grade": "v1"}}, [accuracy(90, 80, 100, confidence=90)], [89.0, 90, 80, 100], 1),
    ],
    "answer_class": [
        ("correct", BARE, {}, [{"verdict": "CORRECT"}], [1, 0, 0], 1),
        ("wrong", BARE, {}, [{"verdict": "WRONG"}], [0, 1, 0], 1),
        ("does not know", BARE | {"answer": "I don’t know."}, {}, [], [0, 0, 1], 0),
        ("the Unknown Soldier", BARE | {"answer": "The Unknown Soldier."}, {}, [{"verdict": "CORRECT"}], [1, 0, 0], 1),
        ("the documents' rule", BARE | {"answer": "The Unknown Soldier."}, {"literal": True}, [], [0, 0, 1], 0),
        ("n/a", BARE | {"answer": "N/A"}, {}, [], [0, 0, 1], 0),
        ("no answer", MUTE, {}, [], [0, 0, 1], 0),
        ("no contexts: they play no part", EMPTY, {}, [{"verdict": "WRONG"}], [0, 1, 0], 1),
        ("phrases of one's own", BARE | {"answer": "Keine Ahnung."}, {"patterns": {"phrases": ["keine ahnung"]}}, [], [0, 0, 1], 0),
        ("no reference", LOST, {}, [], "skipped", 0),
    ],
    "context_sufficiency": [
        ("sufficient", BARE, {}, [{"missing": [], "verdict": "sufficient"}], [1.0], 1),
        ("a part", BARE, {}, [{"missing": ["the year"], "verdict": "partial"}], [0.5], 1),
        ("insufficient", BARE, {}, [{"missing": ["all"], "verdict": "insufficient"}], [0.0], 1),
        ("no contexts", EMPTY, {}, [], [0.0], 0),
        ("no answer: it is not shown", MUTE, {}, [{"missing": [], "verdict": "sufficient"}], [1.0], 1),
        ("no reference: it is not shown", LOST, {}, [{"missing": [], "verdict": "sufficient"}], [1.0], 1),
    ],
    # strict vital, vital, all strict, all, weighted; by hand: weights v 1, o 0.5, together 4
    "nuggets": [
        ("all held", BARE, {}, [FIVE, rows("support", S, S, S, S, S)], [1, 1, 1, 1, 1], 2),
        ("mixed", BARE, {}, [FIVE, rows("support", S, P, N, S, P)], [1 / 3, 0.5, 2 / 5, 3 / 5, (1 + 0.5 + 0.5 + 0.25) / 4], 2),
        ("only okay ones held", BARE, {}, [FIVE, rows("support", N, N, N, S, S)], [0, 0, 2 / 5, 2 / 5, 1 / 4], 2),
        ("at most two", BARE, {"most": 2}, [FIVE, rows("support", S, N)], [0.5, 0.5, 0.5, 0.5, 0.5], 2),
        ("listed twice", BARE, {}, [nuggets("v1", "v1", " v1 "), rows("support", S)], [1, 1, 1, 1, 1], 2),
        ("two a call", BARE, {"batch": 2}, [FIVE, rows("support", S, S), rows("support", S, N), rows("support", N)], [1, 1, 3 / 5, 3 / 5, 3 / 4], 4),
        ("no vital one", BARE, {}, [nuggets("o1"), rows("support", S)], [None, None, 1, 1, 1], 2),
        ("no nuggets", BARE, {}, [nuggets()], "skipped", 1),
        ("no contexts: they play no part", EMPTY, {}, [nuggets("v1"), rows("support", S)], [1, 1, 1, 1, 1], 2),
        ("no answer", MUTE, {}, [], [0, 0, 0, 0, 0], 0),
        ("no reference", LOST, {}, [], "skipped", 0),
    ],
    "relevance_grade": [
        ("all kinds", BARE, {}, [rows("grade", 3, 2, 0)], [5 / 3, 2 / 3], 1),
        ("none", BARE, {}, [rows("grade", 0, 1, 1)], [2 / 3, 0.0], 1),
        ("another bound", BARE, {"relevant_from": 1}, [rows("grade", 0, 1, 3)], [4 / 3, 2 / 3], 1),
        ("one a call", BARE, {"batch": 1}, [rows("grade", 3), rows("grade", 2), rows("grade", 1)], [2.0, 2 / 3], 3),
        ("no contexts", EMPTY, {}, [], [0.0, 0.0], 0),
        ("no answer: it is not shown", MUTE, {}, [rows("grade", 3, 3, 3)], [3.0, 1.0], 1),
        ("out of range", BARE, {}, [rows("grade", 4, 0, 0)], "error", 1),
        ("a half grade", BARE, {}, [rows("grade", 1.5, 0, 0)], "error", 1),
    ],
    "rubric": [
        ("as shipped", BARE, {}, [{"score": 4}], [4], 1),
        ("0 to 10", BARE, {"scale": [0.0, 10.0], "anchors": {}}, [{"score": 10}], [10], 1),
        ("tenths", BARE, {"whole": False}, [{"score": 4.5}], [4.5], 1),
        ("a half on whole grades", BARE, {}, [{"score": 4.5}], "error", 1),
        ("out of range", BARE, {}, [{"score": 6}], "error", 1),
        ("below the range", BARE, {}, [{"score": 0}], "error", 1),
        ("no answer", MUTE, {}, [], "skipped", 0),
        ("no contexts, not shown", EMPTY, {}, [{"score": 1}], [1], 1),
        ("no contexts, shown", EMPTY, {"shows": ["answer", "contexts"]}, [], "skipped", 0),
        ("no reference, shown", LOST, {"shows": ["answer", "reference"]}, [], "skipped", 0),
        ("contexts alone: no answer needed", MUTE, {"shows": ["contexts"]}, [{"score": 2}], [2], 1),
    ],
    "format": [
        ("as shipped", BARE, {}, [], [1], 0),
        ("too long", BARE, {"length": {"words": [None, 6]}}, [], [0], 0),  # 7 words
        ("Chinese characters are words", {"answer": "巴黎是法国的首都。塞纳河流经巴黎。"}, {"length": {"words": [15, 15]}}, [], [1], 0),
        ("kana and Latin words", {"answer": "パリは France の首都です。"}, {"length": {"words": [9, 9]}}, [], [1], 0),
        ("Korean has spaces", {"answer": "파리는 프랑스의 수도이다."}, {"length": {"words": [3, 3]}}, [], [1], 0),
        ("long enough", BARE, {"length": {"words": [7, 7], "sentences": [2, 2], "characters": [29, 29]}}, [], [1], 0),
        ("holds", BARE, {"matches": {"colour": r"\bred\b"}}, [], [1], 0),
        ("does not hold", BARE, {"matches": {"year": r"\d{4}"}}, [], [0], 0),
        ("must not hold", BARE, {"never_matches": {"colour": r"\bRED\b"}}, [], [0], 0),
        ("JSON", BARE | {"answer": '{"a": [1, 2]}'}, {"json_schema": {"required": ["a"]}}, [], [1], 0),
        ("fenced JSON", BARE | {"answer": '```json\n{"a": 1}\n```'}, {"json_schema": {"required": ["a"]}}, [], [1], 0),
        ("other JSON", BARE | {"answer": '{"b": 1}'}, {"json_schema": {"required": ["a"]}}, [], [0], 0),
        ("no JSON", BARE, {"json_schema": {}}, [], [0], 0),
        ("NaN is no JSON", BARE | {"answer": '{"a": NaN}'}, {"json_schema": {}}, [], [0], 0),
        ("undecided language alone", BARE, {"length": {}, "language": "en"}, [], "skipped", 0),
        ("undecided language beside", BARE, {"language": "en", "length": {"words": [1, 7]}}, [], [1], 0),
        ("the shipped length stands by itself alone", BARE | {"answer": "Red. " * 301}, {}, [], [0], 0),
        ("it goes with any other check", BARE | {"answer": "Red. " * 301}, {"matches": {"colour": "red"}}, [], [1], 0),
        ("its language", BARE | {"answer": "It is the tallest tower of the town, and it was built by the council in that year."}, {"language": "en"}, [], [1], 0),
        ("another", BARE | {"answer": "Der Turm ist der höchste der Stadt und wurde von dem Rat in einem Jahr auf den Hügel gebaut."}, {"language": "en"}, [], [0], 0),
        ("tone kept", BARE, {"wanted_tone": "polite"}, [{"kept": True}], [1], 1),
        ("tone broken", BARE, {"wanted_tone": "polite"}, [{"kept": False, "evidence": "It is red."}], [0], 1),
        ("no contexts: they play no part", EMPTY, {}, [], [1], 0),
        ("no answer", MUTE, {}, [], "skipped", 0),
        ("a pattern that does not end", BARE | {"answer": "a" * 60 + "!"}, {"matches": {"slow": r"^(a|aa)+$"}}, [], "error", 0),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fields", "parameters", "replies", "expected", "calls"),
    [pytest.param(name, *row[1:], id=f"{name}: {row[0]}") for name, table in TABLES.items() for row in table],
)
def test_scores(name, fields, parameters, replies, expected, calls):
    judge = ScriptedJudge(replies)
    scores = score_of(shipped_metric(name, **parameters), make_case(**fields), judge)
    assert len(judge.asked) == calls
    if isinstance(expected, str):
        assert {(s.status, s.value) for s in scores.values()} == {(expected, None)}
        assert all(s.reason for s in scores.values())
    else:
        assert [s.value for s in scores.values()] == [v if v is None else pytest.approx(v, abs=1e-12) for v in expected]
        assert all((s.status == "ok") == (v is not None) for s, v in zip(scores.values(), expected, strict=True))


# graphrag-metrics.md, section 6: A >= 80, B >= 60, C >= 40, D >= 20, E
@pytest.mark.parametrize(
    ("score", "letter"),
    [(100, "A"), (80, "A"), (79.9, "B"), (60, "B"), (59.9, "C"), (40, "C"), (39.9, "D"), (20, "D"), (19.9, "E"), (0, "E")],
)
def test_grade_boundaries(score, letter):
    metric = shipped_metric("factual_accuracy")
    found = score_of(metric, make_case(**BARE), ScriptedJudge([accuracy(score, score, score)]))["factual_accuracy"]
    assert found.value == pytest.approx(score, abs=1e-9)
    assert found.details["grade"] == letter
    assert metric.explain_value("factual_accuracy", found.value, found.details) == (
        f"0.5 x {score:g} (correctness) + 0.3 x {score:g} (completeness) + 0.2 x {score:g} (consistency); {letter}"
    )


UNCLOSED = {"name": "n", "pattern": "("}


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("factual_accuracy", {"grades": {"A": 80.0, "B": 90.0, "C": 0.0}}, "from the best down"),
        ("factual_accuracy", {"grades": {"A": 80.0, "B": 10.0}}, "the last 0"),
        ("factual_accuracy", {"weights": {"correctness": 0.0}}, "not all 0"),
        ("rubric", {"scale": [5.0, 1.0]}, "the lowest and the highest grade"),
        ("rubric", {"scale": [1.0, 5.5]}, "whole: false"),
        ("rubric", {"anchors": {7: "x"}}, "outside the scale"),
        ("rubric", {"anchors": {"best": "x"}}, "named by numbers"),
        ("format", {"length": {}}, "at least one check"),
        ("format", {"length": {"words": [5, 1]}}, "[least, most]"),
        ("format", {"language": "xx"}, "one of de, en"),
        ("format", {"matches": {"a": "("}}, "regular expression"),
        ("format", {"json_schema": {"type": "objct"}}, "JSON schema"),
        ("format", {"json_schema": {"$ref": "https://example.org/s"}}, "points elsewhere"),
        ("answer_class", {"patterns": "dont_knw.v1"}, "dont_know.v1"),
        ("policy_compliance", {"patterns": ["financial_advice"]}, "policy_compliance"),
        ("policy_compliance", {"patterns": ["../metrics/faithfulness"]}, "policy_compliance"),
        ("policy_compliance", {"patterns": [{"policy": "p", "rule": "r", "patterns": [UNCLOSED]}]}, "policy_compliance"),
        ("policy_compliance", {"patterns": [], "policies": {}}, "at least one policy"),
        ("policy_compliance", {"patterns": [{"policy": "p", "rule": "r"}], "method": "patterns"}, "at least one pattern"),
        ("policy_compliance", {"policies": {"predictions": "again"}}, "every policy once"),
    ],
)
def test_wrong_parameters_are_named(name, parameters, says):
    with pytest.raises(ConfigError) as caught:
        shipped_metric(name, **parameters)
    assert says in str(caught.value)


# metric, replies, score -> its line in task=explain
LINES = [
    ("context_utilization", TABLES["context_utilization"][1][3], "context_utilization", "1 used / 2 useful chunks"),
    ("noise_sensitivity", TABLES["noise_sensitivity"][1][3], "noise_sensitivity_relevant", "1 wrong claims from relevant chunks / 4 claims"),
    ("context_sufficiency", TABLES["context_sufficiency"][1][3], "context_sufficiency", "partial counts 0.5"),
    ("nuggets", TABLES["nuggets"][1][3], "nuggets", "vital ones supported in full / vital ones: 1 (vital), 0.5 (vital), 0 (vital), 1 (okay), 0.5 (okay)"),
    ("relevance_grade", TABLES["relevance_grade"][0][3], "relevance_grade", "(3 + 2 + 0) / 3 passages"),
    ("relevance_grade", TABLES["relevance_grade"][0][3], "relevance_grade_share", "2 graded 2 or more / 3 passages"),
    ("format", [], "format", "1 of 1 checks held; 1 when all do"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "replies", "score", "line"), LINES)
def test_the_arithmetic_of_a_value(name, replies, score, line):
    metric = shipped_metric(name)
    found = score_of(metric, make_case(**BARE), ScriptedJudge(replies))[score]
    assert metric.explain_value(score, found.value, found.details) == line


def test_one_question_serves_two_metrics():
    """The claims of faithfulness and the useful chunks of context_precision are asked by the others in the same words."""
    case = make_case(**BARE)
    judge = ScriptedJudge([claims("a"), rows("correct", False), useful(True, False, False), rows("contexts", [1])])
    score_of(shipped_metric("noise_sensitivity"), case, judge)
    for name, place, replies in (
        ("faithfulness", 0, [claims("a"), {"verdicts": [{"index": 1, "supported": True}]}]),
        ("context_precision", 2, [useful(True, False, False)]),
        ("context_utilization", 2, [useful(False, False, False)]),
    ):
        other = ScriptedJudge(replies)
        score_of(shipped_metric(name), case, other)
        assert other.asked[0].payload.id == judge.asked[place].payload.id


def test_what_a_rubric_shows():
    judge = ScriptedJudge([{"score": 3}])
    score_of(shipped_metric("rubric", shows=["contexts"]), make_case(**BARE), judge)
    assert "alpha" in judge.asked[0].user
    assert "The tower is tall" not in judge.asked[0].user
    assert "Clarity" in judge.asked[0].user
    assert "from 1 (worst) to 5 (best)" in judge.asked[0].user
    assert judge.asked[0].payload.schema["properties"]["score"] == {"minimum": 1, "maximum": 5, "type": "integer"}
