"""semantic_similarity and answer_relevance by questions: tables of cases, replies and vectors."""

import pytest

from ragpipe.core.errors import JudgeError
from ragpipe.metrics.recording_judge import questions_of
from ragpipe.runs.plan import PromptCounter, make_plan
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric

EAST, NORTH, WEST = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)
REFERENCE = {"references": ["ref"]}

# (what, answer, vectors of answer and reference, value, reason). Cosines by hand: 3-4-5 triangles and right angles.
SIMILARITY = [
    ("the same direction", "ans", EAST, EAST, 100.0, None),
    ("a right angle", "ans", EAST, NORTH, 0.0, None),
    ("opposite: clamped at 0", "ans", WEST, EAST, 0.0, None),
    ("3, 4, 5", "ans", (3.0, 4.0), EAST, 60.0, None),
    ("two decimals", "ans", (1.0, 2.0), EAST, 44.72, None),  # 1 / sqrt 5 = .447213
    ("a zero vector", "ans", (0.0, 0.0), EAST, 0.0, "zero_vector"),
    ("no answer", " ", EAST, EAST, 0.0, "no_answer"),
]


@pytest.mark.parametrize(("what", "answer", "one", "other", "value", "reason"), SIMILARITY, ids=[r[0] for r in SIMILARITY])
def test_semantic_similarity(what, answer, one, other, value, reason):
    judge = ScriptedJudge(vectors={"ans": one, "ref": other})
    score = score_of(shipped_metric("semantic_similarity"), make_case(answer, **REFERENCE), judge)["semantic_similarity"]
    assert (score.value, score.reason) == (value, reason)


def test_a_text_of_which_the_embedder_read_the_beginning_is_flagged():
    for cut, flags in (({"ans"}, ["answer_cut"]), ({"ans", "ref"}, ["answer_cut", "reference_cut"]), (set(), [])):
        judge = ScriptedJudge(vectors={"ans": EAST, "ref": EAST}, cut=frozenset(cut))
        score = score_of(shipped_metric("semantic_similarity"), make_case("ans", **REFERENCE), judge)
        assert score["semantic_similarity"].details["flags"] == flags


def test_similarity_needs_a_reference_and_an_embedder():
    metric = shipped_metric("semantic_similarity")
    assert score_of(metric, make_case("ans"))["semantic_similarity"].reason == "no_reference_answer"
    skipped = score_of(metric, make_case("ans", **REFERENCE), ScriptedJudge())["semantic_similarity"]
    assert (skipped.status, skipped.reason) == ("skipped", "no_embedder")


def written(*questions):
    return {"questions": list(questions)}


DIRECT = {"addresses_question": False, "on_topic": True, "completeness": 0, "score": 0}
VECTORS = {"Q": EAST, "a": EAST, "b": (3.0, 4.0), "c": NORTH, "d": WEST}

# (what, answer, replies, value or status, calls, flags)
QUESTIONS = [
    ("three", "ans", [written("a", "b", "c")], (1 + 0.6 + 0) / 3, 1, []),
    ("a negative cosine is 0", "ans", [written("a", "d", "d")], 1 / 3, 1, []),
    ("more than asked for: the first three", "ans", [written("a", "a", "a", "d", "d")], 1.0, 1, []),
    ("fewer", "ans", [written("b")], 0.6, 1, ["fewer_questions"]),
    ("blank ones do not count", "ans", [written("", " ? ", "b", "a")], 0.8, 1, ["fewer_questions"]),
    ("none: falls back", "I cannot say.", [written(), DIRECT], 0.0, 2, ["no_questions_generated"]),
    ("unreadable", "ans", ["no json"], "error", 1, None),
    ("a refusing judge", "ans", [JudgeError("refused", "filtered")], "error", 1, None),
    ("no answer is a 0 without a call", "", [], 0.0, 0, ["no_answer"]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "answer", "replies", "expected", "calls", "flags"), QUESTIONS, ids=[r[0] for r in QUESTIONS])
def test_answer_relevance_by_questions(what, answer, replies, expected, calls, flags):
    metric = shipped_metric("answer_relevance", method="questions")
    judge = ScriptedJudge(replies, vectors=VECTORS)
    score = score_of(metric, make_case(answer, question="Q"), judge)["answer_relevance"]
    assert len(judge.asked) == calls
    if expected == "error":
        assert score.status == "error"
        return
    assert score.value == pytest.approx(expected, abs=1e-12)
    assert score.details["flags"] == flags


def test_the_real_question_is_not_shown_where_questions_are_written():
    metric = shipped_metric("answer_relevance", method="questions", n=5)
    (ask,) = questions_of(metric, make_case("the answer", question="the real question"))
    assert ask.prompt.step == "questions"
    text = "".join(message["content"] for message in ask.prompt.render(**ask.values))
    assert "the real question" not in text
    assert "write 5 different questions" in text
    made = make_plan([make_case("x"), make_case("")], [metric], iterations=1, counter=PromptCounter(len), has_embedder=True)
    assert made.embeddings == 6  # the question and those that are written; none for an empty answer
