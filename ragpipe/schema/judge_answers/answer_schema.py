"""The JSON schema of an answer type, as it is sent to a judge and goes into the question's key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import PydanticUserError

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.schema.judge_answers.answer_type import Answer

_BOUNDS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
"""pydantic leaves these names on a type with a validator before it."""
_LEFT_OUT = ("title", "$defs", "discriminator")  # a discriminator maps names of classes


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
    return bare if answer.__module__.partition(".")[0] == "ragpipe" else _without_defaults(bare)


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
