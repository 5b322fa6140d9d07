"""citation, source_policy, policy_compliance, rejection_calibration, abstention and recency_conflict by tables."""

import pytest

from ragpipe.core import patterns
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.unit.metrics.test_metric_answers import check


def verdicts(key, *rows, **other):
    """Rows of (index, verdict[, evidence]) under the metric's own key."""
    return {"verdicts": [{"index": i, key: v, "evidence": (e or [""])[0], **other} for i, v, *e in rows]}


def accurate(*rows):
    return verdicts("accurate", *rows)


def claims(*rows):
    """(claim, cited)"""
    return {"claims": [{"claim": text, "marker": "[1]" if cited else "", "cited": cited} for text, cited in rows]}


EARNINGS = {  # the framework document's example
    "question": "What were the key highlights from Apple's earnings?",
    "answer": "Apple reported strong Q3 results [1]. Revenue was $81.8B [2]. Staff grew.",
    "chunks": [{"id": "doc-1", "text": "Apple reported strong Q3 results."}, {"id": "doc-2", "text": "Revenue of $81.8B was reported."}],
    "citations": [
        {"marker": "[1]", "chunk_id": "doc-1", "text": "Apple reported strong Q3 results"},
        {"marker": "[2]", "chunk_id": "doc-2", "text": "Revenue was $81.8B"},
    ],
}
DANGLING = EARNINGS | {"citations": [*EARNINGS["citations"], {"marker": "[9]"}]}
GHOST = EARNINGS | {"citations": ["doc-1", "doc-7"]}
UNCITED = EARNINGS | {"citations": []}
DECLINES = UNCITED | {"answer": "The documents do not mention any highlights."}
MARKED = {key: value for key, value in EARNINGS.items() if key != "citations"}
TWO = claims(("strong Q3", True), ("revenue", True))
THREE = claims(("strong Q3", True), ("revenue", True), ("staff grew", False))
BOTH = accurate((1, True, "strong Q3 results"), (2, True, "$81.8B"))


def needs(**fields):
    return {"expected": fields}


# (what, case, parameters, replies, (citation, valid, accuracy, coverage, met) or a status, number of questions)
CITATION = [
    ("all good", EARNINGS, {}, [TWO, BOTH], (1, 1, 1, 1, 1), 2),
    ("a third of the claims uncited", EARNINGS, {}, [THREE, BOTH], (0.9, 1, 1, 2 / 3, 0), 2),
    ("a case that asks for less", EARNINGS | needs(min_citation_coverage=0.6), {}, [THREE, BOTH], (0.9, 1, 1, 2 / 3, 1), 2),
    ("another minimum", EARNINGS, {"min_coverage": 0.5}, [THREE, BOTH], (0.9, 1, 1, 2 / 3, 1), 2),
    ("one inaccurate", EARNINGS, {}, [TWO, accurate((1, True), (2, False))], (0.8, 1, 0.5, 1, 1), 2),
    ("dangling lowers valid and accuracy", DANGLING, {}, [TWO, BOTH], (0.3 * 2 / 3 + 0.4 * 2 / 3 + 0.3, 2 / 3, 2 / 3, 1, 1), 2),
    ("an id that was not retrieved dangles", GHOST, {}, [TWO, accurate((1, True))], (0.65, 0.5, 0.5, 1, 1), 2),
    ("only dangling ones: no chunk to ask about", EARNINGS | {"citations": ["x"]}, {}, [TWO], (0.3, 0, 0, 1, 1), 1),
    ("no claims: no coverage", EARNINGS, {}, [claims(), BOTH], (1, 1, 1, None, None), 2),
    ("no claims, one inaccurate", EARNINGS, {}, [claims(), accurate((1, True), (2, False))], ((0.3 + 0.4 / 2) / 0.7, 1, 0.5, None, None), 2),
    ("no claims and only a dangling one: no credit", EARNINGS | {"citations": ["x"]}, {}, [claims()], (0, 0, 0, None, None), 1),
    ("no claims, only coverage weighs", EARNINGS, {"weights": {"valid": 0, "accuracy": 0, "coverage": 1}}, [claims(), BOTH], (None, 1, 1, None, None), 2),
    ("marks without ids are the chunks of their ranks", EARNINGS | {"citations": [{"marker": "[1]"}, {"marker": "2"}]}, {}, [THREE, BOTH], (0.9, 1, 1, 2 / 3, 0), 2),
    ("one mark for both", EARNINGS | {"citations": [{"marker": "[1, 2]"}]}, {}, [TWO, accurate((1, True), (2, False))], (0.8, 1, 0.5, 1, 1), 2),
    ("an unresolved one counts for nothing", EARNINGS | {"citations": [*EARNINGS["citations"], {"marker": "Apple 2023"}]}, {}, [TWO, BOTH], (1, 1, 1, 1, 1), 2),
    ("none names a chunk", EARNINGS | {"citations": [{"marker": "Apple 2023"}, {"text": "strong results"}]}, {}, [], "skipped", 0),
    ("other weights", EARNINGS, {"weights": {"valid": 1, "accuracy": 1, "coverage": 2}}, [THREE, BOTH], (5 / 6, 1, 1, 2 / 3, 0), 2),
    ("none where required", UNCITED | needs(requires_citations=True), {}, [], (0, 0, 0, 0, 0), 0),
    ("none where nothing is said", UNCITED, {}, [], (0, 0, 0, 0, 0), 0),
    ("a refusal without any", DECLINES, {}, [], "skipped", 0),
    ("a refusal where required", DECLINES | needs(requires_citations=True), {}, [], (0, 0, 0, 0, 0), 0),
    ("refusals count", DECLINES, {"refusals": "zero"}, [], (0, 0, 0, 0, 0), 0),
    ("not required", EARNINGS | needs(requires_citations=False), {}, [], "skipped", 0),
    ("not recorded", MARKED, {}, [], "skipped", 0),
    ("marks in the text", MARKED, {"markers": True}, [THREE, BOTH], (0.9, 1, 1, 2 / 3, 0), 2),
    ("marks beyond the chunks", MARKED | {"answer": "It rained [3]."}, {"markers": True}, [claims(("it rained", True))], (0.3, 0, 0, 1, 1), 1),
    ("no marks", MARKED | {"answer": "It rained."}, {"markers": True}, [], (0, 0, 0, 0, 0), 0),
    ("no contexts: all dangle", EARNINGS | {"chunks": []}, {}, [TWO], (0.3, 0, 0, 1, 1), 1),
    ("no answer", EARNINGS | {"answer": " "}, {}, [], "skipped", 0),
    ("an answer without a word", EARNINGS | {"answer": "[1]..".replace("1", "")}, {}, [], "skipped", 0),
    ("missing: asked again", EARNINGS, {}, [TWO, accurate((1, True)), accurate((1, False))], (0.8, 1, 0.5, 1, 1), 3),
    ("one citation a call", EARNINGS, {"batch": 1}, [TWO, accurate((1, True)), accurate((1, False))], (0.8, 1, 0.5, 1, 1), 3),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "parameters", "replies", "expected", "calls"), [pytest.param(*r[1:], id=r[0]) for r in CITATION])
def test_citation(fields, parameters, replies, expected, calls):
    judge = ScriptedJudge(replies)
    scores = score_of(shipped_metric("citation", **parameters), make_case(**fields), judge)
    assert list(scores) == ["citation", "citation_valid", "citation_accuracy", "citation_coverage", "citation_coverage_met"]
    assert len(judge.asked) == calls
    if isinstance(expected, str):
        assert {(s.status, s.value) for s in scores.values()} == {(expected, None)}
        assert all(s.reason for s in scores.values())
    else:
        assert [s.value for s in scores.values()] == [None if e is None else pytest.approx(e, abs=1e-12) for e in expected]
        assert {s.reason for s in scores.values() if s.value is None} <= {"no_factual_claims"}


def test_citations_that_name_no_chunk_are_told_from_dangling_ones():
    metric = shipped_metric("citation")
    unnamed = make_case(**EARNINGS | {"citations": [{"marker": "Apple 2023"}]})
    assert metric.skip_reason(unnamed) == "citations_name_no_chunk"
    mixed = make_case(**EARNINGS | {"citations": [*EARNINGS["citations"], {"marker": "Apple 2023"}, {"marker": "[9]"}]})
    details = score_of(metric, mixed, ScriptedJudge([TWO, BOTH]))["citation"].details
    assert details["dangling"] == ["[9]"]
    assert details["flags"] == ["dangling_citations", "unresolved_citations"]
    assert [row.get("reason") for row in details["citations"][2:]] == [
        "neither a chunk id nor a mark [n]", "no retrieved chunk has this rank",
    ]  # fmt: skip
    assert details["parts"]["valid"] == pytest.approx(2 / 3)


def test_citation_keeps_what_dangles_and_what_is_uncited():
    found = score_of(shipped_metric("citation"), make_case(**DANGLING), ScriptedJudge([THREE, BOTH]))
    details = found["citation"].details
    assert details["dangling"] == ["[9]"]
    assert details["uncited_claims"] == ["staff grew"]
    assert details["flags"] == ["dangling_citations"]
    assert [row["accurate"] for row in details["citations"]] == [True, True, False]
    metric = shipped_metric("citation")
    said = {name: metric.explain_value(name, score.value, score.details) for name, score in found.items()}
    assert said["citation"] == "0.3 x 0.6667 (valid) + 0.4 x 0.6667 (accuracy) + 0.3 x 0.6667 (coverage)"
    assert said["citation_accuracy"] == "2 accurate / 3 citations"
    assert said["citation_coverage"] == "2 cited / 3 claims"
    assert said["citation_coverage_met"] == "coverage 0.6667, at least 0.8 is needed"


def test_each_citation_is_held_against_its_own_chunk_and_asked_about_once():
    cited = [{"marker": "[2]", "chunk_id": "doc-2"}, {"marker": "[1]", "chunk_id": "doc-1"}, {"marker": "[2]", "chunk_id": "doc-2"}]
    judge = ScriptedJudge([TWO, accurate((1, True), (2, False))])
    found = score_of(shipped_metric("citation"), make_case(**EARNINGS | {"citations": cited}), judge)
    assert [c.id for c in judge.asked[1].values["sources"]] == ["doc-2", "doc-1"]
    assert judge.asked[1].values["citations"] == [
        {"text": "Revenue was $81.8B.", "source": 1}, {"text": "Apple reported strong Q3 results.", "source": 2},
    ]  # fmt: skip
    assert found["citation_accuracy"].value == pytest.approx(2 / 3)


POLICED = {
    "answer": 'The bank expects growth. It wrote: "profits will double".',
    "chunks": [
        {"text": "Growth is slow this year in the north."},
        {"text": "We think that profits will double in the coming year, says the board.", "policy": "quote_only"},
        {"text": "Secret: the chairman leaves in May and the post stays vacant until autumn.", "policy": "no_use"},
    ],
}
QUOTED = POLICED | {"answer": '"We think that profits will double in the coming year."', "chunks": POLICED["chunks"][:2]}
COPIED = POLICED | {"answer": "The chairman leaves in May and the post stays vacant.", "chunks": POLICED["chunks"][2:]}
ONE = POLICED | {"chunks": POLICED["chunks"][:2]}


WARRANTY = "The warranty covers all moving parts for two years from purchase."
SHARED = {"answer": WARRANTY, "chunks": [WARRANTY, {"text": f"Internal. {WARRANTY}", "policy": "no_use"}]}
LEASE = {
    "question": "What is the notice period for terminating the lease agreement?",
    "answer": "I may not disclose the notice period for terminating the lease agreement.",
    "chunks": [{"text": "The notice period for terminating the lease agreement is three months.", "policy": "no_use"}],
}
CLIMATE = {
    "question": "What does climate change cover?",
    "answer": 'The term "climate change" covers warming and more.',
    "chunks": ["It covers warming and more.", {"text": "Our climate change budget is 4 million.", "policy": "no_use"}],
}
SPREAD = "It is three months, as the notice period for terminating the lease agreement is agreed in writing by both sides."


def use(*rows):
    return verdicts("use", *rows)


# (what, case, parameters, replies, value or status, number of questions)
SOURCES = [
    ("quoted and not used", POLICED, {}, [use((2, "direct_quote", "profits will double"), (3, "not_used"))], 1, 1),
    ("a paraphrase", POLICED, {}, [use((2, "paraphrase", "expects growth"), (3, "not_used"))], 0, 1),
    ("a use of no-use", POLICED, {}, [use((2, "not_used"), (3, "paraphrase", "expects"))], 0, 1),
    ("a quote of no-use by the judge", POLICED, {}, [use((2, "not_used"), (3, "direct_quote"))], 0, 1),
    ("only a literal quote: nobody asked", QUOTED, {}, [], 1, 0),
    ("no-use word for word: nobody asked", COPIED, {}, [], 0, 0),
    ("shorter than a quote: asked", COPIED, {"quote_words": 20}, [use((1, "not_used"))], 1, 1),
    ("nothing restricted", POLICED | {"chunks": ["free"]}, {}, [], "skipped", 0),
    ("no contexts", POLICED | {"chunks": []}, {}, [], "skipped", 0),
    ("no answer", POLICED | {"answer": ""}, {}, [], "skipped", 0),
    ("an empty chunk cannot be used", POLICED | {"chunks": [{"text": "", "policy": "no_use"}, "Shops open at nine."]}, {}, [], 1, 0),
    ("in a free chunk too: asked", SHARED, {}, [use((2, "not_used"))], 1, 1),
    ("in a free chunk too, and used", SHARED, {}, [use((2, "direct_quote"))], 0, 1),
    ("in a quote-only chunk too is not free", SHARED | {"chunks": [{"text": WARRANTY, "policy": "quote_only"}, SHARED["chunks"][1]]}, {}, [], 0, 0),
    ("in part in a free chunk", SHARED | {"chunks": ["The warranty covers all parts.", SHARED["chunks"][1]]}, {}, [], 0, 0),
    ("a refusal in the words of the question: asked", LEASE, {}, [use((1, "not_used"))], 1, 1),
    ("in the words of an earlier question: asked", LEASE | {"question": "And?", "history": [["user", LEASE["question"]]]}, {}, [use((1, "not_used"))], 1, 1),
    ("in the words of an earlier answer", LEASE | {"question": "And?", "history": [["assistant", LEASE["question"]]]}, {}, [], 0, 0),
    ("a stretch beside the words of the question", LEASE | {"answer": SPREAD, "chunks": [{"text": SPREAD, "policy": "no_use"}]}, {}, [], 0, 0),
    ("less than a stretch beside them: asked", LEASE | {"answer": LEASE["chunks"][0]["text"]}, {}, [use((1, "direct_quote"))], 0, 1),
    ("the question's words in quotation marks: asked", CLIMATE, {}, [use((2, "not_used"))], 1, 1),
    ("other words in quotation marks", CLIMATE | {"question": "What does it cover?"}, {}, [], 0, 0),
    ("missing: asked again", POLICED, {}, [use((2, "not_used")), use((3, "paraphrase"))], 0, 2),
    ("its place is not its number", ONE, {}, [use((1, "not_used")), use((0, "not_used"))], "error", 2),
    ("one chunk a call", POLICED, {"batch": 1}, [use((2, "not_used")), use((3, "not_used"))], 1, 2),
]  # fmt: skip

ADVICE = {"question": "Should I buy Apple stock?", "answer": "You should buy now.", "chunks": []}
KIND = ADVICE | {"answer": "Earnings rose by 5 percent."}
COMPLIANT = verdicts("violated", *((i, False) for i in (1, 2, 3)))


SEVERITIES = {1: "none", 2: "medium", 3: "none"}
SECOND = {"verdicts": [{"index": i, "violated": i == 2, "severity": one, "evidence": "rose"} for i, one in SEVERITIES.items()]}
POLICY = [
    ("a pattern hits: nobody asked", ADVICE, {}, [], 0, 0),
    ("nothing found by either", KIND, {}, [COMPLIANT], 1, 1),
    ("the judge finds one", KIND, {}, [SECOND], 0, 1),
    ("patterns alone", KIND, {"method": "patterns"}, [], 1, 0),
    ("a policy in words", KIND, {"patterns": [], "policies": {"no_numbers": "No numbers."}}, [verdicts("violated", (1, True))], 0, 1),
    ("a banned topic", KIND, {"patterns": [], "banned_topics": ["earnings"]}, [verdicts("violated", (1, True))], 0, 1),
    ("a pattern of the user's own", KIND, {"patterns": [{"policy": "rise", "rule": "No rise.", "patterns": [{"name": "r", "pattern": "rose"}]}]}, [], 0, 0),
    ("a pattern that never ends", KIND | {"answer": "a" * 60 + "b"}, {"patterns": [{"policy": "slow", "rule": "x", "patterns": [{"name": "nested", "pattern": "^(a|aa)+$"}]}]}, [], "error", 0),
    ("a refusal breaks nothing", ADVICE | {"answer": "I cannot tell you whether you should buy Apple stock."}, {}, [COMPLIANT], 1, 1),
    ("no contexts do not matter", KIND | {"chunks": []}, {}, [COMPLIANT], 1, 1),
    ("no answer", KIND | {"answer": ""}, {}, [], "skipped", 0),
]  # fmt: skip

LIST = {"question": "What are 10 highlights from the earnings call?", "chunks": ["5 highlights"]}
NO = "I cannot answer this question."
FIVE = "I found five: sales, costs, debt, staff, margins. I don't have ten."


def declines(value, cutoff=False):
    return {"declines": value, "training_cutoff": cutoff}


JUDGE = {"detector": "judge"}
REJECTION = [
    ("no label", LIST | {"answer": NO}, {}, [], "skipped", 0),
    ("no answer is neither", LIST | {"answer": ""} | needs(behavior="reject"), {}, [], 0, 0),
    ("no contexts do not matter", LIST | {"answer": NO, "chunks": []} | needs(behavior="reject"), {}, [], 1, 0),
    ("judge: declines", LIST | {"answer": FIVE} | needs(behavior="reject"), JUDGE, [declines(True)], 1, 1),
    ("judge: no answer, no call", LIST | {"answer": "..."} | needs(behavior="answer"), JUDGE, [], 0, 0),
]  # fmt: skip

UNANSWERABLE = LIST | {"answerable": False, "answer": NO}
ABSTENTION = [
    ("declines", UNANSWERABLE, {}, [declines(True)], 1, 1),
    ("makes something up", UNANSWERABLE | {"answer": FIVE}, {}, [declines(False)], 0, 1),
    ("its own flag: nobody asked", UNANSWERABLE | {"answer": FIVE, "abstained": True}, {}, [], 1, 0),
    ("its own flag says no", UNANSWERABLE | {"abstained": False}, {}, [], 0, 0),
    ("silent with the flag", UNANSWERABLE | {"answer": "", "abstained": True}, {}, [], 1, 0),
    ("silent without", UNANSWERABLE | {"answer": ""}, {}, [], "skipped", 0),
    ("answerable", UNANSWERABLE | {"answerable": True}, {}, [], "skipped", 0),
    ("no label", UNANSWERABLE | {"answerable": None}, {}, [], "skipped", 0),
    ("no contexts do not matter", UNANSWERABLE | {"chunks": []}, {}, [declines(True)], 1, 1),
]  # fmt: skip

NOTES = {
    "answer": "The fee was 45 euros and is now 60 euros.",
    "question": "What is the fee?",
    "chunks": [{"rel_path": "new.md", "text": "60 euros"}, {"rel_path": "old.md", "text": "45 euros"}, {"rel_path": "x.md"}],
    "anchors": [{"rel_path": "new.md", "role": "newer"}, {"rel_path": "old.md", "role": "older"}],
    "citations": ["c2", "c1"],
    "recency_conflict_rule": "acknowledge_both",
}


def says(value, evidence="was 45 euros"):
    return {"acknowledged": value, "evidence": evidence}


RECENCY = [
    ("acknowledged", NOTES, {}, [says(True)], 1, 1),
    ("not acknowledged", NOTES, {}, [says(False, "")], 0, 1),
    ("the newer not cited: nobody asked", NOTES | {"citations": ["c2", "c3"]}, {}, [], 0, 0),
    ("the older not cited", NOTES | {"citations": ["c1", "c3"]}, {}, [], 0, 0),
    ("nothing cited", NOTES | {"citations": []}, {}, [], 0, 0),
    ("not recorded", {k: v for k, v in NOTES.items() if k != "citations"}, {}, [], "skipped", 0),
    ("no contexts", NOTES | {"chunks": []}, {}, [], 0, 0),
    ("no answer", NOTES | {"answer": ""}, {}, [], 0, 0),
    ("cite_both stays free", NOTES | {"recency_conflict_rule": "cite_both"}, {}, [], 1, 0),
    ("cite_newer stays free", NOTES | {"recency_conflict_rule": "cite_newer", "citations": ["c2"]}, {}, [], 0, 0),
]  # fmt: skip

FIRST_SCORE = [
    pytest.param(name, *row[1:], id=f"{name}: {row[0]}")
    for name, table in (("source_policy", SOURCES), ("policy_compliance", POLICY), ("rejection_calibration", REJECTION),
                        ("abstention", ABSTENTION), ("recency_conflict", RECENCY))
    for row in table
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "parameters", "replies", "expected", "calls"), FIRST_SCORE)
def test_first_score(name, fields, parameters, replies, expected, calls, monkeypatch):
    monkeypatch.setattr(patterns, "TIME_LIMIT_S", 0.2)
    check(name, fields, replies, expected, calls, **parameters)
