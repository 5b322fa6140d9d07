"""Which questions the judge takes, what it answers to whole texts, and its identity."""

import pytest
import yaml

from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import Skipped
from ragpipe.core.resources import conf_dir, prompts_dir
from ragpipe.core.sample import AnyReference
from ragpipe.judge.answers import (
    AnswerRelevance,
    CheckedClaims,
    ChunkGrades,
    Claims,
    ContextRelevance,
    Grade05,
    Grade15,
    Groundedness,
    TwoAxes,
    Verdicts,
    YesNo,
)
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.rules.rules_judge import RulesJudge
from ragpipe.judge.rules.settings import RulesSettings
from tests.unit.judge.rules.conftest import prompt_with

TEA = "Green tea is brewed at 80 degrees for two minutes. It comes from China and holds less caffeine than coffee."
GOOD = "Green tea comes from China. It is brewed at 80 degrees."
REFUSAL = "Unable to answer based on given passages."


@pytest.mark.parametrize("role", ["text", "reference"])
def test_extraction_and_verdicts_in_one_question_equal_two(ask, role):
    said = GOOD + " It is brewed at 95 degrees. Shall I go on?"
    claims = ask(Claims, **{role: said}).claims
    apart = ask(Verdicts, claims=claims, sources=[TEA]).verdicts
    at_once = ask(CheckedClaims, **{role: said}, sources=[TEA]).claims
    assert [c.claim for c in at_once] == claims
    assert [(c.supported, c.evidence, c.reason) for c in at_once] == [(v.supported, v.evidence, v.reason) for v in apart]
    assert [c.supported for c in at_once] == [True, True, False]


@pytest.mark.parametrize(("chunk", "relevant"), [
    (TEA, True),
    ("It is brewed at 95 degrees.", True),  # another number: wrong, but it speaks of what was asked
    ("How is green tea brewed?", False),  # the question's words
    ("Penguins swim well.", False),
    ("", False),
])  # fmt: skip
def test_a_chunk_is_useful_when_it_holds_a_statement_of_the_reference(ask, chunk, relevant):
    chunks = ["Whales sing loudly.", chunk]
    first, second = ask(ChunkGrades, question="How is green tea brewed?", reference=GOOD, sources=chunks).verdicts
    assert (first.index, first.relevant, first.relevance) == (1, False, 0)
    assert (second.index, second.relevant, second.relevance >= 33) == (2, relevant, relevant)
    assert second.reason


def test_of_several_references_the_one_counts_that_speaks_best_for_a_chunk(ask):
    whales, chunks = "Whales sing loudly under water.", ["Whales sing loudly.", TEA, "Penguins swim well."]
    asked = {"question": "Who does what?", "sources": chunks}
    by_each = [ask(ChunkGrades, reference=text, **asked).verdicts for text in (whales, GOOD)]
    both = ask(ChunkGrades, reference=AnyReference([REFUSAL, whales, GOOD]), **asked).verdicts
    assert [one.relevant for one in both] == [True, True, False]
    assert [one.relevance for one in both] == [max(found) for found in zip(*([g.relevance for g in r] for r in by_each), strict=True)]


@pytest.mark.parametrize(("answer", "roles"), [
    (TwoAxes, {"text": GOOD, "sources": [TEA], "question": "q"}),
    (Grade15, {"text": GOOD, "reference": TEA, "question": "q"}),
    (Groundedness, {"text": GOOD}),
    (Claims, {"reference": TEA, "text": GOOD}),
    (ChunkGrades, {"question": "How is tea brewed?", "sources": [TEA]}),
    (ContextRelevance, {"question": "How is tea brewed?", "sources": [TEA]}),
    (AnswerRelevance, {"question": "How is tea brewed?", "text": GOOD}),
    (Grade05, {"question": "How is tea brewed?", "text": GOOD, "sources": [TEA]}),
    (Verdicts, {"claims": ["a b"], "sources": [TEA], "reference": TEA}),
    (YesNo, {"text": GOOD, "policies": "none"}),
])  # fmt: skip
def test_what_it_cannot_answer_is_skipped(ask, answer, roles):
    with pytest.raises(Skipped, match="rules_cannot_answer"):
        ask(answer, **roles)


def test_two_values_of_one_role_are_an_unknown_question():
    prompt = prompt_with({"answer": "text", "title": "text"})
    with pytest.raises(Skipped, match="rules_cannot_answer"):
        RulesJudge(RulesSettings()).answer(prompt, Claims, {"answer": GOOD, "title": "Tea"})


def test_an_absent_optional_role_is_left_out():
    prompt = prompt_with({"answer": "text", "context": "sources", "existing": "existing"}, optional={"existing": None})
    assert RulesJudge(RulesSettings()).answer(prompt, YesNo, {"answer": GOOD, "context": TEA}).yes


@pytest.mark.parametrize(("text", "existing", "verdict"), [
    (GOOD, None, "YES"),
    (GOOD, "NO", "YES"),
    ("Green tea comes from China. It is brewed at 95 degrees.", None, "NO"),
    ("Green tea comes from China. It is brewed at 95 degrees.", "NO", "NO"),
    ("", "YES", "YES"),
])  # fmt: skip
def test_whole_text_by_one_chunk(ask, text, existing, verdict):
    roles = {"text": text, "sources": TEA} | ({"existing": existing} if existing else {})
    found = ask(YesNo, **roles)
    assert found.verdict == verdict
    assert YesNo.from_text(found.text).verdict == verdict  # the first word of the explanation agrees


@pytest.mark.parametrize(("answer", "roles"), [
    *((answer, {"text": text}) for answer in (YesNo, Groundedness) for text in (REFUSAL, "", "?!")),
    *((ChunkGrades, {"question": "q", "reference": text}) for text in (REFUSAL, AnyReference([REFUSAL, "Unable to say?"]))),
])  # fmt: skip
def test_without_a_claim_in_text_or_reference_nothing_is_graded(ask, answer, roles):
    with pytest.raises(Skipped, match="no_factual_claims"):
        ask(answer, **roles, sources=[TEA])


def test_a_refusal_does_not_answer_the_question(ask):
    assert ask(YesNo, question="How is tea brewed?", text=REFUSAL, sources=TEA).verdict == "NO"


@pytest.mark.parametrize(("text", "score"), [
    (GOOD, 5),
    (GOOD + " It holds less caffeine than coffee. Penguins swim well.", 4),  # three of four: minor unsupported details
    ("Green tea comes from China. Penguins swim well.", 3),  # one of two: mixed
    ("Green tea comes from China. Penguins swim well. Whales sing loudly.", 2),  # one of three: major claims unsupported
    ("Green tea comes from China. It is brewed at 95 degrees.", 2),  # one of two, the other contradicts
    ("Green tea is brewed at 95 degrees for two minutes.", 1),  # everything contradicts
    ("Penguins swim well. Whales sing loudly.", 0),  # nothing to do with the sources
])  # fmt: skip
def test_groundedness_follows_the_rubric(ask, text, score):
    found = ask(Groundedness, text=text, sources=[TEA])
    assert found.score == score, found.reason
    assert sorted(found.supported_claims + found.unsupported_claims) == sorted(ask(Claims, text=text).claims)
    counts = f"{len(found.supported_claims)} of {len(ask(Claims, text=text).claims)} claims supported"
    assert found.reason.startswith(counts)


@pytest.mark.parametrize(("text", "cited"), [
    (GOOD, None),  # no mark: recorded citations may exist beside the text
    ("Green tea comes from China [1]. It is brewed at 80 degrees.", True),
    ("Green tea comes from China [1]. It is brewed at 80 degrees. It holds less caffeine than coffee.", False),
    ("Green tea comes from China [1]. It is brewed at 80 degrees (Passage 1).", True),
])  # fmt: skip
def test_groundedness_tells_whether_most_claims_are_cited(ask, text, cited):
    found = ask(Groundedness, text=text, sources=[TEA])
    assert found.major_claims_cited is cited
    assert found.score == 5


SENTENCES = ["Green tea comes from China.", "It is brewed at 80 degrees."]  # of GOOD; TEA says both


@pytest.mark.parametrize(("folder", "step", "answer", "values", "said"), [
    ("faithfulness", "extract", Claims, {"question": "q", "answer": GOOD}, SENTENCES),
    ("faithfulness", "verify", Verdicts, {"contexts": [TEA], "claims": [SENTENCES[0], "It comes from Peru."]}, [True, False]),
    ("faithfulness", "combined", CheckedClaims, {"contexts": [TEA], "question": "q", "answer": GOOD}, [True, True]),
    ("context_recall", "verify", Verdicts, {"contexts": ["Whales sing."], "claims": SENTENCES}, [False, False]),
    ("context_precision", "grade", ChunkGrades, {"contexts": ["Whales sing.", TEA], "question": "q", "reference": GOOD}, [False, True]),
    ("chunk_faithfulness", "first", YesNo, {"contexts": [TEA], "answer": GOOD}, "YES"),
    ("chunk_faithfulness", "first", YesNo, {"contexts": ["Whales sing."], "answer": GOOD}, "NO"),
    ("chunk_faithfulness", "refine", YesNo, {"contexts": [TEA], "answer": GOOD, "existing": "NO"}, "YES"),
    ("chunk_relevancy", "refine", YesNo, {"contexts": [TEA], "question": "q", "answer": GOOD, "existing": "NO"}, "YES"),
    ("groundedness", "grade", Groundedness, {"contexts": [TEA], "answer": GOOD}, 5),
])  # fmt: skip
def test_what_it_answers_to_shipped_prompts(folder, step, answer, values, said):
    prompt = PromptLibrary([prompts_dir()]).load(folder, step, "v1")
    found = RulesJudge(RulesSettings()).answer(prompt, answer, values)
    assert type(found) is answer
    content = {
        Claims: lambda: found.claims, Verdicts: lambda: [verdict.supported for verdict in found.verdicts],
        CheckedClaims: lambda: [claim.supported for claim in found.claims],
        ChunkGrades: lambda: [verdict.relevant for verdict in found.verdicts], YesNo: lambda: found.verdict,
        Groundedness: lambda: found.score,
    }  # fmt: skip
    assert content[answer]() == said


def test_the_shipped_yaml_is_the_default():
    shipped = yaml.safe_load((conf_dir() / "judge" / "rules.yaml").read_text(encoding="utf-8"))
    assert RulesSettings(**shipped) == RulesSettings()
    assert set(shipped) == set(RulesSettings.model_fields)


def test_identity_holds_the_version_and_every_setting():
    settings = RulesSettings(threshold=0.5)
    expected = {"rules": "rules-v1", "window": 3, "threshold": 0.5, "contradicts_from": 0.33}
    assert settings.identity_of_judge() == expected  # which class of judge it is, is in its version already
    assert settings.label == "rules-v1"
    assert canonical_json(settings.identity_of_judge()) != canonical_json(RulesSettings().identity_of_judge())
