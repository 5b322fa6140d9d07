"""Citations and the use of sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from ragpipe.schema.judge_answers.answer_type import Answer, Flag, Integer, ItemRole, Quote


class CitationVerdict(Answer):
    """Whether the cited context of citation number `index` (from 1) supports the text it is cited for."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "citations"}
    index: Integer
    evidence: Quote = ""
    reason: str = ""
    accurate: Flag


class CitationVerdicts(Answer):
    """One verdict per citation asked about; completeness is checked by the metric, never padded."""

    verdicts: list[CitationVerdict]


class CitedClaim(Answer):
    """A factual statement of an answer, the citation with it ('' without one), and whether one does."""

    claim: str
    marker: Quote = ""
    cited: Flag


class CitedClaims(Answer):
    """The factual statements of a text in order, each with its citation or without one."""

    claims: list[CitedClaim]


class SourceUse(Answer):
    """How an answer uses source number `index` (from 1), with the passage of the answer that shows it."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "sources"}
    index: Integer
    evidence: Quote = ""
    reason: str = ""
    use: Literal["direct_quote", "paraphrase", "not_used"]


class SourceUses(Answer):
    """One finding per source asked about; completeness is checked by the metric, never padded."""

    verdicts: list[SourceUse]
