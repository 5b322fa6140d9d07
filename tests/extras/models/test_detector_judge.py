"""From readings to the answers of metrics: which claims are supported, by what evidence, and what this judge does not answer.

The readings are written by hand, so the verdicts follow from the rules of `docs/extras/models.md` alone.
"""

import asyncio
from pathlib import Path

import pytest

from ragpipe.core.errors import Skipped
from ragpipe.core.sample import AnyReference
from ragpipe.extras.models.detector_judge import DetectorJudge
from ragpipe.extras.models.detector_models import Reading, TokenReading
from ragpipe.extras.models.detector_settings import DetectorSettings
from ragpipe.judge.answers import CheckedClaims, CitationVerdicts, CitedClaims, Claims, Groundedness, QuotedClaims, Refusal, Verdicts, YesNo
from ragpipe.judge.prompt import Prompt

TEA = "Green tea is an old drink. It comes from China. It is brewed at 80 degrees."
BEES = "Bees make honey. Honey keeps for years."
ORIGIN, HEAT = "Green tea comes from China.", "Green tea is brewed at 95 degrees."


def judge(readings, **changes):
    """The judge over a mapping of texts to readings; it remembers what was asked."""
    asked = []

    async def read(texts):
        asked.append(texts)
        return readings[texts] if isinstance(readings, dict) else readings(texts)

    made = DetectorJudge(DetectorSettings(path="folder", **changes), read)
    return made, asked


def prompt_of(roles):
    variables = {f"the_{role}": role for role in roles}
    return Prompt("test/step", "v1", Path("step.v1.jinja"), "", "", variables, {}, (), frozenset(variables), {})


def ask(made, answer, **by_role):
    values = {f"the_{role}": value for role, value in by_role.items()}
    return asyncio.run(made.read(prompt_of(by_role), answer, values))


def tokens(answer, *unsupported):
    """A reading with a token per word; those named are unsupported at .9, the others at .1."""
    found, at = [], 0
    for word in answer.split():
        at = answer.index(word, at)
        found.append(TokenReading(start=at, end=at + len(word), unsupported=0.9 if word in unsupported else 0.1))
        at += len(word)
    return Reading(tokens=found)


@pytest.mark.parametrize("role", ["text", "reference"])
def test_claims_and_verdicts_at_once_equal_two_questions(role):
    text = f"{ORIGIN} Shall I go on? {HEAT}"
    made, _ = judge(lambda texts: tokens(texts[1], "95"))
    claims = ask(made, Claims, **{role: text}).claims
    assert claims == [ORIGIN, HEAT]
    apart = ask(made, Verdicts, claims=claims, sources=[TEA]).verdicts
    at_once = ask(made, CheckedClaims, **{role: text}, sources=[TEA], question="Where from?").claims
    assert [(c.claim, c.supported) for c in at_once] == [(ORIGIN, True), (HEAT, False)]
    assert [(c.supported, c.evidence, c.reason) for c in at_once] == [(v.supported, v.evidence, v.reason) for v in apart]


def test_a_claim_with_an_unsupported_span_is_not_supported():
    answer = f"## Tea\n- **{ORIGIN}**\n- {HEAT}"
    made, asked = judge(lambda texts: tokens(texts[1], "95"))
    found = ask(made, QuotedClaims, text=answer, question="Tea?", sources=[TEA, BEES]).claims
    assert asked == [("Tea?", answer, TEA, BEES)]  # the whole answer, as it stands, in one reading
    assert [(c.claim, c.verdict) for c in found] == [(ORIGIN, "supported"), (HEAT, "not_supported")]
    assert found[0].reason == "no unsupported span (highest 0.100)"
    assert found[1].reason == "unsupported: '95' (0.900)"
    assert found[0].evidence
    assert found[0].evidence[0] in TEA
    assert found[1].evidence == []


def test_listed_claims_are_read_as_one_answer():
    made, asked = judge(lambda texts: tokens(texts[1], "95"))
    found = ask(made, Verdicts, claims=[ORIGIN, HEAT], sources=[TEA]).verdicts
    assert asked == [("", f"{ORIGIN} {HEAT}", TEA)]
    assert [v.supported for v in found] == [True, False]


def test_a_span_over_a_stop_touches_no_claim():
    answer = f"{ORIGIN} {HEAT}"
    stop = len(ORIGIN) - 1
    reading = Reading(tokens=[TokenReading(start=stop, end=stop + 1, unsupported=0.9)])
    made, _ = judge(lambda _: reading)
    assert [c.supported for c in ask(made, CheckedClaims, text=answer, sources=[TEA]).claims] == [True, True]


def test_a_stricter_threshold_needs_no_other_reading():
    answer = tokens(ORIGIN)
    for threshold, supported in ((0.5, True), (0.9, True), (0.95, False)):  # each word is supported at .9
        made, _ = judge(lambda _: answer, threshold=threshold)
        (found,) = ask(made, Verdicts, claims=[ORIGIN], sources=[TEA]).verdicts
        assert found.supported is supported
        assert made.settings.identity_of_reading() == judge({})[0].settings.identity_of_reading()
        assert made.settings.identity_of_judge()["threshold"] == threshold


# ---------------------------------------------------------------------------------------------------- citations


def test_a_citation_is_checked_against_its_own_source():
    def read(texts):
        _, text, passage = texts
        return tokens(text, *(() if ("tea" in passage) == ("tea" in text) else text.split()))

    made, asked = judge(read)
    citations = [{"text": "Green tea comes from China [1].", "source": 1}, {"text": ORIGIN, "source": 2}]
    found = ask(made, CitationVerdicts, citations=citations, sources=[TEA, BEES]).verdicts
    assert [(v.index, v.accurate) for v in found] == [(1, True), (2, False)]
    assert found[0].evidence in TEA
    assert found[1].evidence == ""
    assert [texts[1] for texts in asked] == ["Green tea comes from China .", ORIGIN], "marks of citations are no part of what is read"
    claims = ask(made, CitedClaims, text="Green tea comes from China [1]. It is old.", citations=[]).claims
    assert [c.cited for c in claims] == [True, False]


# ---------------------------------------------------------------------------------------------------- refusals


def test_what_a_detector_does_not_answer():
    made, asked = judge({})
    for answer, roles in (
        (Groundedness, {"text": ORIGIN, "sources": [TEA]}),
        (YesNo, {"text": ORIGIN, "sources": [TEA]}),
        (Refusal, {"text": ORIGIN}),
        (Verdicts, {"claims": [ORIGIN]}),
        (Claims, {"text": "No."}),
        (CheckedClaims, {"reference": AnyReference(("a", "b")), "sources": [TEA]}),
    ):
        with pytest.raises(Skipped, match="detector_cannot_answer"):
            ask(made, answer, **roles)
        with pytest.raises(Skipped, match="detector_cannot_answer"):
            made.answer(prompt_of(roles), answer, {f"the_{role}": value for role, value in roles.items()})
    assert asked == []
    assert ask(made, CheckedClaims, text="I cannot answer that.", sources=[TEA]).claims == []
