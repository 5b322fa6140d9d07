"""The base of the answers that a judge can give, and the types of their fields.

An answer is asked for either as JSON (`form = "json"`: its schema goes into the question) or as plain text (`form =
"text"`: the reply is read by `from_text`). A JSON type may define `from_text` too, as its documented second form. The
findings come before the verdict: a judge that is bound to a schema writes its fields in order, and should not decide
before it has quoted and reasoned. Reading is strict: a missing key, a wrong type, NaN or a number out of range is an
error, never a default and never clamped. There are few coercions: a plain decimal in quotes ("4"), in ASCII, full-width or
Arabic digits, is a number (`true` is not); null in place of an optional quote is the empty one, and an object with one text is
that text; a word of several is known in other letters (`Not supported`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PydanticUserError

from ragpipe.core.call import Schema
from ragpipe.core.errors import ConfigError, Problem

_DECIMAL = re.compile(r"[+-]?[0-9]{1,9}(\.[0-9]{1,9})?\Z")  # `float` would take the digits of all scripts
ASCII_DIGITS = str.maketrans("０１２３４５６７８９．٠١٢٣٤٥٦٧٨٩٫۰۱۲۳۴۵۶۷۸۹", "0123456789.0123456789.0123456789")


def _number(value: object) -> object:
    if isinstance(value, str) and _DECIMAL.match(plain := value.strip().translate(ASCII_DIGITS)):
        value = float(plain) if "." in plain else int(plain)
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


def _quote(value: object) -> object:
    """The text of an object that has one (`{"context": 1, "text": "..."}`); "" for null."""
    texts = [item for item in value.values() if isinstance(item, str)] if isinstance(value, dict) else []
    return "" if value is None else texts[0] if len(texts) == 1 else value


Quote = Annotated[str, BeforeValidator(_quote)]
"""A passage that may be absent. The validator leaves the schema, and so every question's key, as that of a plain text."""


def _quotes(value: object) -> object:
    if isinstance(value, list):
        return [_quote(item) if item is not None else item for item in value]
    value = _quote(value)
    return value if not isinstance(value, str) else [value] if value else []


Quotes = Annotated[list[str], BeforeValidator(_quotes)]
"""Passages, each copied from a text; none, one without a list around it, and null are read as the lists they mean."""


def _word(value: object) -> object:
    return "_".join(value.casefold().replace("-", " ").split()) if isinstance(value, str) else value


Word = BeforeValidator(_word)
"""For one of several words in lower case: `NOT SUPPORTED` and `not-supported` are `not_supported`."""
Share = Annotated[Number, Field(ge=0, le=1)]
Percent = Annotated[Number, Field(ge=0, le=100)]
Flag = Annotated[bool, Field(strict=True)]


ItemRole = Literal["sources", "claims", "citations", "rules"]
"""The role, as templates declare it, of items that a question numbers."""


class Answer(BaseModel):
    """Base of the answer types. Extra keys are ignored (the raw reply keeps them).

    `numbered_items`: by field that holds numbers of items, the role of these items. A question whose answer has a field `index`
    that is not declared shows its items in the order of the data, whatever `judge.shuffle_seed` says.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)
    form: ClassVar[Literal["json", "text"]] = "json"
    numbered_items: ClassVar[Mapping[str, ItemRole]] = {}

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the plain-text form of the answer. Raises ValueError when the text does not hold one."""
        raise ValueError("this answer has no plain-text form")

    @classmethod
    def from_object(cls, value: Mapping[str, Any], prose: str) -> Self | None:
        """A text answer that came as a JSON object with `prose` around it; None when the object does not hold one."""
        return None


_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf"}
"""pydantic leaves these names on a type with a validator before it."""
_LEFT_OUT = ("title", "$defs", "discriminator")  # a discriminator maps names of classes


@lru_cache(maxsize=64)
def answer_schema(answer: type[Answer]) -> Schema:
    """The part of an answer type that is in a question's key and is sent: its fields in their order, with the text of
    `Field(description=...)`. No titles, docstrings or class names, and of a type from outside of ragpipe no defaults: what
    is filled in where the judge gave nothing is no part of the question.

    pydantic puts class names and docstrings into its JSON schema; left there, renaming a class would bill every
    question again. Raises ConfigError for a type that holds itself, or that no JSON schema can describe.
    """
    if answer.form == "text":
        return Schema(form="text", type=re.sub(r"(?<!^)(?=[A-Z])", "_", answer.__name__).lower())
    try:
        schema = answer.model_json_schema()
        bare: dict[str, Any] = _Bare(schema.get("$defs", {}))(_undescribed(schema))
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
    return Schema(bare if answer.__module__.partition(".")[0] == "ragpipe" else without_defaults(bare))


def _unaskable(answer: type[Answer], problem: str, expected: str, fix: str) -> ConfigError:
    name = f"{answer.__module__}.{answer.__qualname__}"
    return ConfigError("an answer type cannot be asked for", [Problem(name, "fields", problem, expected, fix)])


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
        bare: dict[str, Any] = {}
        for key, value in node.items():
            if key == "properties":
                bare["properties"] = {name: self(item) for name, item in value.items()}
            elif key not in _LEFT_OUT:
                bare[_BOUNDS.get(str(key), str(key))] = self(value)
        return bare

    def _referred(self, node: Mapping[str, Any]) -> Any:
        """The class that a field refers to; what the field says of it comes first."""
        name = str(node["$ref"]).rsplit("/", 1)[1]
        if name in self._open:
            raise _HoldsItself(name)
        self._open.append(name)
        try:
            bare = self(_undescribed(self._defs[name]))
        finally:
            self._open.pop()
        return {"description": node["description"], **bare} if "description" in node else bare


def _undescribed(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "description"}


def without_defaults(node: Any, *, strict: bool = False) -> Any:
    """A schema without defaults; for strict modes with every key required, and no others allowed."""
    if isinstance(node, list):
        return [without_defaults(item, strict=strict) for item in node]
    if not isinstance(node, dict):
        return node
    bare = {
        key: {name: without_defaults(item, strict=strict) for name, item in value.items()}
        if key == "properties"
        else without_defaults(value, strict=strict)
        for key, value in node.items()
        if key != "default"
    }
    if strict and isinstance(node.get("properties"), dict):
        bare |= {"required": list(node["properties"]), "additionalProperties": False}
    return bare
