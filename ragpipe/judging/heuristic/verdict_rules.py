"""From a claim's features to a verdict, by fixed rules that the reason shows.

A claim is supported when the mean of four overlaps with the sources (recall, window, bigrams, lcs) reaches the
threshold and nothing contradicts it: no number, name or quotation that no source has, no opposite negation. All
four count alike: a logistic regression over the same features ranked no better on the development half of the RAGTruth
answers (`docs/offline-judge.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragpipe.core.errors import Skipped
from ragpipe.judging.heuristic.claim_features import ClaimFeatures, SourceIndex, extract_features
from ragpipe.judging.heuristic.settings import CONTRADICTS_FROM, HeuristicSettings
from ragpipe.patterns.languages import NOT_COVERED, language_of


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """The verdict on one claim. `overlap` is the mean that is compared with the threshold; `objections` are what
    contradicts the claim."""

    claim: str
    supported: bool
    overlap: float
    objections: tuple[str, ...]
    features: ClaimFeatures
    threshold: float

    @property
    def contradicted(self) -> bool:
        """Whether the sources are about the same thing, but a number, name, quotation or negation is not theirs."""
        return bool(self.objections) and self.overlap >= CONTRADICTS_FROM

    @property
    def evidence(self) -> str:
        """A literal passage of one source that supports the claim or that it contradicts; '' for neither."""
        return self.features.evidence if self.supported or self.contradicted else ""

    @property
    def reason(self) -> str:
        """The objections, and the figures behind the verdict."""
        f = self.features
        figures = (
            f"overlap {self.overlap:.2f} of {self.threshold:.2f} needed (words {f.recall:.2f}, best window {f.window:.2f}, "
            f"word pairs {f.bigrams:.2f}, common order {f.lcs:.2f}; numbers {f.numbers:.2f}, names {f.names:.2f})"
        )
        return "; ".join((*self.objections, figures))


def decide(claims: Sequence[str], sources: SourceIndex, settings: HeuristicSettings) -> list[ClaimFinding]:
    """One finding per claim, in order. A repeated claim is decided once.

    Raises Skipped (`language_not_covered`) where either the claims or the sources alone are English, and where the sources are
    not and a claim is neither supported nor contradicted: without stems and stop words, other words say nothing there. Names
    are not compared in such texts: in some languages every noun has a capital.
    """
    told = {language_of(" ".join(claims)), sources.language} - {None}
    if "en" in told and not told <= {"en", "other"}:
        raise Skipped(NOT_COVERED)
    covered = told <= {"en"}
    findings = {claim: _decide_claim(claim, sources, settings, names=covered) for claim in dict.fromkeys(claims)}
    if not covered and not all(finding.supported or finding.contradicted for finding in findings.values()):
        raise Skipped(NOT_COVERED)
    return [findings[claim] for claim in claims]


def _decide_claim(claim: str, sources: SourceIndex, settings: HeuristicSettings, *, names: bool) -> ClaimFinding:
    features = extract_features(claim, sources, settings.window)
    overlap = (features.recall + features.window + features.bigrams + features.lcs) / 4
    objections = tuple(_objections(features, names=names))
    # Support needs a passage to show: a superscript 2 may match a number, and is no word.
    supported = overlap >= settings.threshold and not objections and bool(features.evidence)
    return ClaimFinding(claim, supported, overlap, objections, features, settings.threshold)


def _objections(features: ClaimFeatures, *, names: bool) -> list[str]:
    objections = []
    if features.missing_numbers:
        objections.append(f"not in the sources: number {', '.join(features.missing_numbers)}")
    if names and features.missing_names:
        objections.append(f"not in the sources: name {', '.join(features.missing_names)}")
    if not features.quotes:
        objections.append("a quotation is not in the sources")
    if features.negated:
        objections.append("the nearest sentence says it with the opposite negation")
    return objections
