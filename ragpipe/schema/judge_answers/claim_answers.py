"""Claims, and what a judge says about each of them: support, correctness, origin; nuggets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ragpipe.schema.judge_answers.answer_type import Answer, Flag, Integer, ItemRole, Quote, Quotes

Support = Literal["supported", "contradicted", "not_supported"]
"""What the contexts do with a claim: state or imply it, say what cannot be true together with it, or neither."""


class Claims(Answer):
    """Atomic, self-contained factual statements, in order."""

    claims: list[str]


class Verdict(Answer):
    """Whether item number `index` (from 1) is supported, with a literal quote as evidence ('' when there is none)."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "claims"}
    index: Integer
    evidence: Quote = ""
    reason: str = ""
    supported: Annotated[bool, Field(strict=True)]


class Verdicts(Answer):
    """One verdict per item asked about; completeness is checked by the metric, never padded."""

    verdicts: list[Verdict]


class CheckedClaim(Answer):
    """A factual statement with its verdict, from one reply that both found and judged it."""

    claim: str
    evidence: Quote = ""
    reason: str = ""
    supported: Flag


class CheckedClaims(Answer):
    """The factual statements of a text in order, each with its verdict."""

    claims: list[CheckedClaim]


class QuotedVerdict(Answer):
    """What the contexts do with item number `index` (from 1), with the passages that decide it."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "claims"}
    index: Integer
    evidence: Quotes = Field(default_factory=list)
    reason: str = ""
    verdict: Support


class QuotedVerdicts(Answer):
    """One verdict per item asked about; completeness is checked by the metric, never padded."""

    verdicts: list[QuotedVerdict]


class QuotedClaim(Answer):
    """A factual statement with its verdict and the passages that decide it; none where the contexts say nothing on it."""

    claim: str
    evidence: Quotes = Field(default_factory=list)
    reason: str = ""
    verdict: Support

    @property
    def supported(self) -> bool:
        return self.verdict == "supported"


class QuotedClaims(Answer):
    """The factual statements of a text in order, each with its verdict."""

    claims: list[QuotedClaim]


class ClaimCheck(Answer):
    """Whether claim number `index` (from 1) is right by the reference answer."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "claims"}
    index: Integer
    reason: str = ""
    correct: Flag


class ClaimChecks(Answer):
    """One verdict per claim asked about; completeness is checked by the metric, never padded."""

    verdicts: list[ClaimCheck]


class ClaimOrigin(Answer):
    """The numbers (from 1) of the contexts that state claim number `index` (from 1); empty when none does."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "claims", "contexts": "sources"}
    index: Integer
    reason: str = ""
    contexts: list[Integer]


class ClaimOrigins(Answer):
    """One finding per claim asked about; completeness is checked by the metric, never padded."""

    verdicts: list[ClaimOrigin]


class Nugget(Answer):
    """An atomic fact that a good answer holds: `vital` (it must) or `okay` (it may)."""

    nugget: str
    importance: Literal["vital", "okay"]


class Nuggets(Answer):
    """The nuggets of a text, the most important first; empty when it has none."""

    nuggets: list[Nugget]


class NuggetSupport(Answer):
    """How far an answer holds nugget number `index` (from 1)."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "claims"}
    index: Integer
    reason: str = ""
    support: Literal["support", "partial_support", "not_support"]


class NuggetSupports(Answer):
    """One finding per nugget asked about; completeness is checked by the metric, never padded."""

    verdicts: list[NuggetSupport]
