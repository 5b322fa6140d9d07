"""The answers that a judge can give about citations, sources and behaviour. See `answers.py` for how they are read."""

from __future__ import annotations

from typing import Literal

from ragpipe.schema.judge_answers.answers import Answer, Flag, Integer, Quote


class CitationVerdict(Answer):
    """Whether the cited context of citation number `index` (from 1) supports the text it is cited for."""

    index: Integer
    evidence: Quote = ""
    reason: str = ""
    accurate: Flag


class CitationVerdicts(Answer):
    """One verdict per citation asked about; completeness is checked by the metric, never padded."""

    verdicts: list[CitationVerdict]


class CitedClaim(Answer):
    """A factual statement of an answer, the citation that stands with it ('' without one), and whether one does."""

    claim: str
    marker: Quote = ""
    cited: Flag


class CitedClaims(Answer):
    """The factual statements of a text in order, each with its citation or without one."""

    claims: list[CitedClaim]


class SourceUse(Answer):
    """How an answer uses source number `index` (from 1), with the passage of the answer that shows it."""

    index: Integer
    evidence: Quote = ""
    reason: str = ""
    use: Literal["direct_quote", "paraphrase", "not_used"]


class SourceUses(Answer):
    """One finding per source asked about; completeness is checked by the metric, never padded."""

    verdicts: list[SourceUse]


class RuleVerdict(Answer):
    """Whether an answer breaks rule number `index` (from 1), how badly, with the passage that does."""

    index: Integer
    evidence: Quote = ""
    reason: str = ""
    severity: Literal["high", "medium", "low", "none"] = "none"
    violated: Flag


class RuleVerdicts(Answer):
    """One verdict per rule asked about; completeness is checked by the metric, never padded."""

    verdicts: list[RuleVerdict]


class Refusal(Answer):
    """Whether an answer as a whole declines, and whether it speaks of the end of its training data."""

    reason: str = ""
    training_cutoff: Flag
    declines: Flag


class Acknowledgement(Answer):
    """Whether an answer says that its sources disagree, with the passage that does."""

    evidence: Quote = ""
    reason: str = ""
    acknowledged: Flag
