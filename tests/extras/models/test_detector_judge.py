"""From readings to the answers of metrics: which claims are supported, by what evidence, and what this judge does not answer.

The readings are written by hand, so the verdicts follow from the rules of `docs/extras/models.md` alone.
"""

import asyncio

import pytest

from ragpipe.core.errors import Skipped
from ragpipe.core.sample import AnyReference
from ragpipe.extras.models.detector_judge import DetectorJudge
from ragpipe.extras.models.detector_models import Reading, TokenReading, open_reader
from ragpipe.extras.models.detector_settings import DetectorSettings
from ragpipe.judge.answers import (
    CheckedClaims,
    CitationVerdicts,
    CitedClaims,
    Claims,
    Groundedness,
    QuotedClaims,
    QuotedVerdicts,
    Refusal,
    Verdicts,
    YesNo,
)
from tests.extras.models.fake_packages import install, write_files
from tests.unit.judge.rules.conftest import prompt_with

TEA = "Green tea is an old drink. It comes from China. It is brewed at 80 degrees."
BEES = "Bees make honey. Honey keeps for years."
ORIGIN, HEAT = "Green tea comes from China.", "Green tea is brewed at 95 degrees."


def judge(readings, family="nli", **changes):
    """The judge over a mapping of texts to readings; it remembers what was asked."""
    asked = []

    async def read(texts):
        asked.append(texts)
        return readings[texts] if isinstance(readings, dict) else readings(texts)

    made = DetectorJudge(DetectorSettings(family=family, path="folder", **changes), read)
    return made, asked


def asked_for(answer, by_role):
    """The arguments of a question: prompt, type of the answer, and values."""
    variables = {f"the_{role}": role for role in by_role}
    return prompt_with(variables), answer, {name: by_role[role] for name, role in variables.items()}


def ask(made, answer, **by_role):
    return asyncio.run(made.read(*asked_for(answer, by_role)))


def tokens(answer, *unsupported):
    """A reading with a token per word; those named are unsupported at .9, the others at .1."""
    found, at = [], 0
    for word in answer.split():
        at = answer.index(word, at)
        found.append(TokenReading(start=at, end=at + len(word), unsupported=0.9 if word in unsupported else 0.1))
        at += len(word)
    return Reading(tokens=found)


def test_a_claim_is_supported_where_one_passage_supports_it():
    readings = {
        (ORIGIN, BEES, TEA): Reading(support=[0.03, 0.91], contradiction=[0.05, 0.02]),
        (HEAT, BEES, TEA): Reading(support=[0.02, 0.04], contradiction=[0.01, 0.93]),
    }
    made, asked = judge(readings)
    found = ask(made, QuotedVerdicts, claims=[ORIGIN, HEAT], sources=[BEES, TEA]).verdicts
    assert asked == list(readings)
    assert [(v.index, v.verdict) for v in found] == [(1, "supported"), (2, "contradicted")]
    assert all(len(v.evidence) == 1 and v.evidence[0] in TEA for v in found)
    assert "It comes from China." in found[0].evidence[0]
    assert [v.reason for v in found] == [
        "support 0.910 of 0.5 needed, contradiction 0.050; passage 2 of 2",
        "support 0.040 of 0.5 needed, contradiction 0.930; passage 2 of 2",
    ]


@pytest.mark.parametrize(("support", "contradiction", "threshold", "verdict"), [
    (0.5, [0.5], 0.5, "supported"),
    (0.49, [0.5], 0.5, "contradicted"),
    (0.49, [0.49], 0.5, "not_supported"),
    (0.6, [], 0.7, "not_supported"),
    (0.7, [], 0.7, "supported"),
    (0.2, [0.65], 0.7, "not_supported"),
])  # fmt: skip
def test_the_threshold(support, contradiction, threshold, verdict):
    made, _ = judge(lambda _: Reading(support=[support], contradiction=contradiction), threshold=threshold)
    (found,) = ask(made, QuotedVerdicts, claims=[ORIGIN], sources=[TEA]).verdicts
    assert found.verdict == verdict
    assert bool(found.evidence) == (verdict != "not_supported")
    (plain,) = ask(made, Verdicts, claims=[ORIGIN], sources=[TEA]).verdicts
    assert plain.supported == (verdict == "supported")


def test_marks_of_citations_are_no_part_of_a_claim():
    made, asked = judge(lambda texts: Reading(support=[0.9] * len(texts[1:])))
    ask(made, Verdicts, claims=["Green tea comes from China [2]."], sources=["  ...", TEA])
    assert asked == [("Green tea comes from China .", "  ...", TEA)]
    (found,) = ask(judge(lambda _: Reading())[0], Verdicts, claims=[ORIGIN], sources=[]).verdicts
    assert not found.supported


@pytest.mark.parametrize("role", ["text", "reference"])
def test_claims_and_verdicts_at_once_equal_two_questions(role):
    text = f"{ORIGIN} Shall I go on? {HEAT}"
    made, _ = judge(lambda texts: Reading(support=[0.9 if texts[0] == ORIGIN else 0.1]))
    claims = ask(made, Claims, **{role: text}).claims
    assert claims == [ORIGIN, HEAT]
    apart = ask(made, Verdicts, claims=claims, sources=[TEA]).verdicts
    at_once = ask(made, CheckedClaims, **{role: text}, sources=[TEA], question="Where from?").claims
    assert [(c.claim, c.supported) for c in at_once] == [(ORIGIN, True), (HEAT, False)]
    assert [(c.supported, c.evidence, c.reason) for c in at_once] == [(v.supported, v.evidence, v.reason) for v in apart]


@pytest.mark.parametrize("labels", [("contradiction", "Entailment"), ("not_entailment", "entailment")])
def test_a_model_of_claims_reads_each_passage_and_of_a_long_one_the_part_that_supports_most(tmp_path, monkeypatch, labels):
    packages = install(monkeypatch, limit=24)
    packages.labels = dict(enumerate(labels))
    read = open_reader(DetectorSettings(family="nli", path=str(write_files(tmp_path, "nli"))))
    reading = read(ORIGIN, "...", f"{BEES} {ORIGIN} {BEES}", BEES)
    share = 0.982014  # all words of the claim are in one part: 1 / (1 + exp(-4))
    assert reading.support == [0.0, share, 0.0]
    assert reading.contradiction == ([0.0, 1.0, 1.0] if labels[0] == "contradiction" else [])  # a part about bees says the opposite
    assert {claim for _, claim in packages.asked} == {ORIGIN}
    assert "leave no room" in read(" ".join([ORIGIN] * 9), BEES).too_long
    packages.labels = {0: "no", 1: "yes"}
    with pytest.raises(ValueError, match="the labels no, yes: none"):
        open_reader(DetectorSettings(family="nli", path=str(tmp_path)))


def test_a_claim_with_an_unsupported_span_is_not_supported():
    answer = f"## Tea\n- **{ORIGIN}**\n- {HEAT}"
    made, asked = judge(lambda texts: tokens(texts[1], "95"), family="lettucedetect")
    found = ask(made, QuotedClaims, text=answer, question="Tea?", sources=[TEA, BEES]).claims
    assert asked == [("Tea?", answer, TEA, BEES)]  # the whole answer, as it stands, in one reading
    assert [(c.claim, c.verdict) for c in found] == [(ORIGIN, "supported"), (HEAT, "not_supported")]
    assert [c.reason for c in found] == ["no unsupported span (highest 0.100)", "unsupported: '95' (0.900)"]
    assert found[0].evidence[0] in TEA
    assert found[1].evidence == []


def test_listed_claims_are_read_as_one_answer():
    made, asked = judge(lambda texts: tokens(texts[1], "95"), family="lettucedetect")
    found = ask(made, Verdicts, claims=[ORIGIN, HEAT], sources=[TEA]).verdicts
    assert asked == [("", f"{ORIGIN} {HEAT}", TEA)]
    assert [v.supported for v in found] == [True, False]


def test_a_span_over_a_stop_touches_no_claim():
    stop = TokenReading(start=len(ORIGIN) - 1, end=len(ORIGIN), unsupported=0.9)
    made, _ = judge(lambda _: Reading(tokens=[stop]), family="lettucedetect")
    found = ask(made, CheckedClaims, text=f"{ORIGIN} {HEAT}", sources=[TEA]).claims
    assert [c.supported for c in found] == [True, True]


def test_a_stricter_threshold_needs_no_other_reading():
    answer = tokens(ORIGIN)
    for threshold, supported in ((0.5, True), (0.9, True), (0.95, False)):  # each word is supported at .9
        made, _ = judge(lambda _: answer, family="lettucedetect", threshold=threshold)
        (found,) = ask(made, Verdicts, claims=[ORIGIN], sources=[TEA]).verdicts
        assert found.supported is supported
        assert made.settings.identity_of_reading() == judge({}, family="lettucedetect")[0].settings.identity_of_reading()
        assert made.settings.identity_of_judge()["threshold"] == threshold


@pytest.mark.parametrize("family", ["lettucedetect", "nli"])
def test_a_citation_is_checked_against_its_own_source(family):
    def read(texts):
        passage, answer = (texts[2], texts[1]) if family == "lettucedetect" else texts[::-1]
        fits = ("tea" in passage) == ("tea" in answer)
        return tokens(answer, *(() if fits else answer.split())) if family == "lettucedetect" else Reading(support=[float(fits)])

    made, asked = judge(read, family=family)
    citations = [{"text": "Green tea comes from China [1].", "source": 1}, {"text": ORIGIN, "source": 2}]
    found = ask(made, CitationVerdicts, citations=citations, sources=[TEA, BEES]).verdicts
    assert [(v.index, v.accurate) for v in found] == [(1, True), (2, False)]
    assert found[0].evidence in TEA
    assert (found[1].evidence, len(asked)) == ("", 2)
    claims = ask(made, CitedClaims, text="Green tea comes from China [1]. It is old.", citations=[]).claims
    assert [c.cited for c in claims] == [True, False]


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
            made.answer(*asked_for(answer, roles))
    assert asked == []
    assert ask(made, CheckedClaims, text="I cannot answer that.", sources=[TEA]).claims == []
