"""What the metrics of behaviour keep in their details, must_quote, expected_citation_recall, and literal stretches."""

import pytest

from ragpipe.metrics.shared.citations import citations_of
from ragpipe.runs.identity import metric_identity
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.growth import assert_linear

NO, FIVE = "I cannot answer this question.", "I found five: sales, costs, debt, staff, margins. I don't have ten."


ADVICE = "I cannot give investment advice."
REASONS = [
    (ADVICE, {"behavior": "reject", "rejection_reason": "financial_advice"}, 1),
    (NO, {"behavior": "reject", "rejection_reason": "financial_advice"}, 0),
    ("The documents do not mention it.", {"behavior": "reject", "rejection_reason": "no_context"}, 1),
    (ADVICE, {"behavior": "reject", "rejection_reason": "house_style"}, "no_patterns_for_this_reason"),
    (ADVICE, {"behavior": "reject"}, "no_rejection_reason"),
    (FIVE, {"behavior": "reject", "rejection_reason": "financial_advice"}, "no_right_refusal"),
    (ADVICE, {"behavior": "answer", "rejection_reason": "financial_advice"}, "no_right_refusal"),
]


@pytest.mark.parametrize(("answer", "expected", "found"), REASONS)
def test_the_reason_of_a_right_refusal(answer, expected, found):
    score = score_of(shipped_metric("rejection_calibration"), make_case(answer, expected=expected))["rejection_calibration_reason"]
    assert (score.reason if score.status == "skipped" else score.value) == found


def test_abstention_and_rejection_ask_the_same_question():
    case = make_case(NO, answerable=False, expected={"behavior": "reject"})
    asked = []
    for metric in (shipped_metric("abstention"), shipped_metric("rejection_calibration", detector="judge")):
        judge = ScriptedJudge([{"declines": True, "training_cutoff": False}])
        score_of(metric, case, judge)
        asked += [question.payload.id for question in judge.asked]
    assert len(asked) == 2
    assert len(set(asked)) == 1


REPORT = {"text": "Profits doubled in the last quarter of the year, the board said.", "policy": "quote_only"}
QUOTES = [
    ("in quotation marks", 'It said "profits doubled" at once.', 1),
    ("typographic marks, other case", "It said “Profits  DOUBLED” at once.", 1),
    ("six words in a row", "We see that profits doubled in the last quarter there.", 1),
    ("five words in a row", "We see profits doubled in the last week.", 0), ("one word in quotation marks", 'The "board" met.', 0),
    ("another order", "In the last quarter profits have doubled.", 0), ("what a free chunk says", '"Costs fell by half" it said.', 0),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "value"), [pytest.param(*row[1:], id=row[0]) for row in QUOTES])
def test_must_quote(answer, value):
    case = make_case(answer, chunks=[REPORT, {"text": "Costs fell by half."}], expected={"must_quote": True})
    score = score_of(shipped_metric("must_quote"), case)["must_quote"]
    assert score.value == value
    assert score.reason == (None if value else "no_literal_quote")


def test_must_quote_only_where_the_label_asks_for_it():
    for fields in ({}, {"expected": {}}, {"expected": {"must_quote": False}}):
        score = score_of(shipped_metric("must_quote"), make_case(chunks=[REPORT], **fields))["must_quote"]
        assert (score.status, score.reason) == ("skipped", "no_quote_expected")
    score = score_of(shipped_metric("must_quote"), make_case(expected={"must_quote": True}))["must_quote"]
    assert (score.value, score.reason) == (0, "no_quote_only_chunk_retrieved")
    assert score_of(shipped_metric("must_quote"), make_case("", expected={"must_quote": True}))["must_quote"].reason == "no_answer"


APPLE = [{"id": "apple-doc#1", "doc_id": "apple-doc", "rel_path": "a.md"}, {"id": "msft-doc#1", "doc_id": "msft-doc"}, {"id": "x"}]
WANTED = ["apple-doc", "msft-doc"]  # the framework document's example
RECALL = [
    (WANTED, ["apple-doc#1", "msft-doc#1"], 1.0),
    (WANTED, ["apple-doc#1", "x", "apple-doc#1"], 0.5),
    (WANTED, [], 0.0),
    (WANTED, ["msft-doc"], 0.0),  # no retrieved chunk has this id: it dangles, as in citation
    (WANTED, [{"marker": "[1]"}], 0.5),  # without an id the mark names the chunk of rank 1
    (WANTED, [{"marker": "Apple's filing"}], "citations_name_no_chunk"),
    (["apple-doc#1"], ["apple-doc#1"], 1.0),
    (["a.md", "x"], ["apple-doc#1"], 0.5),
    (["x", "x"], ["x"], 1.0),
    (WANTED, None, "no_citations_recorded"),
    (None, ["x"], "no_expected_citations"),
    ([], ["x"], "no_expected_citations"),
]


@pytest.mark.parametrize(("wanted", "cited", "found"), RECALL)
def test_expected_citation_recall(wanted, cited, found):
    fields = {} if cited is None else {"citations": cited}
    case = make_case(chunks=APPLE, expected={"citations": wanted}, **fields)
    metric = shipped_metric("expected_citation_recall")
    score = score_of(metric, case)["expected_citation_recall"]
    assert (score.reason if score.status == "skipped" else score.value) == found
    if score.value == 0.5:
        assert metric.explain_value(metric.name, 0.5, score.details) == "1 cited / 2 expected sources"


def test_source_policy_says_how_each_source_was_used():
    chunks = [REPORT, {"text": "The chairman leaves in May, and nobody may know it.", "policy": "no_use"}, {"text": "Free."}]
    case = make_case("Profits doubled in the last quarter of the year. The chairman leaves in May, and Bo follows.", chunks=chunks)
    judge = ScriptedJudge([{"verdicts": [{"index": 1, "use": "direct_quote", "evidence": "something else"}]}])
    score = score_of(shipped_metric("source_policy"), case, judge)["source_policy"]
    assert [c.id for c in judge.asked[0].values["sources"]] == ["c1"], "the second is settled by its words"
    assert [c.id for c in judge.asked[0].values["free"]] == ["c3"]
    assert "quote_only" not in judge.asked[0].user
    rows = {row["chunk"]: row for row in score.details["sources"]}
    assert (rows["c1"]["use"], rows["c1"]["detection"], rows["c1"]["violation"]) == ("direct_quote", "judge", None)
    assert (rows["c2"]["detection"], rows["c2"]["violation"]) == ("strings", "source_usage_prohibited")
    assert rows["c2"]["evidence"] == "The chairman leaves in May, and"
    assert score.details["flags"] == ["unmarked_quote", "evidence_not_found", "unattributed_quote"]
    assert score.reason == "c2: source_usage_prohibited"


def test_a_quote_that_the_judge_overlooked_is_a_use_where_it_stands_nowhere_else():
    """`quote_only`: it may be quoted, so the value is 1; what the strings show is the use."""
    answer = "Profits doubled in the last quarter of the year. Staff grew."
    for free, expected in (([], "direct_quote"), ([{"text": answer}], "not_used")):
        judge = ScriptedJudge([{"verdicts": [{"index": 1, "use": "not_used", "evidence": ""}]}])
        score = score_of(shipped_metric("source_policy"), make_case(answer, chunks=[REPORT, *free]), judge)
        (row,) = score["source_policy"].details["sources"]
        assert (row["use"], row["detection"], row["violation"]) == (expected, "judge", None)
        assert row["flags"] == ([] if free else ["unmarked_quote", "evidence_not_found", "unattributed_quote"])
        assert row["quotes"] == ["Profits doubled in the last quarter of the year"]


TWO_SENTENCES = {"text": "Profits doubled in the last quarter of the year. The board expects less in May.", "policy": "quote_only"}
WHOLE = f'The report says: "{TWO_SENTENCES["text"]}"'
ATTRIBUTION = [  # the framework document: quote_only is "direct quotes with attribution"
    ("a mark in its sentence", 'It said "profits doubled" [1].', REPORT, None, True),
    ("a mark behind the full stop", 'It said "profits doubled." [1] Staff grew.', REPORT, None, True),
    ("no mark", 'It said "profits doubled".', REPORT, None, False),
    ("a mark of another chunk", 'It said "profits doubled" [2].', REPORT, None, False),
    ("a mark elsewhere", 'It said "profits doubled". Staff grew [1].', REPORT, None, False),
    ("the last of two sentences carries it", f"{WHOLE} [1]", TWO_SENTENCES, None, True),
    ("a recorded citation of the answer", 'It said "profits doubled".', REPORT, [{"chunk_id": "c1"}], True),
    ("one of its passage", 'It said "profits doubled".', REPORT, [{"chunk_id": "c1", "text": 'It said "profits doubled"'}], True),
    ("one of another passage", 'It said "profits doubled". Staff grew.', REPORT, [{"chunk_id": "c1", "text": "Staff grew."}], False),
    ("one of another chunk", 'It said "profits doubled".', REPORT, [{"chunk_id": "c2"}], False),
    ("recorded: none", 'It said "profits doubled" [1].', REPORT, [], False),
]  # fmt: skip


@pytest.mark.parametrize(("what", "answer", "chunk", "citations", "attributed"), ATTRIBUTION)
def test_a_quote_only_chunk_is_quoted_with_attribution(what, answer, chunk, citations, attributed):
    fields = {} if citations is None else {"citations": citations}
    case = make_case(answer, chunks=[chunk, {"text": "Free."}], **fields)
    for attribution, value in (("not_required", 1), ("required", int(attributed))):
        judge = ScriptedJudge([{"verdicts": [{"index": 1, "use": "direct_quote", "evidence": "profits doubled"}]}] * 2)
        score = score_of(shipped_metric("source_policy", attribution=attribution), case, judge)["source_policy"]
        (row,) = score.details["sources"]
        assert (score.value, row["attributed"]) == (value, attributed), what
        assert ("unattributed_quote" in score.details["flags"]) is not attributed
        assert (row["violation"] == "quote_without_attribution") is (value == 0)
        assert len(score.details["violations"]) == 1 - value


def test_attribution_is_asked_of_quotes_alone():
    """Not of a paraphrase (a violation anyway), an unused chunk, a free or forbidden one, words that stand in a free one too."""
    answer = 'It said "profits doubled" at once.'
    free = {"text": REPORT["text"]}
    for use, chunks in (
        ("paraphrase", [REPORT]), ("not_used", [{**REPORT, "text": "Else."}]), ("direct_quote", [REPORT, free]),
        ("direct_quote", [{**REPORT, "policy": "no_use"}]),
    ):  # fmt: skip
        evidence = "" if len(chunks) == 2 else "profits doubled"
        judge = ScriptedJudge([{"verdicts": [{"index": 1, "use": use, "evidence": evidence}]}])
        score = score_of(shipped_metric("source_policy", attribution="required"), make_case(answer, chunks=chunks), judge)
        (row,) = score["source_policy"].details["sources"]
        assert row["attributed"] is None
        assert "unattributed_quote" not in row["flags"]


@pytest.mark.parametrize(("quotation", "is_in_the_chunk"), [(lambda _: '"ab cd"', True), (lambda place: f'"ab w{place}" ab cd', False)])
def test_quotations_are_looked_up_in_time_that_grows_with_the_answer(quotation, is_in_the_chunk):
    metric = shipped_metric("source_policy")

    def look_up(size):
        answer = " ".join(map(quotation, range(size)))
        chunks = [{"text": "ab cd nothing here at all " * (size // 16), "policy": "no_use"}]
        (chunk,) = metric.restricted(make_case(answer, chunks=chunks))
        assert bool(chunk.verbatim.spans) == is_in_the_chunk

    assert_linear(look_up, 8000)


def test_policy_violations_name_rule_severity_evidence_and_who_found_it():
    metric = shipped_metric("policy_compliance", policies={"no_numbers": "No numbers."}, banned_topics=["chess", "war"])
    names = ["financial_advice", "predictions", "personal_data", "no_numbers", "banned_topic", "banned_topic"]
    assert [name for name, _ in metric.rules()] == names
    rows = [{"index": i, "violated": i in (4, 6), "severity": "low", "evidence": "5 wars"} for i in range(1, 7)]
    judge = ScriptedJudge([{"verdicts": rows}])
    score = score_of(metric, make_case("There were 5 wars."), judge)["policy_compliance"]
    assert [(v["policy"], v["severity"], v["detection"], v["evidence"]) for v in score.details["violations"]] == [
        ("no_numbers", "low", "judge", "5 wars"), ("banned_topic", "low", "judge", "5 wars"),
    ]  # fmt: skip
    assert score.reason == "no_numbers (low, judge); banned_topic (low, judge)"
    found = score_of(metric, make_case("You should sell."))["policy_compliance"].details["violations"]
    assert [(v["policy"], v["pattern"], v["detection"]) for v in found] == [("financial_advice", "you_should_trade", "pattern")]


def test_the_files_of_patterns_are_part_of_a_runs_identity():
    found = metric_identity(shipped_metric("policy_compliance"))["files"]
    assert list(found) == ["financial_advice.v1", "predictions.v1", "personal_data.v2"]
    assert all(len(digest) == 64 for digest in found.values())
    assert "files" not in metric_identity(shipped_metric("correctness"))


FIRM = "Revenue was 11 million in 2011 [1]. The firm had 10 plants in 2012. Costs fell (1) by a tenth [2, 3]."

# (marker, answer, the passage that it stands for; None: the whole answer, for the marker is nowhere in it)
PASSAGES = [
    ("[1]", FIRM, "Revenue was 11 million in 2011."), ("1", FIRM, "Revenue was 11 million in 2011. Costs fell  by a tenth."),
    ("3", FIRM, "Costs fell (1) by a tenth."), (" 2 ", FIRM, "Costs fell (1) by a tenth."), ("(1)", FIRM, "Costs fell  by a tenth."),
    ("4", FIRM, None), ("11", FIRM, None), ("1", "In 2011 it grew by 1 per cent. In 2012 it fell.", None),
    ("1-3", "It takes 1-3 days. It rained [1-3].", "It rained."), ("1-3", "It takes 1-3 days.", None),
    ("a", "A band played [a]. All sang a song.", "A band played ."), ("[a]", "A band played [a]. All sang a song.", "A band played ."),
    ("a", "A band played a song.", None), ("[^1]", "It rained [^1]. It snowed in 2011.", "It rained."),
    ("¹", "It rained¹. It snowed.", "It rained."), ("doc-1", "Rain fell (doc-12). Snow fell (doc-1).", "Snow fell."),
    ("Smith 2020", "Rain fell (Smith 2020a). Snow fell (Smith 2020).", "Snow fell ()."),
]  # fmt: skip


@pytest.mark.parametrize(("marker", "answer", "passage"), PASSAGES)
def test_the_passage_of_a_marker_keeps_its_own_letters_and_numbers(marker, answer, passage):
    case = make_case(answer, citations=[{"marker": marker, "chunk_id": "c1"}])
    assert [one.text for one in citations_of(case, markers=False)] == [passage or answer]


@pytest.mark.parametrize("blank", [" ", "\t", "\n", " \n"])
def test_marks_are_read_in_time_that_grows_with_the_text(blank):
    def read(size):
        answer = f"It rained{blank * size}and snowed [1]."
        citations_of(make_case(answer, citations=[{"marker": "[1]", "chunk_id": "c1"}]), markers=False)

    assert_linear(read, 100_000)


def accurate(*verdicts):
    return {"verdicts": [{"index": i, "evidence": "", "accurate": v} for i, v in enumerate(verdicts, 1)]}


def claims(*rows):
    return {"claims": [{"claim": text, "marker": "", "cited": cited} for text, cited in rows]}


PAGES = [
    {"id": "d1", "text": "Paris is the capital of France."},
    {"id": "d2", "text": "Rome is old."},
    {"id": "d1", "text": "The Louvre is a museum."},
]
ONE = claims(("Paris is the capital", True))


def test_a_cited_id_that_several_chunks_have_stands_for_all_of_them():
    judge = ScriptedJudge([ONE, {"verdicts": [{"index": 1, "evidence": "Paris is the capital", "accurate": True}]}])
    found = score_of(shipped_metric("citation"), make_case(chunks=PAGES, citations=["d1"]), judge)["citation"]
    assert [c.text for c in judge.asked[1].values["sources"]] == ["Paris is the capital of France.\n\nThe Louvre is a museum."]
    assert found.details["citations"][0]["evidence_found"]


def test_marks_tell_chunks_of_one_id_apart_by_their_rank():
    judge = ScriptedJudge([ONE, accurate(True, False)])
    case = make_case("Paris is the capital [1][3].", chunks=PAGES)
    found = score_of(shipped_metric("citation", markers=True), case, judge)
    assert [c.text for c in judge.asked[1].values["sources"]] == [PAGES[0]["text"], PAGES[2]["text"]]
    assert [c["source"] for c in judge.asked[1].values["citations"]] == [1, 2]
    assert found["citation_accuracy"].value == 0.5


@pytest.mark.parametrize(("gold", "hit"), [("A", 1), ("B", 1), ("C", 0)])
def test_a_cited_id_is_attributed_to_any_of_its_chunks(gold, hit):
    chunks = [{"id": "n", "rel_path": "n.md", "heading_path": heading} for heading in ("A", "B")]
    case = make_case(chunks=chunks, citations=["n"], anchors=[{"rel_path": "n.md", "heading_path": gold}])
    score = score_of(shipped_metric("attribution_hit"), case)["attribution_hit"]
    assert (score.value, score.details["cited"]) == (hit, ["n"])


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_a_claim_that_is_listed_with_and_without_a_citation_carries_one(order):
    judge = ScriptedJudge([claims(*(("it rained", cited) for cited in order)), accurate(True)])
    case = make_case("It rained [1].", citations=[{"marker": "[1]", "chunk_id": "c1"}])
    assert score_of(shipped_metric("citation"), case, judge)["citation_coverage"].value == 1
