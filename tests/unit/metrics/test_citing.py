"""Citations: which passage of the answer stands for a marker, and which chunks for an id that comes twice."""

import pytest

from ragpipe.metrics.shared.citation_parsing import citations_of
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.growth import assert_linear

FIRM = "Revenue was 11 million in 2011 [1]. The firm had 10 plants in 2012. Costs fell (1) by a tenth [2, 3]."

# (marker, answer, the passage that it stands for; None: the whole answer, for the marker is nowhere in it)
PASSAGES = [
    ("[1]", FIRM, "Revenue was 11 million in 2011."),
    ("1", FIRM, "Revenue was 11 million in 2011. Costs fell  by a tenth."),
    ("3", FIRM, "Costs fell (1) by a tenth."),
    (" 2 ", FIRM, "Costs fell (1) by a tenth."),
    ("(1)", FIRM, "Costs fell  by a tenth."),
    ("4", FIRM, None),
    ("11", FIRM, None),
    ("1", "In 2011 it grew by 1 per cent. In 2012 it fell.", None),
    ("1-3", "It takes 1-3 days. It rained [1-3].", "It rained."),
    ("1-3", "It takes 1-3 days.", None),
    ("a", "A band played [a]. All sang a song.", "A band played ."),
    ("[a]", "A band played [a]. All sang a song.", "A band played ."),
    ("a", "A band played a song.", None),
    ("[^1]", "It rained [^1]. It snowed in 2011.", "It rained."),
    ("¹", "It rained¹. It snowed.", "It rained."),
    ("doc-1", "Rain fell (doc-12). Snow fell (doc-1).", "Snow fell."),
    ("Smith 2020", "Rain fell (Smith 2020a). Snow fell (Smith 2020).", "Snow fell ()."),
]


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
    assert [c.text for c in judge.asked[1].values["sources"]] == [
        "Paris is the capital of France.\n\nThe Louvre is a museum."
    ]
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


@pytest.mark.parametrize("uses", [("paraphrase", "not_used"), ("not_used", "paraphrase")])
def test_the_uses_of_chunks_that_share_an_id_are_kept_apart(uses):
    def reply(question):
        if question.step == "grade":
            return {"verdicts": [{"index": i, "relevance": 90, "relevant": i != 2} for i in (1, 2, 3)]}
        told = zip((1, 3), uses, strict=True)
        return {"verdicts": [{"index": i, "evidence": "Paris", "use": use} for i, use in told]}

    found = score_of(shipped_metric("context_utilization"), make_case(chunks=PAGES), ScriptedJudge(reply))
    rows = found["context_utilization"].details["chunks"]
    assert found["context_utilization"].value == 0.5
    assert [(row["useful"], row["used"]) for row in rows] == [
        (True, uses[0] == "paraphrase"), (False, False), (True, uses[1] == "paraphrase"),
    ]  # fmt: skip
