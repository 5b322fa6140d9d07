"""answer_relevance, contextual_correctness, context_recall and `steps: combined` by tables."""

import itertools

import pytest

from ragpipe.core.errors import ConfigError, JudgeError
from ragpipe.core.resources import prompts_dir
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.metrics.from_config import load_metric
from ragpipe.metrics.judged.context_precision import ranked_precision
from ragpipe.metrics.shared.claim_metric import JudgedClaim, claim_details
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.claim_verdicts import in_both_forms

REFUSED = JudgeError("refused", "the provider's filter refused")
HEATH = {
    "question": "Which plant known scientifically as Erica vagans is also referred to by another common name?",
    "answer": "Cornish heath",
    "chunks": ["We drove on in pouring rain.", "nothing bigger than the _erica vagans_--the lovely Cornish heath"],
    "references": ["Cornish heath"],
}
DECLINED = HEATH | {"answer": "The documents do not say."}


def direct(score, addresses=True, on_topic=True, **other):
    return {"addresses_question": addresses, "on_topic": on_topic, "score": score, **other}


# (metric, what, case, replies, value or status, number of questions)
ONE_CALL = [
    ("answer_relevance", "complete", HEATH, [direct(1.0)], 1.0, 1),
    ("answer_relevance", "in part", HEATH, [direct(0.5)], 0.5, 1),
    ("answer_relevance", "an answer that declines", DECLINED, [direct(0, False)], 0.0, 1),
    ("answer_relevance", "whole numbers are shares too", HEATH, [direct(1)], 1.0, 1),
    ("answer_relevance", "a number in quotes", HEATH, [direct("0.75")], 0.75, 1),
    ("answer_relevance", "no answer is a 0 without a call", HEATH | {"answer": ""}, [], 0.0, 0),
    ("answer_relevance", "per cent are no share", HEATH, [direct(83.27)], "error", 1),
    ("answer_relevance", "on_topic missing", HEATH, [{"addresses_question": True, "score": 1}], "error", 1),
    ("answer_relevance", "a word for a finding", HEATH, [direct(1, addresses="true")], "error", 1),
    ("answer_relevance", "NaN", HEATH, ['{"addresses_question": true, "on_topic": true, "score": NaN}'], "error", 1),
    ("contextual_correctness", "right", HEATH, [{"reason": "is the plant", "score": 5}], 5, 1),
    ("contextual_correctness", "0 is a grade", HEATH, [{"reason": "no answer", "score": 0}], 0, 1),
    ("contextual_correctness", "declines although the contexts tell", DECLINED, [{"score": 0}], 0, 1),
    ("contextual_correctness", "declines where they do not", DECLINED | {"chunks": ["rain"]}, [{"score": 5}], 5, 1),
    ("contextual_correctness", "3.0 is whole", HEATH, [{"score": 3.0}], 3, 1),
    ("contextual_correctness", "a half is no grade", HEATH, [{"score": 3.5}], "error", 1),
    ("contextual_correctness", "6 is none", HEATH, [{"score": 6}], "error", 1),
    ("contextual_correctness", "no contexts", HEATH | {"chunks": []}, [], "skipped", 0),
    ("contextual_correctness", "no answer is a 0 without a call", HEATH | {"answer": ""}, [], 0, 0),
]  # fmt: skip


def check(name, fields, replies, expected, calls, **parameters):
    """The score of a case by these replies to so many questions, which is a value, `skipped` or `error`."""
    judge = ScriptedJudge(replies)
    score = score_of(shipped_metric(name, **parameters), make_case(**fields), judge)[name]
    assert len(judge.asked) == calls
    if isinstance(expected, str):
        assert (score.status, score.value) == (expected, None)
        assert score.reason
    else:
        assert score.status == "ok", score.reason
        assert score.value == pytest.approx(expected, abs=1e-12)
    return score


@pytest.mark.parametrize(
    ("name", "fields", "replies", "expected", "calls"), [pytest.param(r[0], *r[2:], id=f"{r[0]}: {r[1]}") for r in ONE_CALL]
)
def test_one_call(name, fields, replies, expected, calls):
    check(name, fields, replies, expected, calls)


@pytest.mark.parametrize(
    ("reply", "flags"),
    [(direct(0.5, addresses=False), ["grade_contradicts_findings"]), (direct(0, addresses=False), []), (direct(0.25, on_topic=False), [])],
)
def test_answer_relevance_keeps_the_findings_and_flags_a_grade_against_them(reply, flags):
    details = check("answer_relevance", HEATH, [reply], reply["score"], 1).details
    assert details["flags"] == flags
    assert {key: details[key] for key in ("addresses_question", "on_topic")}.items() <= reply.items()


def claims(*texts):
    return {"claims": list(texts)}


def verdicts(*rows):
    """Rows of (index, supported[, evidence])."""
    return {"verdicts": [_row("index", *row) for row in rows]}


def _row(item, value, supported, *evidence):
    """A verdict on an item that is named by its number or its text."""
    return {item: value} | in_both_forms(supported) | dict(zip(("evidence",), evidence, strict=False))


ONE = "Cornish heath is the common name for Erica vagans."  # the documents' reply to the first step
RECALL = [
    ("the documents' local_search", HEATH, {}, [claims(ONE), verdicts((1, True, "the lovely Cornish heath"))], 100.0, 2),
    ("the documents' basic_search", HEATH, {}, [claims(ONE), verdicts((1, False))], 0.0, 2),
    ("two of three", HEATH, {}, [claims("a", "b", "c"), verdicts((1, True), (2, False), (3, True))], 200 / 3, 2),
    ("no statements", HEATH | {"references": ["Not in the documents."]}, {}, [claims()], 100.0, 1),
    ("no contexts", HEATH | {"chunks": []}, {}, [], 0.0, 0),
    ("no reference", HEATH | {"references": []}, {}, [], "skipped", 0),
    ("the answer plays no part", DECLINED, {}, [claims(ONE), verdicts((1, True))], 100.0, 2),
    ("one statement a call", HEATH, {"batch": 1}, [claims("a", "b"), verdicts((1, True)), verdicts((1, False))], 50.0, 3),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "parameters", "replies", "expected", "calls"), [pytest.param(*r[1:], id=r[0]) for r in RECALL])
def test_context_recall(fields, parameters, replies, expected, calls):
    check("context_recall", fields, replies, expected, calls, **parameters)


def test_context_recall_shows_the_reference_and_names_the_chunks_of_the_evidence():
    judge = ScriptedJudge([claims("a", "b", "c"), verdicts((1, True, "COMMON"), (2, True, "nowhere"), (3, False))])
    case = make_case(**HEATH | {"chunks": ["common", "other", "also common"]})
    score = score_of(shipped_metric("context_recall"), case, judge)["context_recall"]
    assert judge.asked[0].values == {"question": HEATH["question"], "reference": "Cornish heath"}
    chunks = [[place["chunk"] for quote in row["evidence"] for place in quote["places"]] for row in score.details["claims"]]
    assert chunks == [["c1", "c3"], [], []]
    assert (score.details["evidence_not_found"], score.details["flags"]) == (1, ["evidence_not_found"])
    assert score.details["unsupported_claims"] == ["c"]
    assert score.reason == "2 of 3 statements are in the contexts"


def checked(*rows):
    """Rows of (claim, supported[, evidence]), as one reply."""
    return {"claims": [_row("claim", *row) for row in rows]}


# (what, case, replies, faithfulness or status, context_recall or status, number of questions)
COMBINED = [
    ("all", HEATH, [checked(("a", True, "rain"))], 1.0, 100.0, 1),
    ("one of two", HEATH, [checked(("a", True), ("b", False))], 0.5, 50.0, 1),
    ("no claims", HEATH, [checked()], 1.0, 100.0, 1),
    ("claims without a word", HEATH, [checked((" ", True), ("-", False))], 1.0, 100.0, 1),
    ("a claim twice counts once", HEATH, [checked(("a", True), (" a", True), ("b", False))], 0.5, 50.0, 1),
    ("a claim with both verdicts is not supported", HEATH, [checked(("a", True), ("b", True), ("a", False))], 0.5, 50.0, 1),
    ("in the other order too", HEATH, [checked(("a", False), ("b", True), ("a", True))], 0.5, 50.0, 1),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "replies", "faithful", "recalled", "calls"), [pytest.param(*r[1:], id=r[0]) for r in COMBINED])
def test_both_steps_in_one_call(fields, replies, faithful, recalled, calls):
    for name, expected in (("faithfulness", faithful), ("context_recall", recalled)):
        check(name, fields, replies, expected, calls, steps="combined")


def test_the_details_are_the_same_in_one_call_and_in_two():
    for name in ("faithfulness", "context_recall"):
        two = [claims("a", "b"), verdicts((1, True, "rain"), (2, False))]
        apart = check(name, HEATH, two, 50.0 if name == "context_recall" else 0.5, 2)
        at_once = [checked(("a", True, "rain"), ("b", False))]
        assert check(name, HEATH, at_once, apart.value, 1, steps="combined") == apart


def test_only_the_prompts_of_the_chosen_steps_are_needed_and_loaded():
    library, cls = PromptLibrary([prompts_dir()]), "ContextRecallMetric"
    for steps, prompts in (("separate", {"extract": "v1", "verify": "v1"}), ("combined", {"combined": "v1"})):
        metric = load_metric("m", {"class": cls, "steps": steps, "prompts": prompts}, library)
        assert {step: prompt.version for step, prompt in metric.prompts().items()} == prompts
        everything = {"extract": "v1", "verify": "v1", "combined": "v1"}
        listed = load_metric("m", {"class": cls, "steps": steps, "prompts": everything}, library)
        assert set(listed.prompts()) == set(prompts), "a version of a step that is not used is left alone"
    with pytest.raises(ConfigError) as caught:
        load_metric("m", {"class": cls, "steps": "combined", "prompts": {"extract": "v1", "verify": "v1"}}, library)
    assert [problem.key for problem in caught.value.problems] == ["metrics.m.prompts.combined"]


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


def chunk_verdicts(*rows, **other):
    """Rows of (index, relevant[, relevance]), and the overall keys of the reply."""
    keys = ("index", "relevant", "relevance")
    return {"verdicts": [dict(zip(keys, row, strict=False)) for row in rows], **other}


def overall(score, *rows):
    return chunk_verdicts(*rows, reason="because", score=score)


NYN = ((1, False), (2, True), (3, False))

# (what, case, replies, value or status, number of questions)
RELEVANCE = [
    ("nothing relevant", CORNWALL, [overall(0, (1, False), (2, False), (3, False))], 0.0, 1),
    ("any order", CORNWALL, [overall(1.0, (3, False), (1, False), (2, True))], 1.0, 1),
    ("a number in quotes", CORNWALL, [overall("0.5", *NYN)], 0.5, 1),
    ("the answer plays no part", REFUSAL, [overall(0.9, *NYN)], 0.9, 1),
    ("no contexts", CORNWALL | {"chunks": []}, [], 0.0, 0),
    ("missing: all again, with the grade", CORNWALL, [overall(0.0, (1, False), (3, False)), overall(0.4, *NYN)], 0.4, 2),
    ("repeated: all again, with the grade", CORNWALL, [overall(0.9, *NYN, (2, False)), overall(0.4, *NYN)], 0.4, 2),
    ("the second judges only what was missing", CORNWALL, [overall(0.9, (1, False), (2, True)), overall(0.1, (1, True))], "error", 2),
    ("numbered from 0: all again, with the grade", CORNWALL, [overall(0.9, (0, False), (1, True), (2, False)), overall(0.4, *NYN)], 0.4, 2),
    ("per cent are no share", CORNWALL, [overall(90, *NYN)], "error", 1),
    ("a negative grade", CORNWALL, [overall(-0.1, *NYN)], "error", 1),
    ("refusal at the second asking", CORNWALL, [overall(0.9, (2, True)), REFUSED], "error", 2),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "replies", "expected", "calls"), [pytest.param(*row[1:], id=row[0]) for row in RELEVANCE])
def test_context_relevance(fields, replies, expected, calls):
    assert check("context_relevance", fields, replies, expected, calls).reason


def test_grade_and_verdicts_are_of_one_reply_about_all_chunks():
    judge = ScriptedJudge([overall(0.0, (2, False)), overall(0.7, (3, True), (2, True), (1, False))])
    score = score_of(shipped_metric("context_relevance"), make_case(**CORNWALL), judge)["context_relevance"]
    assert [[c.id for c in q.values["contexts"]] for q in judge.asked] == [["c1", "c2", "c3"]] * 2
    assert [(row["chunk"], row["relevant"]) for row in score.details["chunks"]] == [("c1", False), ("c2", True), ("c3", True)]
    assert (score.details["relevant"], score.details["total"], score.value) == (2, 3, 0.7)
    assert score.details["flags"] == []


@pytest.mark.parametrize(("score", "relevant", "flagged"), [(0, True, True), (0.5, False, True), (0.25, True, False), (0, False, False)])
def test_a_grade_against_its_own_verdicts_is_flagged_and_stays(score, relevant, flagged):
    case = make_case(**CORNWALL | {"chunks": ["x"]})
    judge = ScriptedJudge([overall(score, (1, relevant))])
    found = score_of(shipped_metric("context_relevance"), case, judge)["context_relevance"]
    assert found.value == score
    assert found.details["flags"] == (["grade_contradicts_verdicts"] if flagged else [])


FIVE = CORNWALL | {"chunks": list("abcde")}


def graded(*relevant):
    return chunk_verdicts(*((i, bool(r), 90 if r else 5) for i, r in enumerate(relevant, 1)))


# (what, case, replies, (mean, ranked) or status, number of questions). `ranked` by hand:
# 1 at ranks 2, 5: (1/2 + 2/5) / 2 = 9/20; at 5: 1/5
PRECISION = [
    ("the documents' first contexts", CORNWALL, [graded(0, 1, 0)], (100 / 3, 50.0), 1),
    ("ranks 2 and 5", FIVE, [graded(0, 1, 0, 0, 1)], (40.0, 45.0), 1),
    ("the last", FIVE, [graded(0, 0, 0, 0, 1)], (20.0, 20.0), 1),
    ("all", FIVE, [graded(1, 1, 1, 1, 1)], (100.0, 100.0), 1),
    ("none", FIVE, [graded(0, 0, 0, 0, 0)], (0.0, 0.0), 1),
    ("given in another order", CORNWALL, [chunk_verdicts((3, False, 1), (2, True, 97), (1, False, 2))], (100 / 3, 50.0), 1),
    ("the answer plays no part", REFUSAL, [graded(0, 1, 0)], (100 / 3, 50.0), 1),
    ("no contexts", CORNWALL | {"chunks": []}, [], (0.0, 0.0), 0),
    ("a relevance over 100", CORNWALL, [chunk_verdicts((1, True, 101), (2, True, 5), (3, True, 5))], "error", 1),
    ("no relevance", CORNWALL, [chunk_verdicts((1, True), (2, True), (3, True))], "error", 1),
]  # fmt: skip


@pytest.mark.parametrize("method", ["mean", "ranked"])
@pytest.mark.parametrize(("fields", "replies", "expected", "calls"), [pytest.param(*row[1:], id=row[0]) for row in PRECISION])
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


def test_the_third_version_of_context_precision_asks_for_no_relevance():
    judge = ScriptedJudge([chunk_verdicts((1, True), (2, False), (3, True))])
    scores = score_of(shipped_metric("context_precision", prompts={"grade": "v3"}), make_case(**CORNWALL), judge)
    assert [score.value for score in scores.values()] == pytest.approx([200 / 3, 200 / 3, 250 / 3])
    assert [row.get("relevance") for row in scores["context_precision"].details["chunks"]] == [None] * 3
    assert "relevance" not in judge.asked[0].payload.schema_json


@pytest.mark.parametrize(("references", "shown"), [(["heath"], True), (["", "heath"], True), ([" "], False), ([], False)])
def test_the_first_reference_is_shown_where_there_is_one(references, shown):
    judge = ScriptedJudge([graded(0, 1, 0)])
    score_of(shipped_metric("context_precision"), make_case(**CORNWALL, references=references), judge)
    assert ("Reference answer:" in judge.asked[0].user) is shown


@pytest.mark.slow
def test_ranked_precision_is_average_precision():
    """The formula against scikit-learn's average_precision_score, on every list of up to six chunks."""
    from sklearn.metrics import average_precision_score

    for size in range(1, 7):
        for relevant in itertools.product([False, True], repeat=size):
            if any(relevant):
                expected = 100 * average_precision_score(relevant, [-rank for rank in range(size)])
                assert ranked_precision(relevant) == pytest.approx(expected, abs=1e-9)


HARBOUR = "The harbour opened in 1803. It has a slate roof, and the harbour is deep."
CHURCH = "The church\nstands  north of it; it opened in 1901."
CASE = make_case("It opened in 1803.", chunks=[{"id": "h", "text": HARBOUR}, {"id": "k", "text": CHURCH}])
V1, V2 = ({"prompts": {"extract": "v1", "verify": version, "combined": version}} for version in ("v1", "v2"))


def place(chunk, rank, start, end):
    return {"chunk": chunk, "rank": rank, "start": start, "end": end}


@pytest.mark.parametrize(
    ("quotes", "places"),
    [
        pytest.param(["The harbour opened in 1803"], [[place("h", 1, 0, 26)]], id="one quote"),
        pytest.param(["opened in"], [[place("h", 1, 12, 21), place("k", 2, 35, 44)]], id="a quote in two chunks"),
        pytest.param(["the harbour"], [[place("h", 1, 0, 11)]], id="twice in a chunk: the first time"),
        pytest.param(["It has ... deep"], [[place("h", 1, 28, 34), place("h", 1, 68, 72)]], id="an elision: each of its pieces"),
        pytest.param(["north ... slate"], [[]], id="pieces in two chunks are no quote"),
        pytest.param(["THE CHURCH STANDS"], [[place("k", 2, 0, 17)]], id="case and white space do not count"),
        pytest.param(["the tower"], [[]], id="in no context"),
        pytest.param(["the tower", "slate"], [[], [place("h", 1, 37, 42)]], id="one of two in no context"),
        pytest.param(["...", "-"], [[], []], id="no word"),
        pytest.param([], [], id="no quote"),
    ],
)
def test_every_quote_has_its_places(quotes, places):
    for supported, verdict in ((True, "supported"), (False, "contradicted"), (False, "not_supported"), (False, None)):
        claim = JudgedClaim("a", supported, tuple(quotes), verdict=verdict)
        (row,) = claim_details([claim], CASE, [])["claims"]
        assert row["evidence"] == [{"quote": q, "places": p} for q, p in zip(quotes, places, strict=True)]
        assert row.get("evidence_found") == (None if verdict in ("not_supported", None) and not supported else any(places))


def details_of(verdicts, **parameters):
    claims = {"claims": list("abcdefgh"[: len(verdicts)])}
    rows = [{"index": index, **verdict} for index, verdict in enumerate(verdicts, 1)]
    score = score_of(shipped_metric("faithfulness", **parameters), CASE, ScriptedJudge([claims, {"verdicts": rows}]))
    assert score["faithfulness"].value == score["faithfulness"].details["supported"] / len(verdicts)
    return {"reason": score["faithfulness"].reason, **score["faithfulness"].details}


SUPPORTED = {"verdict": "supported", "evidence": ["slate roof"]}
UNSHOWN = {"verdict": "supported", "evidence": ["tile roof"]}
SILENT = {"verdict": "not_supported", "evidence": []}
DECIDED = {"verdict": "not_supported", "evidence": ["in 1901"]}
CONTRADICTED = {"verdict": "contradicted", "evidence": ["opened in 1803"]}
INVENTED = {"verdict": "contradicted", "evidence": ["opened in 1804"]}
BARE = {"verdict": "contradicted", "evidence": []}


@pytest.mark.parametrize(("verdicts", "reason", "contradicted", "missing", "flags"), [
    ([SUPPORTED, SILENT], "1 of 2 claims are supported", 0, (0, 0), []),
    ([SUPPORTED, CONTRADICTED], "1 of 2 claims are supported, 1 contradicted", 1, (0, 0), []),
    ([UNSHOWN, SUPPORTED], "2 of 2 claims are supported", 0, (1, 0), ["evidence_not_found"]),
    ([INVENTED, SILENT], "0 of 2 claims are supported, 1 contradicted", 1, (0, 1), ["contradiction_not_found"]),
    ([BARE], "0 of 1 claims are supported, 1 contradicted", 1, (0, 1), ["contradiction_not_found"]),
    (
        [UNSHOWN, BARE, CONTRADICTED, INVENTED],
        "1 of 4 claims are supported, 3 contradicted", 3, (1, 2), ["evidence_not_found", "contradiction_not_found"],
    ),
])  # fmt: skip
def test_contradicted_claims_are_counted_and_those_without_a_passage_flagged(verdicts, reason, contradicted, missing, flags):
    details = details_of(verdicts, **V2)
    assert (details["reason"], details["contradicted"], details["flags"]) == (reason, contradicted, flags)
    assert (details["evidence_not_found"], details["contradiction_not_found"]) == missing
    assert [row["verdict"] for row in details["claims"]] == [verdict["verdict"] for verdict in verdicts]


def test_a_claim_that_is_not_supported_keeps_the_passage_that_decides():
    (row,) = details_of([DECIDED], **V2)["claims"]
    assert row["evidence"] == [{"quote": "in 1901", "places": [place("k", 2, 42, 49)]}]
    assert "evidence_found" not in row


def test_a_judge_that_is_not_asked_says_nothing_of_contradictions():
    """Version 1 of the prompt knows supported and not supported: a quote against a claim makes it no contradiction."""
    verdicts = [{"supported": False, "evidence": "opened in 1803"}, {"supported": True, "evidence": "tile"}]
    details = details_of(verdicts, **V1)
    assert details["reason"] == "1 of 2 claims are supported"
    assert not details.keys() & {"contradicted", "contradiction_not_found"}
    first, second = details["claims"]
    quoted = [{"quote": "opened in 1803", "places": [place("h", 1, 12, 26)]}]
    assert first == {"claim": "a", "reason": "", "supported": False, "evidence": quoted}
    nowhere = [{"quote": "tile", "places": []}]
    assert second == {"claim": "b", "reason": "", "supported": True, "evidence_found": False, "evidence": nowhere}
    assert details["flags"] == ["evidence_not_found"]


def test_of_several_verdicts_on_a_claim_the_worst_counts():
    rows = [("a", "supported"), ("b", "contradicted"), ("a", "not_supported"), ("a", "contradicted"), ("b", "supported")]
    reply = {"claims": [{"claim": claim, "verdict": verdict} for claim, verdict in rows]}
    metric = shipped_metric("faithfulness", steps="combined", **V2)
    details = score_of(metric, CASE, ScriptedJudge([reply]))["faithfulness"].details
    assert [(row["claim"], row["verdict"]) for row in details["claims"]] == [("a", "contradicted"), ("b", "contradicted")]
