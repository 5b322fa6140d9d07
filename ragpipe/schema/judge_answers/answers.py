"""The few types of answer that a judge can give.

An answer is asked for either as JSON (`form = "json"`: its schema goes into the question) or as plain text (`form =
"text"`: the reply is read by `from_text`). A JSON type may define `from_text` too, as its documented second form. The
findings stand before the verdict: a judge that is held to a schema writes its fields in order, and should not decide
before it has quoted and reasoned. Reading is strict: a missing key, a wrong type, NaN or a number out of range is an
error, never a default and never clamped. There are two coercions: a plain decimal in quotes ("4") is a number (`true` is
none), and null in place of an optional quote is the empty one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PydanticUserError

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.schema.text_forms import OPPOSITE, other_grades, read_grade, read_verdict

_BOUNDS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
"""pydantic leaves these names on a type with a validator before it."""
_LEFT_OUT = ("title", "$defs", "discriminator")  # a discriminator maps names of classes
_DECIMAL = re.compile(r"[+-]?[0-9]{1,9}(\.[0-9]{1,9})?\Z")  # `float` would take the digits of other scripts too


def _number(value: object) -> object:
    if isinstance(value, str) and _DECIMAL.match(value.strip()):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value!r}")
    return value


def _integer(value: object) -> object:
    value = _number(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"expected a whole number, found {value!r}")
        value = int(value)
    return value


Number = Annotated[float, BeforeValidator(_number)]
Integer = Annotated[int, BeforeValidator(_integer)]
Quote = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A passage that may be absent. The validator leaves the schema, and so every question's key, as that of a plain text."""
Share = Annotated[Number, Field(ge=0, le=1)]
Flag = Annotated[bool, Field(strict=True)]


class Answer(BaseModel):
    """Base of the answer types. Extra keys are ignored (the raw reply keeps them)."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    form: ClassVar[Literal["json", "text"]] = "json"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the plain-text form of the answer. Raises ValueError when the text does not hold one."""
        raise ValueError("this answer has no plain-text form")

    @classmethod
    def from_object(cls, value: Mapping[str, Any], prose: str) -> Self | None:
        """A text answer that came as a JSON object with `prose` around it; None when the object does not hold one."""
        return None


class Claims(Answer):
    """Atomic, self-contained factual statements, in order."""

    claims: list[str]


class Verdict(Answer):
    """Whether item number `index` (from 1) is supported, with a literal quote as evidence ('' when there is none)."""

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


class ChunkVerdict(Answer):
    """Whether chunk number `index` (from 1) helps to answer the question."""

    index: Integer
    reason: str = ""
    relevant: Flag


class ContextRelevance(Answer):
    """One verdict per chunk asked about, then how far the chunks together give what the question needs, 0 to 1."""

    verdicts: list[ChunkVerdict]
    reason: str = ""
    score: Share


class ChunkGrade(Answer):
    """How relevant chunk number `index` (from 1) is, 0 to 100, and whether it counts as relevant."""

    index: Integer
    reason: str = ""
    relevance: Annotated[Number, Field(ge=0, le=100)]
    relevant: Flag


class ChunkGrades(Answer):
    """One grade per chunk asked about; completeness is checked by the metric, never padded."""

    verdicts: list[ChunkGrade]


class AnswerRelevance(Answer):
    """How well an answer answers what was asked, 0 to 1, with the findings that lead to it."""

    reason: str = ""
    addresses_question: Flag
    on_topic: Flag
    completeness: Share
    score: Share


class GeneratedQuestions(Answer):
    """Questions that a text would answer; empty when it answers none."""

    questions: list[str]


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
        words = {item.strip().upper() for item in value.values() if isinstance(item, str)} & OPPOSITE.keys()
        if not words:
            return None
        verdicts = words | ({read_verdict(prose)} - {None})
        verdict = verdicts.pop() if len(verdicts) == 1 else "NEITHER"
        return cls.model_validate({"verdict": verdict, "text": str(value.get("reason") or prose.strip())})

    @property
    def yes(self) -> bool:
        return self.verdict == "YES"


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


class Groundedness(Answer):
    """How well the contexts bear the answer, 0 to 5, with the claims on either side."""

    supported_claims: list[str]
    unsupported_claims: list[str]
    major_claims_cited: Annotated[bool, Field(strict=True)] | None = None
    reason: str = ""
    score: Annotated[Integer, Field(ge=0, le=5)]


class Grade05(Answer):
    """A whole grade from 0 to 5 with the reasons for it."""

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


@lru_cache(maxsize=64)
def answer_schema(answer: type[Answer]) -> dict[str, Any]:
    """The part of an answer type that is in a question's key and is sent: its fields in their order, with the text of
    `Field(description=...)`. No titles, docstrings or class names, and of a type from outside of ragpipe no defaults: what
    is filled in where the judge gave nothing is no part of the question.

    pydantic puts class names and docstrings into its JSON schema; left there, renaming a class would bill every
    question again. Raises ConfigError for a type that holds itself, or that no JSON schema can describe.
    """
    if answer.form == "text":
        return {"form": "text", "type": re.sub(r"(?<!^)(?=[A-Z])", "_", answer.__name__).lower()}
    try:
        schema = answer.model_json_schema()
        found: dict[str, Any] = _Bare(schema.get("$defs", {}))(_undescribed(schema))
    except _HoldsItself as error:
        raise _unaskable(
            answer,
            f"{error}, which holds itself",
            "a form with an end: some judges take no schema without one",
            "give each level a type of its own, or ask for a flat list whose items name their parent",
        ) from None
    except PydanticUserError as error:
        why = error.message.partition("\n")[0]
        raise _unaskable(
            answer, why, "fields that JSON can hold", "texts, numbers, booleans, lists, and models of these"
        ) from None
    return found if answer.__module__.partition(".")[0] == "ragpipe" else _without_defaults(found)


def _unaskable(answer: type[Answer], found: str, expected: str, fix: str) -> ConfigError:
    name = f"{answer.__module__}.{answer.__qualname__}"
    return ConfigError("an answer type cannot be asked for", [Problem(name, "fields", found, expected, fix)])


class _HoldsItself(Exception):
    """Its text is the name of the class."""


class _Bare:
    """A JSON schema of pydantic's, with what it refers to in place."""

    def __init__(self, defs: Mapping[str, Any]):
        self._defs = defs
        self._open: list[str] = []

    def __call__(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return self._referred(node)
        found: dict[str, Any] = {}
        for key, value in node.items():
            if key == "properties":
                found["properties"] = {name: self(item) for name, item in value.items()}
            elif key not in _LEFT_OUT:
                found[_BOUNDS.get(str(key), str(key))] = self(value)
        return found

    def _referred(self, node: Mapping[str, Any]) -> Any:
        """The class that a field refers to; what the field says of it comes first."""
        name = str(node["$ref"]).rsplit("/", 1)[1]
        if name in self._open:
            raise _HoldsItself(name)
        self._open.append(name)
        try:
            found = self(_undescribed(self._defs[name]))
        finally:
            self._open.pop()
        return {"description": node["description"], **found} if "description" in node else found


def _undescribed(node: Mapping[str, Any]) -> dict[str, Any]:
    """A class without its docstring."""
    return {key: value for key, value in node.items() if key != "description"}


def _without_defaults(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_defaults(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: _without_defaults(item) for name, item in value.items()}
        if key == "properties"
        else _without_defaults(value)
        for key, value in node.items()
        if key != "default"
    }
