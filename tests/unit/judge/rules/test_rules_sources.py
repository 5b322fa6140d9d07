"""Citations, uses of sources and refusals by the rules judge."""

import pytest

from ragpipe.judge.answers import CitationVerdicts, CitedClaims, Refusal, SourceUses

TEA = "Green tea is brewed at 80 degrees for two minutes. It comes from China."
COFFEE = "Coffee beans are roasted at 220 degrees. They come from Ethiopia."


@pytest.mark.parametrize(("text", "source", "accurate"), [
    ("Green tea comes from China [1].", 1, True),
    ("Green tea comes from China [2].", 2, False),  # true, but another chunk says so
    ("Green tea is brewed at 95 degrees.", 1, False),
    ("Coffee beans are roasted at 220 degrees.", 2, True),
    ("Penguins swim well.", 1, False),
    ("[1]", 1, False),
])  # fmt: skip
def test_a_citation_is_held_against_its_own_chunk(ask, text, source, accurate):
    citations = [{"text": text, "source": source}, {"text": "Coffee comes from Ethiopia.", "source": 2}]
    (first, second) = ask(CitationVerdicts, citations=citations, sources=[TEA, COFFEE]).verdicts
    assert (first.index, first.accurate, second.index, second.accurate) == (1, accurate, 2, True)
    assert not first.accurate or first.evidence in (TEA, COFFEE) or first.evidence in TEA + COFFEE


@pytest.mark.parametrize(("answer", "citations", "cited"), [
    ("Tea comes from China [1]. It is green.", [], [True, False]),
    ("Tea comes from China. [1] It is green. [2]", [], [True, True]),
    ("Tea comes from China (Passage 2).", [], [True]),
    ("Tea comes from China. It is green.", ["[1]: Tea comes from China."], [True, False]),
    ("Which tea do you mean?", [], []),
    ("I cannot answer.", ["[1]: x"], []),
])  # fmt: skip
def test_which_claims_carry_a_citation(ask, answer, citations, cited):
    assert [claim.cited for claim in ask(CitedClaims, text=answer, citations=citations).claims] == cited


@pytest.mark.parametrize(("answer", "use"), [
    ("Green tea is made with water of 80 degrees, brewed two minutes.", "paraphrase"),
    ("Green tea is brewed at 80 degrees for two minutes.", "direct_quote"),
    ('The book says: "It comes from China".', "direct_quote"),
    ("Coffee beans are roasted.", "not_used"),
    ("I cannot answer.", "not_used"),
    ("Green tea is brewed at 80 degrees for two minutes. Its home is China, green tea comes from there.", "paraphrase"),
])  # fmt: skip
def test_how_a_source_is_used(ask, answer, use):
    (found, other) = ask(SourceUses, text=answer, sources=[TEA, "Penguins swim well."]).verdicts
    assert (found.index, found.use, other.use) == (1, use, "not_used")
    assert found.evidence in answer
    assert found.evidence or use == "not_used"


@pytest.mark.parametrize(
    ("answer", "refused", "cutoff"),
    [
        ("I cannot answer this.", True, False), ("My training data ends in 2023.", True, True),
        ("I cannot overstate how good it is.", False, False), ("", False, False),
    ],
)  # fmt: skip
def test_refusals_go_by_the_shipped_rules(ask, answer, refused, cutoff):
    found = ask(Refusal, text=answer, question="q")
    assert (found.declines, found.training_cutoff) == (refused, cutoff)
