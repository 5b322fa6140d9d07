"""Which questions the judge takes, what it answers to whole texts, and its identity."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import Skipped
from ragpipe.core.resources import conf_dir, prompts_dir
from ragpipe.judging.heuristic.heuristic_judge import HeuristicJudge
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.prompting.library import PromptLibrary
from ragpipe.schema.judge_answers.citation_answers import CitationVerdicts
from ragpipe.schema.judge_answers.claim_answers import CheckedClaims, Claims, Verdicts
from ragpipe.schema.judge_answers.grade_answers import Grade05, Grade15, Groundedness, TwoAxes, YesNo
from ragpipe.schema.judge_answers.relevance_answers import AnswerRelevance, ChunkGrades, ContextRelevance
from ragpipe.schema.sample import AnyReference

TEA = "Green tea is brewed at 80 degrees for two minutes. It comes from China and holds less caffeine than coffee."
GOOD = "Green tea comes from China. It is brewed at 80 degrees."
REFUSAL = "Unable to answer based on given passages."


def test_claims_of_a_text(ask):
    assert ask(Claims, text=GOOD).claims == ["Green tea comes from China.", "It is brewed at 80 degrees."]
    assert ask(Claims, text=REFUSAL, question="How is tea brewed?").claims == []
    assert ask(Claims, reference=GOOD, question="How is tea brewed?").claims == ask(Claims, text=GOOD).claims


@pytest.mark.parametrize("role", ["text", "reference"])
def test_extraction_and_verdicts_in_one_question_equal_two(ask, role):
    said = GOOD + " It is brewed at 95 degrees. Shall I go on?"
    claims = ask(Claims, **{role: said}).claims
    apart = ask(Verdicts, claims=claims, sources=[TEA]).verdicts
    at_once = ask(CheckedClaims, **{role: said}, sources=[TEA]).claims
    assert [c.claim for c in at_once] == claims
    assert [(c.supported, c.evidence, c.reason) for c in at_once] == [(v.supported, v.evidence, v.reason) for v in apart]
    assert [c.supported for c in at_once] == [True, True, False]


@pytest.mark.parametrize(
    ("chunk", "relevant"),
    [
        (TEA, True),
        ("Tea. Green tea comes from China.", True),  # one of two statements is enough
        ("It is brewed at 95 degrees.", True),  # another number: wrong, but it speaks of what was asked
        ("How is green tea brewed?", False),  # the question's words
        ("Penguins swim well.", False),
        ("", False),
    ],
)
def test_a_chunk_is_useful_when_it_holds_a_statement_of_the_reference(ask, chunk, relevant):
    chunks = ["Whales sing loudly.", chunk]
    first, second = ask(ChunkGrades, question="How is green tea brewed?", reference=GOOD, sources=chunks).verdicts
    assert (first.index, first.relevant, first.relevance) == (1, False, 0)
    assert (second.index, second.relevant) == (2, relevant)
    assert (second.relevance >= 33) is relevant
    assert second.reason


def test_without_a_statement_in_the_reference_no_chunk_is_graded(ask):
    with pytest.raises(Skipped, match="no_factual_claims"):
        ask(ChunkGrades, question="q", reference=REFUSAL, sources=[TEA])


def test_of_several_references_the_one_counts_that_speaks_best_for_a_chunk(ask):
    whales, chunks = "Whales sing loudly under water.", ["Whales sing loudly.", TEA, "Penguins swim well."]
    asked = {"question": "Who does what?", "sources": chunks}
    by_each = [ask(ChunkGrades, reference=text, **asked).verdicts for text in (whales, GOOD)]
    both = ask(ChunkGrades, reference=AnyReference([REFUSAL, whales, GOOD]), **asked).verdicts
    assert [one.relevant for one in both] == [True, True, False]
    assert [one.relevance for one in both] == [max(found) for found in zip(*([g.relevance for g in r] for r in by_each), strict=True)]
    with pytest.raises(Skipped, match="no_factual_claims"):
        ask(ChunkGrades, reference=AnyReference([REFUSAL, "Unable to say?"]), **asked)


def test_several_references_have_no_one_list_of_claims(ask):
    with pytest.raises(Skipped, match="evidence_cannot_answer"):
        ask(Claims, reference=AnyReference([GOOD, TEA]))
    with pytest.raises(Skipped, match="evidence_cannot_answer"):
        ask(CheckedClaims, reference=AnyReference([GOOD, TEA]), sources=[TEA])


@pytest.mark.parametrize("beside", [{}, {"question": "How is tea brewed?"}, {"question": "q", "history": []}])
def test_question_and_history_may_stand_beside(ask, beside):
    assert ask(Verdicts, claims=["Green tea comes from China."], sources=[TEA], **beside).verdicts[0].supported
    assert ask(YesNo, text=GOOD, sources=TEA, **beside).verdict == "YES"


@pytest.mark.parametrize(
    ("answer", "roles"),
    [
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
    ],
)
def test_what_it_cannot_answer_is_skipped(ask, answer, roles):
    with pytest.raises(Skipped, match="evidence_cannot_answer"):
        ask(answer, **roles)


def test_two_values_of_one_role_are_an_unknown_question(prompt_with):
    prompt = prompt_with({"answer": "text", "title": "text"})
    with pytest.raises(Skipped, match="evidence_cannot_answer"):
        HeuristicJudge(HeuristicSettings()).answer(prompt, Claims, {"answer": GOOD, "title": "Tea"})


def test_optional_variables_without_a_role_are_no_part_of_the_question(prompt_with):
    prompt = prompt_with({"answer": "text"}, optional={"chain_of_thought": False})
    assert HeuristicJudge(HeuristicSettings()).answer(prompt, Claims, {"answer": "Paris"}).claims == ["Paris"]


def test_an_absent_optional_role_is_left_out(prompt_with):
    prompt = prompt_with({"answer": "text", "context": "sources", "existing": "existing"}, optional={"existing": None})
    assert HeuristicJudge(HeuristicSettings()).answer(prompt, YesNo, {"answer": GOOD, "context": TEA}).yes


@pytest.mark.parametrize(
    ("text", "existing", "verdict"),
    [
        (GOOD, None, "YES"),
        (GOOD, "NO", "YES"),
        (GOOD, "NEITHER", "YES"),
        ("Green tea comes from China. It is brewed at 95 degrees.", None, "NO"),
        ("Green tea comes from China. It is brewed at 95 degrees.", "NO", "NO"),
        ("Penguins swim well.", "YES", "YES"),
        ("", "YES", "YES"),
        (REFUSAL, "YES", "YES"),
    ],
)
def test_whole_text_by_one_chunk(ask, text, existing, verdict):
    roles = {"text": text, "sources": TEA} | ({"existing": existing} if existing else {})
    found = ask(YesNo, **roles)
    assert found.verdict == verdict
    assert YesNo.from_text(found.text).verdict == verdict  # the first word of the explanation agrees


@pytest.mark.parametrize("text", [REFUSAL, "", "?!"])
def test_a_text_without_claims_is_not_graded(ask, text):
    for answer in (YesNo, Groundedness):
        with pytest.raises(Skipped, match="no_factual_claims"):
            ask(answer, text=text, sources=[TEA])


def test_a_refusal_does_not_answer_the_question(ask):
    assert ask(YesNo, question="How is tea brewed?", text=REFUSAL, sources=TEA).verdict == "NO"


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (GOOD, 5),
        # three of four supported, the fourth unrelated: minor unsupported details
        (GOOD + " It holds less caffeine than coffee. Penguins swim well.", 4),
        # one of two: mixed
        ("Green tea comes from China. Penguins swim well.", 3),
        # one of three: major claims unsupported
        ("Green tea comes from China. Penguins swim well. Whales sing loudly.", 2),
        # one of two, the other contradicts
        ("Green tea comes from China. It is brewed at 95 degrees.", 2),
        # everything contradicts
        ("Green tea is brewed at 95 degrees for two minutes.", 1),
        # nothing to do with the sources
        ("Penguins swim well. Whales sing loudly.", 0),
    ],
)
def test_groundedness_follows_the_rubric(ask, text, score):
    found = ask(Groundedness, text=text, sources=[TEA])
    assert found.score == score, found.reason
    assert sorted(found.supported_claims + found.unsupported_claims) == sorted(ask(Claims, text=text).claims)
    counts = f"{len(found.supported_claims)} of {len(ask(Claims, text=text).claims)} claims supported"
    assert found.reason.startswith(counts)


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        (GOOD, None),  # no mark: recorded citations may exist beside the text
        ("Green tea comes from China [1]. It is brewed at 80 degrees.", True),
        ("Green tea comes from China [1]. It is brewed at 80 degrees. It holds less caffeine than coffee.", False),
        ("Green tea comes from China [1]. It is brewed at 80 degrees (Passage 1).", True),
    ],
)
def test_groundedness_tells_whether_most_claims_are_cited(ask, text, cited):
    found = ask(Groundedness, text=text, sources=[TEA])
    assert found.major_claims_cited is cited
    assert found.score == 5


SENTENCES = ["Green tea comes from China.", "It is brewed at 80 degrees."]  # of GOOD; TEA says both


@pytest.mark.parametrize(
    ("folder", "step", "answer", "values", "said"),
    [
        ("faithfulness", "extract", Claims, {"question": "q", "answer": GOOD}, SENTENCES),
        ("faithfulness", "verify", Verdicts, {"contexts": [TEA], "claims": [SENTENCES[0], "It comes from Peru."]}, [True, False]),
        ("faithfulness", "combined", CheckedClaims, {"contexts": [TEA], "question": "q", "answer": GOOD}, [True, True]),
        ("context_recall", "extract", Claims, {"question": "q", "reference": GOOD}, SENTENCES),
        ("context_recall", "verify", Verdicts, {"contexts": ["Whales sing."], "claims": SENTENCES}, [False, False]),
        ("context_recall", "combined", CheckedClaims, {"contexts": [TEA], "question": "q", "reference": GOOD}, [True, True]),
        ("context_precision", "grade", ChunkGrades, {"contexts": ["Whales sing.", TEA], "question": "q", "reference": GOOD}, [False, True]),
        ("chunk_faithfulness", "first", YesNo, {"contexts": [TEA], "answer": GOOD}, "YES"),
        ("chunk_faithfulness", "first", YesNo, {"contexts": ["Whales sing."], "answer": GOOD}, "NO"),
        ("chunk_faithfulness", "refine", YesNo, {"contexts": [TEA], "answer": GOOD, "existing": "NO"}, "YES"),
        ("chunk_relevancy", "first", YesNo, {"contexts": [TEA], "question": "q", "answer": GOOD}, "YES"),
        ("chunk_relevancy", "refine", YesNo, {"contexts": [TEA], "question": "q", "answer": GOOD, "existing": "NO"}, "YES"),
        ("groundedness", "grade", Groundedness, {"contexts": [TEA], "answer": GOOD}, 5),
    ],
)  # fmt: skip
def test_what_it_answers_to_shipped_prompts(folder, step, answer, values, said):
    prompt = PromptLibrary([prompts_dir()]).load(folder, step, "v1")
    found = HeuristicJudge(HeuristicSettings()).answer(prompt, answer, values)
    assert type(found) is answer
    content = {
        Claims: lambda: found.claims, Verdicts: lambda: [verdict.supported for verdict in found.verdicts],
        CheckedClaims: lambda: [claim.supported for claim in found.claims],
        ChunkGrades: lambda: [verdict.relevant for verdict in found.verdicts], YesNo: lambda: found.verdict,
        Groundedness: lambda: found.score,
    }  # fmt: skip
    assert content[answer]() == said


@pytest.mark.parametrize(
    ("folder", "step", "answer", "values"),
    [
        ("answer_synthesis", "grade", TwoAxes, {"contexts": [TEA], "question": "q", "answer": GOOD}),
        ("correctness", "grade", Grade15, {"question": "q", "reference": TEA, "answer": GOOD}),
        ("context_relevance", "grade", ContextRelevance, {"contexts": [TEA], "question": "q"}),
        ("context_precision", "grade", ChunkGrades, {"contexts": [TEA], "question": "q"}),
        ("answer_relevance", "direct", AnswerRelevance, {"question": "q", "answer": GOOD}),
        ("contextual_correctness", "grade", Grade05, {"contexts": [TEA], "question": "q", "answer": GOOD}),
    ],
)
def test_shipped_rubrics_that_it_leaves_to_others(folder, step, answer, values):
    prompt = PromptLibrary([prompts_dir()]).load(folder, step, "v1")
    with pytest.raises(Skipped, match="evidence_cannot_answer"):
        HeuristicJudge(HeuristicSettings()).answer(prompt, answer, values)


def test_the_shipped_yaml_is_the_default():
    shipped = yaml.safe_load((conf_dir() / "judge" / "evidence.yaml").read_text(encoding="utf-8"))
    assert HeuristicSettings(**shipped) == HeuristicSettings()
    assert set(shipped) == set(HeuristicSettings.model_fields)


def test_identity_holds_the_version_and_every_setting():
    settings = HeuristicSettings(threshold=0.5)
    expected = settings.model_dump(exclude={"kind"})  # which class of judge it is, is in its version already
    assert settings.identity_of_judge() == {**expected, "rules": "evidence-v1", "threshold": 0.5, "contradicts_from": 0.33}
    assert settings.label == HeuristicJudge(settings).version == "evidence-v1"
    assert canonical_json(settings.identity_of_judge()) != canonical_json(HeuristicSettings().identity_of_judge())


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0}, {"threshold": 1.1}, {"threshold": float("nan")}, {"window": 0}, {"window": True},
              {"judge": "evidence-v0"}, {"model": "openai/gpt"}]
)  # fmt: skip
def test_settings_are_checked(wrong):
    with pytest.raises(ValidationError):
        HeuristicSettings(**wrong)


def test_threads_get_the_same_answers(ask):
    texts = [GOOD + f" Room {n} holds {n} cups of tea." for n in range(40)]
    alone = [ask(Groundedness, text=t, sources=[TEA]) for t in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda t: ask(Groundedness, text=t, sources=[TEA]), texts)) == alone


@pytest.mark.slow
def test_importing_it_is_light():
    code = (
        "import sys, ragpipe.judging.heuristic.heuristic_judge as j; "
        "assert not {'litellm', 'pandas', 'scipy', 'numpy', 'pysbd', 'hydra'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


STATEMENTS = [
    "Green tea comes from China.",
    "It is brewed at 80 degrees.",
    "It is brewed at 95 degrees.",
    "It comes from Japan.",
    "It does not hold less caffeine than coffee.",
    "It holds less caffeine than coffee and is brewed for two minutes in a pot of clay.",
    "Penguins swim well.",
]
STRICTER = [step / 20 for step in range(1, 21)]


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=5, unique=True))
def test_a_stricter_threshold_never_raises_a_grade(ask, statements):
    """A contradiction stays one: it would be taken for mere lack of support, which costs less, if it needed the overlap of
    the threshold."""
    judges = [HeuristicSettings(threshold=threshold) for threshold in STRICTER]
    answer = " ".join(statements)
    grades = [ask(Groundedness, judge, text=answer, sources=[TEA]).score for judge in judges]
    assert grades == sorted(grades, reverse=True)
    citations = [{"text": text, "source": 1} for text in (*statements, answer)]
    held = [ask(CitationVerdicts, judge, sources=[TEA], citations=citations).verdicts for judge in judges]
    for column in zip(*held, strict=True):
        accurate = [verdict.accurate for verdict in column]
        assert accurate == sorted(accurate, reverse=True)


def test_a_contradiction_does_not_depend_on_the_threshold(ask):
    """Three of four claims are supported at both thresholds; the fourth names another number than the source."""
    said = "Green tea comes from China. It is brewed at 80 degrees. It is brewed for two minutes. It is brewed at 95 degrees."
    for threshold in (0.33, 0.5, 0.8):
        found = ask(Groundedness, HeuristicSettings(threshold=threshold), text=said, sources=[TEA])
        assert len(found.supported_claims) <= 3
        assert found.score == (2 if len(found.supported_claims) >= 2 else 1)
        assert "1 contradicted" in found.reason
