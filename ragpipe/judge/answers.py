"""Claims, and what a judge says about each of them: support, correctness, origin; nuggets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, create_model

from ragpipe.core.text_forms import OPPOSITE, other_grades, read_grade, read_verdict
from ragpipe.judge.answer_type import Answer, Flag, Integer, ItemRole, Number, Percent, Quote, Quotes, Share, Word

Support = Annotated[Literal["supported", "contradicted", "not_supported"], Word]
"""What the contexts do with a claim: state or imply it, say what cannot be true together with it, or neither."""


ItemT = TypeVar("ItemT", bound=Answer)


class _Findings(Answer, Generic[ItemT]):
    """One finding per item asked about; completeness is checked by the metric, never padded."""

    verdicts: list[ItemT]

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        return f"{params[0].__name__}s"


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


Verdicts = _Findings[Verdict]


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


QuotedVerdicts = _Findings[QuotedVerdict]


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


ClaimChecks = _Findings[ClaimCheck]


class ClaimOrigin(Answer):
    """The numbers (from 1) of the contexts that state claim number `index` (from 1); empty when none does."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "claims", "contexts": "sources"}
    index: Integer
    reason: str = ""
    contexts: list[Integer]


ClaimOrigins = _Findings[ClaimOrigin]


class Nugget(Answer):
    """An atomic fact that a good answer holds: `vital` (it must) or `okay` (it may)."""

    nugget: str
    importance: Annotated[Literal["vital", "okay"], Word]


class Nuggets(Answer):
    """The nuggets of a text, the most important first; empty when it has none."""

    nuggets: list[Nugget]


class NuggetSupport(Answer):
    """How far an answer holds nugget number `index` (from 1)."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "claims"}
    index: Integer
    reason: str = ""
    support: Annotated[Literal["support", "partial_support", "not_support"], Word]


NuggetSupports = _Findings[NuggetSupport]


class YesNo(Answer):
    """YES or NO by the *first word* of the reply, as `read_verdict` says; anything else is NEITHER.

    A search for "yes" would read "NO. I first thought YES" as YES.
    """

    form: ClassVar[Literal["json", "text"]] = "text"
    verdict: Literal["YES", "NO", "NEITHER"]
    text: str = ""

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(verdict=read_verdict(text) or "NEITHER", text=text)

    @classmethod
    def from_object(cls, value: Mapping[str, Any], prose: str) -> Self | None:
        """By those texts of the object that are YES or NO and nothing else; the prose must not say the opposite."""
        texts = (item for item in value.values() if isinstance(item, str))
        words = {text.strip(" \n.!*").upper() for text in texts} & OPPOSITE.keys()
        if not words:
            return None
        verdicts = words | ({read_verdict(prose)} - {None})
        verdict = verdicts.pop() if len(verdicts) == 1 else "NEITHER"
        return cls.model_validate({"verdict": verdict, "text": str(value.get("reason") or prose.strip())})

    @property
    def yes(self) -> bool:
        return self.verdict == "YES"


class AnswerClass(Answer):
    """Whether an answer says what the reference says."""

    reason: str = ""
    verdict: Annotated[
        Literal["CORRECT", "WRONG"], BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value)
    ]


class Grade15(Answer):
    """A grade from 1 to 5, halves and tenths allowed, with the reasons for it.

    The plain-text form has the number alone on the first line (`4.5`, `Score: 4.5`, `**4**`, `4/5`, `4 out of 5`) and the
    feedback after it. `4,5`, a number out of range and two different numbers are refused.
    """

    reason: str = ""
    score: Annotated[Number, Field(ge=1, le=5)]

    @classmethod
    def from_text(cls, text: str) -> Self:
        head, _, rest = text.strip().partition("\n")
        score = read_grade(head)
        if score is None:
            raise ValueError(f"expected a number from 1 to 5 alone on the first line, found {head[:80]!r}")
        if grades := other_grades(rest, score):
            raise ValueError(f"two different scores, {score:g} and {grades[0]:g}")
        return cls(score=score, reason=rest.strip())


class Grade05(Answer):
    """A whole grade from 0 to 5 with the reasons for it."""

    reason: str = ""
    score: Annotated[Integer, Field(ge=0, le=5)]


class Groundedness(Answer):
    """How well the contexts bear the answer, 0 to 5, with the claims on either side."""

    supported_claims: list[str]
    unsupported_claims: list[str]
    major_claims_cited: Annotated[bool, Field(strict=True)] | None = None
    reason: str = ""
    score: Annotated[Integer, Field(ge=0, le=5)]


class AxisGrade(Answer):
    """A whole grade from 1 to 5 on one axis."""

    reason: str = ""
    score: Annotated[Integer, Field(ge=1, le=5)]


class TwoAxes(Answer):
    """Two independent grades from one reply: grounded in the context, and explains why the content fits the need."""

    faithfulness: AxisGrade
    completeness: AxisGrade


class Criterion(Answer):
    """A grade from 0 to 100 on one criterion, with the reasoning before it."""

    reasoning: str = ""
    score: Percent


class ThreeCriteria(Answer):
    """Three criteria of an answer compared with a reference, and one sentence on all of them. The metric adds them up."""

    correctness: Criterion
    completeness: Criterion
    consistency: Criterion
    reason: str = ""


class FactualAccuracy(ThreeCriteria):
    """The three criteria, and how sure the judge is, 0 to 100."""

    confidence: Percent


class RubricGrade(Answer):
    """A grade on the scale of a rubric, with the findings before it. `rubric_grade` gives the type with the scale's bounds."""

    reason: str = ""
    score: Number


@lru_cache(maxsize=64, typed=True)  # 1 and 1.0 are equal, and are written differently into a schema and so into a key
def rubric_grade(low: float, high: float, integers_only: bool) -> type[RubricGrade]:
    """The type of a grade from `low` to `high`, whole numbers only or any number."""
    number: Any = Annotated[Integer if integers_only else Number, Field(ge=low, le=high)]
    return create_model("RubricGrade", __base__=RubricGrade, __module__=__name__, score=(number, ...))


def _winner(value: Any) -> Any:
    """`b`, `Answer B`, `Tie` and `neither` mean what they say."""
    text = value.strip().lower().removeprefix("answer ") if isinstance(value, str) else None
    return {"a": "A", "b": "B", "tie": "tie", "neither": "tie"}.get(text or "", value)


class Preference(Answer):
    """Which of two answers, shown as A and B, is better."""

    reason: str = ""
    winner: Annotated[Literal["A", "B", "tie"], BeforeValidator(_winner)]


class ChunkVerdict(Answer):
    """Whether chunk number `index` (from 1) helps to answer the question."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "sources"}
    index: Integer
    reason: str = ""
    relevant: Flag


ChunkVerdicts = _Findings[ChunkVerdict]


class ContextRelevance(Answer):
    """One verdict per chunk asked about, then how far the chunks together give what the question needs, 0 to 1."""

    verdicts: list[ChunkVerdict]
    reason: str = ""
    score: Share


class ChunkGrade(Answer):
    """How relevant chunk number `index` (from 1) is, 0 to 100, and whether it counts as relevant."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "sources"}
    index: Integer
    reason: str = ""
    relevance: Annotated[Number, Field(ge=0, le=100)]
    relevant: Flag


ChunkGrades = _Findings[ChunkGrade]


class PassageGrade(Answer):
    """How relevant passage number `index` (from 1) is to the question, 0 to 3."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "sources"}
    index: Integer
    reason: str = ""
    grade: Annotated[Integer, Field(ge=0, le=3)]


PassageGrades = _Findings[PassageGrade]


class AnswerRelevance(Answer):
    """How well an answer answers what was asked, 0 to 1, with the findings that lead to it."""

    reason: str = ""
    addresses_question: Flag
    on_topic: Flag
    completeness: Share
    score: Share


class DirectRelevance(Answer):
    """How much of what was asked an answer gives, 0 to 1, with the findings that lead to it."""

    reason: str = ""
    addresses_question: Flag
    on_topic: Flag
    score: Share


class GeneratedQuestions(Answer):
    """Questions that a text would answer; empty when it answers none."""

    questions: list[str]


class Sufficiency(Answer):
    """Whether the contexts suffice to answer the question, and what is missing where they do not."""

    missing: list[str]
    reason: str = ""
    verdict: Annotated[Literal["sufficient", "partial", "insufficient"], Word]


class CitationVerdict(Answer):
    """Whether the cited context of citation number `index` (from 1) supports the text it is cited for."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "citations"}
    index: Integer
    evidence: Quote = ""
    reason: str = ""
    accurate: Flag


CitationVerdicts = _Findings[CitationVerdict]


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
    use: Annotated[Literal["direct_quote", "paraphrase", "not_used"], Word]


SourceUses = _Findings[SourceUse]


class Refusal(Answer):
    """Whether an answer as a whole declines, and whether it mentions the end of its training data."""

    reason: str = ""
    training_cutoff: Flag
    declines: Flag


class Acknowledgement(Answer):
    """Whether an answer says that its sources disagree, with the passage that does."""

    evidence: Quote = ""
    reason: str = ""
    acknowledged: Flag


class RuleVerdict(Answer):
    """Whether an answer breaks rule number `index` (from 1), how badly, with the passage that does."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "rules"}
    index: Integer
    evidence: Quote = ""
    reason: str = ""
    severity: Annotated[Literal["high", "medium", "low", "none"], Word] = "none"
    violated: Flag


RuleVerdicts = _Findings[RuleVerdict]


class Tone(Answer):
    """Whether an answer keeps a tone, with the passage that breaks it ('' when none does)."""

    evidence: Quote = ""
    reason: str = ""
    kept: Flag


class Rephrasing(Answer):
    """A question in other words."""

    question: str


class SectionQuestion(Answer):
    """A question that a section answers, the passage that proves it, and the answer."""

    question: str
    quote: str
    answer: str


class SectionQuestions(Answer):
    """Questions about one section; the list is empty where it answers none."""

    questions: list[SectionQuestion]


ANSWER_TYPES: Mapping[str, type[Answer]] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, Answer) and value not in (Answer, _Findings)
}
