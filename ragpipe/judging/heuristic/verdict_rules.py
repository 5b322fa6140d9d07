"""From signals to a verdict, by fixed rules that can be read off the reason.

A claim is supported when the plain mean of four overlaps with the sources (recall, window, bigrams, lcs) reaches the
threshold and nothing in it contradicts them: no number, name or quotation that no source has, no turned negation. The
mean has no fitted weights; a logistic regression over the same signals ranked no better on the development half of the
RAGTruth answers (`docs/evidence.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragpipe.judging.heuristic.claim_features import ClaimFeatures, Pool, extract_features
from ragpipe.judging.heuristic.settings import HeuristicSettings


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """What was found for one claim. `objections` name what contradicts; `overlap` is the mean that is
    compared with the threshold."""

    claim: str
    supported: bool
    overlap: float
    objections: tuple[str, ...]
    signals: ClaimFeatures
    threshold: float
    contradicts_from: float

    @property
    def contradicted(self) -> bool:
        """The sources speak of the same thing, yet a number, name, quotation or negation is not theirs.

        Not measured by the threshold of support: a stricter one would turn contradictions into mere lack of support.
        """
        return bool(self.objections) and self.overlap >= self.contradicts_from

    @property
    def evidence(self) -> str:
        """A literal stretch of one source: what supports the claim or what it contradicts; '' for neither."""
        return self.signals.evidence if self.supported or self.contradicted else ""

    @property
    def reason(self) -> str:
        s = self.signals
        seen = (
            f"overlap {self.overlap:.2f} of {self.threshold:.2f} needed (words {s.recall:.2f}, best window {s.window:.2f}, "
            f"word pairs {s.bigrams:.2f}, common order {s.lcs:.2f}; numbers {s.numbers:.2f}, names {s.names:.2f})"
        )
        return "; ".join((*self.objections, seen))


def decide(claims: Sequence[str], pool: Pool, settings: HeuristicSettings) -> list[ClaimFinding]:
    """One finding a claim, in order; a repeated claim is looked at once."""
    found = {claim: _judge(claim, pool, settings) for claim in dict.fromkeys(claims)}
    return [found[claim] for claim in claims]


def _judge(claim: str, pool: Pool, settings: HeuristicSettings) -> ClaimFinding:
    signals = extract_features(claim, pool, settings.window)
    overlap = (signals.recall + signals.window + signals.bigrams + signals.lcs) / 4
    objections = tuple(_objections(signals, settings))
    # Without a stretch of a source to show there is nothing to point at: a superscript 2 may count as a two, and is no word.
    supported = overlap >= settings.threshold and not objections and bool(signals.evidence)
    return ClaimFinding(claim, supported, overlap, objections, signals, settings.threshold, settings.contradicts_from)


def _objections(signals: ClaimFeatures, settings: HeuristicSettings) -> list[str]:
    found = []
    if settings.require_numbers and signals.missing_numbers:
        found.append(f"not in the sources: number {', '.join(signals.missing_numbers)}")
    if settings.require_names and signals.missing_names:
        found.append(f"not in the sources: name {', '.join(signals.missing_names)}")
    if settings.require_quotes and not signals.quotes:
        found.append("a quotation is not in the sources")
    if settings.require_negation and signals.negated:
        found.append("the nearest sentence says it with the opposite negation")
    return found
