"""Every mutation on texts as people and models write them: what is changed, what is left alone, what stays true."""

import random
from collections.abc import Callable, Sequence

import pytest

from ragpipe.core.refusals import load_refusals, read_refusal
from ragpipe.core.sample import Anchor, Case, Chunk, Citation, Expected, Output, Sample
from ragpipe.extras.checks.changed_cases import is_usable
from ragpipe.extras.checks.edits import Donors, Edit, Subject, add_irrelevant_chunk, drop_gold_chunks, renumbered, shuffle_chunks
from ragpipe.extras.checks.fact_edits import REFUSAL, add_claim, change_date, change_name, change_number, negate_claim, refuse
from ragpipe.extras.checks.selftest import MUTATIONS, draw_mutants
from ragpipe.metrics.shared.citations import citations_of

CLAIMS = [
    "The director is Ada Lind, and Otto Brandt looks after the boats in Graz.", "In 1931 a fire destroyed 12 of them.",
]  # fmt: skip
FOREIGN = Case(
    Sample(id="other", question="Who runs the Harbour Museum?"),
    Output(sample_id="other", answer="Ada Lind does.", chunks=[
        Chunk(id="c1", doc_id="museum", rank=1, text=" ".join(CLAIMS)),
        Chunk(id="c9", doc_id="museum", rank=2, text="Its shop, opened by PQR, sells prints, and Viola sells tea."),
    ]),
)  # fmt: skip


def case(answer: str, contexts: str | Sequence[str] = "", *, question: str = "What is known?", **sample: object) -> Case:
    texts = [contexts] if isinstance(contexts, str) else contexts
    chunks = [Chunk(id=f"c{n}", doc_id=f"d{n}", rank=n, text=text) for n, text in enumerate(texts, 1)]
    return Case(Sample(id="q", question=question, **sample), Output(sample_id="q", answer=answer, chunks=chunks))


Change = Callable[[Subject, random.Random], Edit | None]


def made(change: Change, subject: Case, seed: int = 0) -> Edit | None:
    return change(Subject(subject, Donors([subject, FOREIGN])), random.Random(seed))


def answer_of(change: Change, subject: Case, seed: int = 0) -> str | None:
    edit = made(change, subject, seed)
    return None if edit is None else edit.output.answer


@pytest.mark.parametrize(("answer", "contexts", "mutated"), [
    ("The fee is 40 euros.", "A fee of 40 euros", "The fee is 80 euros."),
    ("It has 12,500 members.", "12500 members", "It has 25,000 members."),
    ("It grew by 3.5 percent.", "up 3.5%", "It grew by 7.0 percent."),
    ("60 percent agreed.", "60% agreed", "90 percent agreed."),  # a share stays one: 120 percent is no share
    ("Es kostet 3,50 Euro.", "3,50 Euro", "Es kostet 7,00 Euro."),
    ("It takes 20 to 30 days.", "20 days", "It takes 40 to 30 days."),
    ("Costs 5 euros [5].", "5 euros", "Costs 10 euros [5]."),
    ("About 40 came.", "40 people came", "About 80 came."),
    ("Fifty came, 50 in all.", "fifty people", "Fifty came, 100 in all."),
    ("The fee is 40 euros, twice 20.", "A fee of 40 euros, or 80", "The fee is 60 euros, twice 20."),  # 80 is known
    ("The score was 1.", "a score of 1", "The score was 2."),
])  # fmt: skip
def test_a_number_becomes_another(answer: str, contexts: str, mutated: str) -> None:
    assert answer_of(change_number, case(answer, contexts)) == mutated


@pytest.mark.parametrize(("answer", "contexts"), [
    ("The fee is 40 euros.", "no fee is named"),  # not in the chunks: its change need not make the answer worse
    ("Harald wrote it [2].", "chunk 2"),
    ("See `wait(30)` for it.", "wait(30)"),
    ("It opened in 1803.", "opened in 1803"),
    ("It opened on 2023-11-15.", "on 2023-11-15, 15"),
    ("It opened on March 15.", "March 15"),
    ("It opened on 15 March.", "15 March"),
    ("Version 2.1.4 has it.", "version 2.1.4"),
    ("Take GPT-4 or B2B.", "GPT-4, B2B, 4, 2"),
    ("Go to Room 102.", "Room 102"),
    ("Passage 2 says so.", "passage 2"),
    ("As passage 2 says, it is so.", "passage 2"),
    ("Open from 10:30 on.", "from 10:30"),
    ("Ratio 3/4 holds.", "3/4"),
    ("1. Wash it.\n2. Dry it.", "1 2"),
    ("Two plans: 1. Basic. 2. Full.", "1 2"),
    ("He said \"40 euros\" and left.", "40 euros"),
    ("https://a.example/40 has it.", "40"),
    ("ID 47832 was used.", "47832"),
    ("Go to 720 9th Street.", "720 9th Street"),
    ("Call 007 now.", "007"),
    ("It was built in 316 BC.", "316 BC"),
    ("Type 2 and type 3 differ.", "type 2, type 3"),
    ("See § 120 of it.", "§ 120"),
])  # fmt: skip
def test_what_is_no_quantity_of_the_chunks_stays(answer: str, contexts: str) -> None:
    assert answer_of(change_number, case(answer, contexts)) is None


@pytest.mark.parametrize(("answer", "contexts", "mutated"), [
    ("It opened on 2023-11-15.", "on 2023-11-15", "It opened on 2024-11-15."),
    ("It opened on 15 March 2024 [1].", "15 March 2024", "It opened on 15 March 2025 [1]."),
    ("On March 15, 2024, it opened.", "2024-03-15", "On March 15, 2025, it opened."),
    ("It was built in 1803.", "built in 1803, 1804 and 1802", "It was built in 1805."),
    ("Born (1921).", "1921", "Born (1922)."),
    ("It ends on March 15.", "ends on March 15", "It ends on March 25."),
    ("It ends in May 2024.", "nothing", None),
    ("It used 2000 tokens.", "2000 tokens", None),
    ("A screen (1920 x 1080).", "1920 x 1080", None),
    ("It may end.", "It may end", None),
])  # fmt: skip
def test_a_date_becomes_another(answer: str, contexts: str, mutated: str | None) -> None:
    assert answer_of(change_date, case(answer, contexts)) == mutated


@pytest.mark.parametrize(("answer", "contexts", "names"), [
    ("It was founded by Maren Oduya.", "Maren Oduya founded it", {"Ada Lind", "Otto Brandt"}),
    ("It belongs to the ABC.", "of ABC", {"PQR"}),
    ("Founded in Lisbon.", "in Lisbon", {"Graz", "Viola"}),
    ("Founded on Monday in March.", "on Monday in March", None),
    ("Revenue rose.", "Revenue rose", None),  # a single word that begins the sentence
    ("It rose, by the Form.", "the Form is a form", None),  # written small too: no name
    ("He said \"Maren Oduya\".", "Maren Oduya", None),
    ("It was founded by Maren Oduya.", "nobody", None),
])  # fmt: skip
def test_a_name_becomes_one_of_another_question(answer: str, contexts: str, names: set[str] | None) -> None:
    for seed in range(5):
        edit = made(change_name, case(answer, contexts), seed)
        if names is None:
            assert edit is None
        else:
            assert any(name in (edit.output.answer or "") for name in names)


def test_names_claims_and_refusals() -> None:
    subject = case("Maren Oduya met Ilse Hahn.", "Maren Oduya met Ilse Hahn", question="Whom did Maren Oduya meet?")
    for seed in range(5):
        assert (answer_of(change_name, subject, seed) or "").startswith("Maren Oduya met ")
    answer = answer_of(add_claim, case("The mill was sold.", "The mill was sold."))
    assert answer in [f"The mill was sold. {claim}" for claim in CLAIMS]
    own = case("The mill was sold.", [chunk.text for chunk in FOREIGN.contexts])
    assert made(add_claim, own) is None, "its own chunks support every sentence"
    assert read_refusal(REFUSAL, load_refusals("refusals.v2")).refused
    subject = case("The mill was sold.", "sold")
    output = subject.output.model_copy(update={"citations": [Citation(marker="[1]")], "abstained": False})
    edit = made(refuse, Case(subject.sample, output))
    assert (edit.output.answer, edit.output.citations, edit.output.abstained) == (REFUSAL, [], True)
    assert made(refuse, case("The mill was sold.", "sold", answerable=False)) is None
    assert made(refuse, case("The mill was sold.", "sold", expected=Expected(behavior="reject"))) is None
    answers = ["The mill was sold.", "", "...", "I cannot answer this from the sources."]
    assert [is_usable(case(answer, "sold")) for answer in answers] == [True, False, False, False]
    assert not is_usable(Case(subject.sample, subject.output.model_copy(update={"error": "timeout"})))


@pytest.mark.parametrize(("answer", "mutated"), [
    ("The mill was built by the river.", "The mill was not built by the river."),
    ("The mill was not built by the river.", "The mill was built by the river."),
    ("The mill has been sold to the town.", "The mill has not been sold to the town."),
    ("The mill will close in the winter.", "The mill will not close in the winter."),
    ("The mill has a roof of slate in the town.", None),  # `has not a roof` is no English
    ("Was the mill built by the river?", None),
    ("No mill was built by the river.", None),
    ("If the mill is closed, ask in the town.", None),
    ("Here are the steps to the mill of the town:", None),
    ("To keep the mill is a wish of the town.", None),
    ("It is worth noting that the mill closes in the winter.", None),
    ("The mill could have closed in the winter.", None),
    ("The mill may close in the winter.", None),  # what may be may also not be
    ("\"The mill was built by the river\" in the town.", None),
    ("Die Mühle war alt, und das Dorf will sie behalten.", None),
    ("The dragon was seen above the castle of the king.", None),  # not in the chunks
])  # fmt: skip
def test_a_claim_is_negated(answer: str, mutated: str | None) -> None:
    contexts = "In the town by the river a mill was built. It closes in winter; was sold; slate roof; steps. Mühle Dorf alt"
    assert answer_of(negate_claim, case(answer, contexts)) == mutated


@pytest.mark.parametrize(("labels", "kept"), [
    ({"relevant_chunks": ["c2"]}, ["c1", "c3"]),
    ({"relevant_docs": ["d1"], "relevant_chunks": ["c3"]}, ["c2"]),
    ({"gains": {"c1": 2.0, "c2": 0.0}}, ["c2", "c3"]),
    ({"anchors": [Anchor(rel_path="a.md")]}, ["c2", "c3"]),
    ({"required_support_groups": [["c1", "c2"], ["d3"]]}, []),
    ({"relevant_chunks": ["elsewhere"]}, None),
    ({}, None),
])  # fmt: skip
def test_every_relevant_chunk_goes_and_the_ranks_stay(labels: dict[str, object], kept: list[str] | None) -> None:
    subject = case("It is so.", ["one", "two", "three"], **labels)
    first, *others = subject.contexts
    chunks = [first.model_copy(update={"rel_path": "a.md"}), *others]
    edit = made(drop_gold_chunks, Case(subject.sample, subject.output.model_copy(update={"chunks": chunks})))
    if kept is None:
        assert edit is None
    else:
        assert [(chunk.id, f"c{chunk.rank}") for chunk in edit.output.chunks or []] == [(name, name) for name in kept]


CITED = Case(
    Sample(id="q", question="What?"),
    Output(
        sample_id="q", answer="The mill is old [1]. Otters swim by it [2][3]. Both hold [1, 3].",
        chunks=[Chunk(id=f"c{n}", rank=n, text=text) for n, text in enumerate(("mill old", "otters swim", "water"), 1)],
        citations=[Citation(marker="[1]", chunk_id="c1", text="The mill is old"),
                   Citation(marker="[2]", chunk_id="c2", text="Otters swim by it [2]"), Citation(marker="[3]")],
    ),
)  # fmt: skip


def test_marks_and_orders() -> None:
    for seed in range(6):
        edit = made(shuffle_chunks, CITED, seed)
        shuffled = Case(CITED.sample, edit.output)
        assert [chunk.rank for chunk in shuffled.contexts] == [1, 2, 3]
        assert [chunk.id for chunk in shuffled.contexts] != ["c1", "c2", "c3"]
        for recorded in (True, False):
            update = {} if recorded else {"citations": None}
            before = citations_of(Case(CITED.sample, CITED.output.model_copy(update=update)), markers=True) or []
            after = citations_of(Case(CITED.sample, edit.output.model_copy(update=update)), markers=True) or []
            names = [[cited.chunk.id if cited.chunk else None for cited in cites] for cites in (before, after)]
            assert sorted(map(str, names[0])) == sorted(map(str, names[1]))
    assert made(shuffle_chunks, case("x", "one chunk")) is None
    ranks = {1: 3, 2: 1, 3: 2}
    assert renumbered("a [1], b [2, 3]; [^1] [9] [2021](x) [1](link)", ranks) == ("a [3], b [1, 2]; [^3] [9] [2021](x) [1](link)")


def test_stripped_forged_and_misplaced_citations() -> None:
    stripped, forged, misplaced = (
        made(MUTATIONS[name].edit, CITED).output for name in ("strip_citations", "forge_citation", "misplace_citation")
    )
    assert (stripped.answer, stripped.citations) == ("The mill is old. Otters swim by it. Both hold.", [])
    assert "[2]" not in (forged.answer or "")  # the one mark that stands alone and once, and names the recorded chunk
    assert "[93][3]" in (forged.answer or "")
    dangling = [cited for cited in citations_of(Case(CITED.sample, forged), markers=True) or [] if cited.chunk is None]
    assert [cited.label for cited in dangling] == ["[93]"]
    cites = citations_of(Case(CITED.sample, misplaced), markers=True) or []
    chunks = [cited.chunk.id if cited.chunk else None for cited in cites]
    assert chunks[0] == "c1"
    assert chunks[1] in ("c1", "c3")
    for name in ("strip_citations", "forge_citation", "misplace_citation"):
        assert made(MUTATIONS[name].edit, case("No citation here.", ["a", "b"])) is None


def test_chunks_and_passages_that_are_changed() -> None:
    edit = made(add_irrelevant_chunk, case("It is so.", "so it is", question="What about the mill?"))
    first, added = edit.output.chunks or []
    assert (first.id, added.rank) == ("c1", 2)
    assert added.text in {chunk.text for chunk in FOREIGN.contexts}
    assert added.id != "c1", "c1 names another chunk in this case"
    subject = case("The fee is 40 euros [1]. It is due in May [1].", "a fee of 40 euros")
    citations = [Citation(marker="[1]", chunk_id="c1", text=t) for t in ("The fee is 40 euros [1].", "It is due in May")]
    edit = made(change_number, Case(subject.sample, subject.output.model_copy(update={"citations": citations})))
    assert [citation.text for citation in edit.output.citations or []] == ["The fee is 80 euros [1].", "It is due in May"]
    for references, known in ((["40 euros"], True), (["some euros"], False)):
        edit = made(change_number, case("The fee is 40 euros.", "40 euros", references=references))
        assert edit.in_reference is known


def test_the_draw_is_the_same_in_any_order_and_spreads_over_questions() -> None:
    cases = []
    for question in range(6):
        for method in ("a", "b", "c"):
            subject = case(f"The mill was sold for {40 + question} euros.", f"The mill was sold for {40 + question}")
            sample = subject.sample.model_copy(update={"id": f"q{question}"})
            cases.append(Case(sample, subject.output.model_copy(update={"sample_id": sample.id, "method": method})))
    drawn = draw_mutants(cases, MUTATIONS, 6)
    numbers = [mutant for mutant in drawn if mutant.change == "change_number"]
    assert sorted(mutant.base[0] for mutant in numbers) == [f"q{n}" for n in range(6)]
    assert draw_mutants(list(reversed(cases)), MUTATIONS, 6) == drawn
    assert {mutant.changed[1] for mutant in numbers} <= {f"{name}~change_number" for name in "abc"}
