"""context_relevance and context_precision by tables: a case, the judge's replies, and the score that must come of it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import JudgeError
from ragpipe.metrics.judged.context_precision import mean_precision, ranked_precision
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric

REFUSED = JudgeError("refused", "the provider's filter refused")

# graphrag-metrics.md, section 2: the example question, its first two contexts and a third
CORNWALL = {
    "question": "Which plant known scientifically as Erica vagans is also referred to by another common name?",
    "chunks": [
        "...THE END. LONDON: R. CLAY, SONS, AND TAYLOR...",
        "...its vegetation includes nothing bigger than the _erica vagans_--the lovely Cornish heath, lilac, flesh- and white...",
        "We drove on to the Lizard in pouring rain.",
    ],
    "answer": "Cornish heath",
}
REFUSAL = CORNWALL | {"answer": "I cannot tell from the documents."}


def verdicts(*rows, **other):
    """Rows of (index, relevant[, relevance]), and the overall keys of the reply."""
    keys = ("index", "relevant", "relevance")
    return {"verdicts": [dict(zip(keys, row, strict=False)) for row in rows], **other}


def overall(score, *rows):
    return verdicts(*rows, reason="because", score=score)


NYN = ((1, False), (2, True), (3, False))

# (what, case, replies, value or status, number of questions)
RELEVANCE = [
    ("the documents' reply", CORNWALL, [overall(0.9, *NYN)], 0.9, 1),
    ("nothing relevant", CORNWALL, [overall(0, (1, False), (2, False), (3, False))], 0.0, 1),
    ("any order", CORNWALL, [overall(1.0, (3, False), (1, False), (2, True))], 1.0, 1),
    ("a number in quotes", CORNWALL, [overall("0.5", *NYN)], 0.5, 1),
    ("the answer plays no part", REFUSAL, [overall(0.9, *NYN)], 0.9, 1),
    ("no answer neither", CORNWALL | {"answer": ""}, [overall(0.9, *NYN)], 0.9, 1),
    ("no contexts", CORNWALL | {"chunks": []}, [], 0.0, 0),
    ("missing: all again, with the grade", CORNWALL, [overall(0.0, (1, False), (3, False)), overall(0.4, *NYN)], 0.4, 2),
    ("repeated: all again, with the grade", CORNWALL, [overall(0.9, *NYN, (2, False)), overall(0.4, *NYN)], 0.4, 2),
    ("the second judges only what was missing", CORNWALL, [overall(0.9, (1, False), (2, True)), overall(0.1, (1, True))], "error", 2),
    ("numbered from 0: all again, with the grade", CORNWALL, [overall(0.9, (0, False), (1, True), (2, False)), overall(0.4, *NYN)], 0.4, 2),
    ("one too many: all again", CORNWALL, [overall(0.9, *NYN, (4, True)), overall(0.4, *NYN)], 0.4, 2),
    ("none at all, then all", CORNWALL, [overall(0.9), overall(0.4, *NYN)], 0.4, 2),
    ("still missing", CORNWALL, [overall(0.9, (1, False)), overall(0.9, (1, False))], "error", 2),
    ("still unknown", CORNWALL, [overall(0.9, (9, False)), overall(0.9, (9, False))], "error", 2),
    ("per cent are no share", CORNWALL, [overall(90, *NYN)], "error", 1),
    ("a negative grade", CORNWALL, [overall(-0.1, *NYN)], "error", 1),
    ("no grade", CORNWALL, [verdicts(*NYN)], "error", 1),
    ("a word for a verdict", CORNWALL, [overall(1, (1, "yes"), (2, True), (3, False))], "error", 1),
    ("prose", CORNWALL, ["Context 2 is relevant."], "error", 1),
    ("refusal of the judge", CORNWALL, [REFUSED], "error", 1),
    ("refusal at the second asking", CORNWALL, [overall(0.9, (2, True)), REFUSED], "error", 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "replies", "expected", "calls"), [pytest.param(*row[1:], id=row[0]) for row in RELEVANCE]
)
def test_context_relevance(fields, replies, expected, calls):
    judge = ScriptedJudge(replies)
    score = score_of(shipped_metric("context_relevance"), make_case(**fields), judge)["context_relevance"]
    assert len(judge.asked) == calls
    assert expected == (score.value if score.status == "ok" else score.status)
    assert score.reason


def test_grade_and_verdicts_are_of_one_reply_about_all_chunks():
    judge = ScriptedJudge([overall(0.0, (2, False)), overall(0.7, (3, True), (2, True), (1, False))])
    score = score_of(shipped_metric("context_relevance"), make_case(**CORNWALL), judge)["context_relevance"]
    assert [[c.id for c in q.values["contexts"]] for q in judge.asked] == [["c1", "c2", "c3"]] * 2
    assert [(row["chunk"], row["relevant"]) for row in score.details["chunks"]] == [
        ("c1", False), ("c2", True), ("c3", True),
    ]  # fmt: skip
    assert (score.details["relevant"], score.details["total"], score.value) == (2, 3, 0.7)
    assert score.details["flags"] == []


def test_the_second_asking_is_the_same_whatever_the_first_reply_left_out():
    asked = []
    for first in (overall(0.9, (2, True)), overall(0.9, (3, True), (1, False)), overall(0.1, (0, True), *NYN)):
        judge = ScriptedJudge([first, overall(0.4, *NYN)])
        score_of(shipped_metric("context_relevance"), make_case(**CORNWALL), judge)
        asked.append([question.payload.id for question in judge.asked])
    assert asked[0] == asked[1] == asked[2]
    assert len(set(asked[0])) == 2


@pytest.mark.parametrize(
    ("score", "relevant", "flagged"), [(0, True, True), (0.5, False, True), (0.25, True, False), (0, False, False)]
)
def test_a_grade_against_its_own_verdicts_is_flagged_and_stays(score, relevant, flagged):
    case = make_case(**CORNWALL | {"chunks": ["x"]})
    judge = ScriptedJudge([overall(score, (1, relevant))])
    found = score_of(shipped_metric("context_relevance"), case, judge)["context_relevance"]
    assert found.value == score
    assert found.details["flags"] == (["grade_contradicts_verdicts"] if flagged else [])


FIVE = CORNWALL | {"chunks": list("abcde")}


def graded(*relevant):
    return verdicts(*((i, bool(r), 90 if r else 5) for i, r in enumerate(relevant, 1)))


# (what, case, replies, (mean, ranked) or status, number of questions). `ranked` by hand:
# 1 at ranks 1, 3: (1/1 + 2/3) / 2 = 5/6; at 2, 5: (1/2 + 2/5) / 2 = 9/20; at 5: 1/5
PRECISION = [
    ("the documents' first contexts", CORNWALL, [graded(0, 1, 0)], (100 / 3, 50.0), 1),
    ("ranks 1 and 3", FIVE, [graded(1, 0, 1, 0, 0)], (40.0, 250 / 3), 1),
    ("ranks 2 and 5", FIVE, [graded(0, 1, 0, 0, 1)], (40.0, 45.0), 1),
    ("the last", FIVE, [graded(0, 0, 0, 0, 1)], (20.0, 20.0), 1),
    ("all", FIVE, [graded(1, 1, 1, 1, 1)], (100.0, 100.0), 1),
    ("none", FIVE, [graded(0, 0, 0, 0, 0)], (0.0, 0.0), 1),
    ("given in another order", CORNWALL, [verdicts((3, False, 1), (2, True, 97), (1, False, 2))], (100 / 3, 50.0), 1),
    ("the answer plays no part", REFUSAL, [graded(0, 1, 0)], (100 / 3, 50.0), 1),
    ("no contexts", CORNWALL | {"chunks": []}, [], (0.0, 0.0), 0),
    ("missing: asked again", CORNWALL, [verdicts((1, False, 0), (2, True, 98)), graded(1)], (200 / 3, 100 * (1 / 2 + 2 / 3) / 2), 2),
    ("repeated: asked again", CORNWALL, [verdicts((1, True, 0), (1, False, 0), (2, True, 98), (3, False, 1)), graded(0)], (100 / 3, 50.0), 2),
    ("numbered from 0: all again", CORNWALL, [verdicts((0, False, 0), (1, True, 9), (2, False, 0)), graded(0, 1, 0)], (100 / 3, 50.0), 2),
    ("still missing", CORNWALL, [graded(0, 1), verdicts()], "error", 2),
    ("a relevance over 100", CORNWALL, [verdicts((1, True, 101), (2, True, 5), (3, True, 5))], "error", 1),
    ("no relevance", CORNWALL, [verdicts((1, True), (2, True), (3, True))], "error", 1),
    ("a bare list", CORNWALL, ['[{"index": 1, "relevant": true, "relevance": 5}]'], "error", 1),
    ("refusal of the judge", CORNWALL, [REFUSED], "error", 1),
]  # fmt: skip


@pytest.mark.parametrize("method", ["mean", "ranked"])
@pytest.mark.parametrize(
    ("fields", "replies", "expected", "calls"), [pytest.param(*row[1:], id=row[0]) for row in PRECISION]
)
def test_context_precision_always_gives_both_aggregations(fields, replies, expected, calls, method):
    judge = ScriptedJudge(replies)
    scores = score_of(shipped_metric("context_precision", method=method), make_case(**fields), judge)
    assert list(scores) == ["context_precision", "context_precision_mean", "context_precision_ranked"]
    assert len(judge.asked) == calls
    assert all(score.reason for score in scores.values())
    if expected == "error":
        assert [score.status for score in scores.values()] == ["error"] * 3
    else:
        main, *both = (score.value for score in scores.values())
        assert both == pytest.approx(expected, abs=1e-12)
        assert main == both[("mean", "ranked").index(method)]


def test_the_method_changes_no_question():
    asked = []
    for method in ("mean", "ranked"):
        judge = ScriptedJudge([verdicts((1, True, 5)), graded(0, 1)])
        score_of(shipped_metric("context_precision", method=method), make_case(**CORNWALL, references=["heath"]), judge)
        asked.append([question.payload.id for question in judge.asked])
    assert asked[0] == asked[1]
    assert len(set(asked[0])) == 2


@pytest.mark.parametrize(
    ("references", "shown"), [(["heath"], True), (["", "heath"], True), ([" "], False), ([], False)]
)
def test_the_first_reference_is_shown_where_there_is_one(references, shown):
    judge = ScriptedJudge([graded(0, 1, 0)])
    score_of(shipped_metric("context_precision"), make_case(**CORNWALL, references=references), judge)
    assert ("Reference answer:" in judge.asked[0].user) is shown


def test_the_relevance_of_each_chunk_stands_in_the_details():
    judge = ScriptedJudge([graded(0, 1, 0)])
    score = score_of(shipped_metric("context_precision"), make_case(**CORNWALL), judge)["context_precision"]
    assert [(row["chunk"], row["relevance"]) for row in score.details["chunks"]] == [("c1", 5), ("c2", 90), ("c3", 5)]
    specs = {spec.name: spec.diagnostic for spec in shipped_metric("context_precision").scores()}
    assert specs == {"context_precision": False, "context_precision_mean": True, "context_precision_ranked": True}


@pytest.mark.slow
def test_ranked_precision_is_average_precision():
    """The formula against scikit-learn's average_precision_score, on every list of up to six chunks."""
    from sklearn.metrics import average_precision_score

    for size in range(1, 7):
        for relevant in itertools.product([False, True], repeat=size):
            if any(relevant):
                expected = 100 * average_precision_score(relevant, [-rank for rank in range(size)])
                assert ranked_precision(relevant) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.booleans(), max_size=12))
def test_precision_stays_in_its_range_and_earlier_is_never_worse(relevant):
    best = sorted(relevant, reverse=True)
    assert mean_precision(relevant) == mean_precision(best)
    assert 0 <= ranked_precision(relevant) <= ranked_precision(best) == (100 if any(relevant) else 0)
