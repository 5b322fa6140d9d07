"""From readings to a verdict per claim, with its evidence and the numbers behind it.

A model of pairs reads each claim against each passage: a claim is supported where one passage supports it. A model of spans
reads all claims of a question as one answer: a claim is supported where no unsupported span touches a word of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from ragpipe.judging.detectors.reading import Reading, Texts, TokenReading, pair_texts, span_texts
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.detectors.unsupported_spans import UnsupportedSpan, spans_of
from ragpipe.judging.heuristic.claim_features import extract_features, index_sources
from ragpipe.patterns.citation_marks import without_marks
from ragpipe.schema.judge_answers.claim_answers import Support

_WINDOW = 3  # sentences in a row of a passage that are quoted at most
_SHOWN = 3  # spans in a reason


@dataclass(frozen=True, slots=True)
class PlacedClaim:
    """A claim, and the characters of the answer that state it."""

    claim: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ClaimQuestion:
    """Claims to check: the text that states them, the passages, and what was asked ('' where that is not known)."""

    question: str
    text: str
    claims: tuple[PlacedClaim, ...]
    passages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """What the passages do with a claim. `evidence` is a literal passage of one of them, '' where there is none."""

    claim: str
    verdict: Support
    evidence: str
    reason: str

    @property
    def supported(self) -> bool:
        return self.verdict == "supported"


class ClaimChecker(Protocol):
    """How a family of models checks claims: what it reads, and the verdicts from the readings, in the same order."""

    def texts(self, question: ClaimQuestion) -> list[Texts]: ...

    def verdicts(self, question: ClaimQuestion, readings: Sequence[Reading]) -> list[ClaimVerdict]: ...


def joined_claims(question: str, claims: Sequence[str], passages: tuple[str, ...]) -> ClaimQuestion:
    """Claims whose text is not known: the claims, one after the other, are the text."""
    placed: list[PlacedClaim] = []
    at = 0
    for claim in claims:
        placed.append(PlacedClaim(claim, at, at + len(claim)))
        at += len(claim) + 1
    return ClaimQuestion(question, " ".join(claims), tuple(placed), passages)


@dataclass(frozen=True, slots=True)
class PairChecker:
    """Claims by a model that reads one claim against one passage. Marks of citations are left out of a claim."""

    settings: DetectorSettings

    def texts(self, question: ClaimQuestion) -> list[Texts]:
        """Every claim with every passage that has a word."""
        passages = _worded(question.passages)
        return [pair_texts(text, _bare(claim.claim)) for claim in question.claims for _, text in passages]

    def verdicts(self, question: ClaimQuestion, readings: Sequence[Reading]) -> list[ClaimVerdict]:
        """One verdict per claim: supported from the threshold on in one passage; contradicted where none supports it and the
        probability of contradiction reaches the threshold in one."""
        passages = _worded(question.passages)
        left = iter(readings)
        return [self._verdict(c.claim, passages, list(islice(left, len(passages)))) for c in question.claims]

    def _verdict(self, claim: str, passages: list[tuple[int, str]], readings: list[Reading]) -> ClaimVerdict:
        if not readings:
            return ClaimVerdict(claim, "not_supported", "", "no passage has a word")
        supports = [reading.support or 0.0 for reading in readings]
        contradictions = [reading.contradiction or 0.0 for reading in readings]
        support, contradiction = max(supports), max(contradictions)
        verdict: Support = "not_supported"
        best = supports.index(support)
        if support >= self.settings.threshold:
            verdict = "supported"
        elif contradiction >= self.settings.threshold:
            verdict, best = "contradicted", contradictions.index(contradiction)
        number, passage = passages[best]
        reading = readings[best]
        part = passage[reading.start : reading.end] if reading.parts > 1 else passage
        evidence = "" if verdict == "not_supported" else nearest_passage(claim, (part,)) or part.strip()
        figures = f"support {support:.3f} of {self.settings.threshold:g} needed"
        if any(each.contradiction is not None for each in readings):
            figures += f", contradiction {contradiction:.3f}"
        in_parts = f", read in {reading.parts} parts" if reading.parts > 1 else ""
        return ClaimVerdict(claim, verdict, evidence, f"{figures}; passage {number} of {passages[-1][0]}{in_parts}")


@dataclass(frozen=True, slots=True)
class SpanChecker:
    """Claims by a model that marks the unsupported tokens of a whole answer."""

    settings: DetectorSettings

    def texts(self, question: ClaimQuestion) -> list[Texts]:
        """The text of the claims with all passages; nothing where there is no claim."""
        return [span_texts(question.question, question.text, question.passages)] if question.claims else []

    def verdicts(self, question: ClaimQuestion, readings: Sequence[Reading]) -> list[ClaimVerdict]:
        """One verdict per claim: supported where no span touches a letter or digit of it. The model does not tell which passage
        supports a claim, nor contradiction: the evidence is the passage that is nearest by words."""
        if not question.claims:
            return []
        (reading,) = readings
        tokens: list[TokenReading] = reading.tokens or []
        spans = spans_of(question.text, tokens, self.settings.threshold)
        in_parts = f"; passages read in {reading.parts} parts" if reading.parts > 1 else ""
        return [self._verdict(claim, question, spans, tokens, in_parts) for claim in question.claims]

    def _verdict(
        self,
        claim: PlacedClaim,
        question: ClaimQuestion,
        spans: Sequence[UnsupportedSpan],
        tokens: Sequence[TokenReading],
        in_parts: str,
    ) -> ClaimVerdict:
        touching = [span for span in spans if _touches(span, claim, question.text)]
        if touching:
            listed = ", ".join(f"{span.text.strip()!r} ({span.confidence:.3f})" for span in touching[:_SHOWN])
            more = f" and {len(touching) - _SHOWN} more" if len(touching) > _SHOWN else ""
            return ClaimVerdict(claim.claim, "not_supported", "", f"unsupported: {listed}{more}{in_parts}")
        inside = [t.unsupported for t in tokens if t.start < claim.end and t.end > claim.start]
        highest = f"highest {max(inside):.3f}" if inside else "no token"
        evidence = nearest_passage(claim.claim, question.passages)
        return ClaimVerdict(claim.claim, "supported", evidence, f"no unsupported span ({highest}){in_parts}")


def _touches(span: UnsupportedSpan, claim: PlacedClaim, text: str) -> bool:
    shared = text[max(span.start, claim.start) : min(span.end, claim.end)]
    return any(character.isalnum() for character in shared)


def nearest_passage(claim: str, passages: tuple[str, ...]) -> str:
    """The sentences of one passage that share most words with a claim, literally; '' where none shares a word."""
    return extract_features(claim, index_sources(passages), _WINDOW).evidence


def _worded(passages: Sequence[str]) -> list[tuple[int, str]]:
    """The passages that have a word, with their numbers from 1."""
    return [(number, text) for number, text in enumerate(passages, 1) if any(c.isalnum() for c in text)]


def _bare(claim: str) -> str:
    return " ".join(without_marks(claim).split()) or claim


def checker_of(settings: DetectorSettings) -> ClaimChecker:
    """How the model of these settings checks claims."""
    return SpanChecker(settings) if settings.family == "lettucedetect" else PairChecker(settings)
