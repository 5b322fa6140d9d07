"""The canary set of `task=drift`: graded questions, and the verdicts in the replies to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from pydantic import JsonValue

from ragpipe.core.call import Payload
from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.fences import fenced_values
from ragpipe.core.resources import data_path, prompts_dir
from ragpipe.core.yaml_files import FastLoader
from ragpipe.judge.answer_parsing import Unparsable, read_answer
from ragpipe.judge.answer_type import Answer, answer_schema
from ragpipe.judge.answers import ANSWER_TYPES
from ragpipe.judge.prompt_library import PromptLibrary

SET = "canaries.v1.yaml"
Verdicts = dict[str, JsonValue]
"""Values by name: `item/field`, or `item/field[2]` for the second numbered item of the reply."""
UNREADABLE, MISSING = "(unreadable)", "(missing)"
"""The verdicts of a reply that is no answer at all, and of one that leaves them out."""


@dataclass(frozen=True)
class CanaryItem:
    """One question of the set. `grades` are the verdicts that its authors give, by the name of the verdict."""

    name: str
    payload: Payload
    answer: type[Answer]
    grades: Mapping[str, JsonValue]

    def verdicts(self, text: str) -> Verdicts:
        """The graded verdicts in a reply."""
        try:
            answer = read_answer(text, self.answer, fenced_values(self.payload.messages))[0].model_dump(mode="json")
        except Unparsable:
            return dict.fromkeys(self.grades, UNREADABLE)
        return {name: _value(answer, name.partition("/")[2]) for name in self.grades}


@dataclass(frozen=True)
class CanarySet:
    """The questions. `digest` changes with every message, schema and grade."""

    version: int
    digest: str
    items: tuple[CanaryItem, ...]

    @property
    def grades(self) -> dict[str, JsonValue]:
        """The grades of all items by the name of the verdict."""
        return {name: grade for item in self.items for name, grade in item.grades.items()}


@cache
def read_canaries() -> CanarySet:
    """The shipped set. Its templates are those that ragpipe ships, whatever `prompt_dirs` says."""
    content = yaml.load(data_path(f"package:{SET}").read_text(encoding="utf-8"), Loader=FastLoader)
    library = PromptLibrary([prompts_dir()])
    items = tuple(_item(item, library) for item in content["items"])
    digest = sha256([[item.name, item.payload.id, dict(item.grades)] for item in items])
    return CanarySet(content["version"], digest, items)


def _item(item: Mapping[str, Any], library: PromptLibrary) -> CanaryItem:
    folder, step, version = item["prompt"].replace("/", ".", 1).split(".", 2)
    prompt, answer = library.load(folder, step, version), ANSWER_TYPES[item["answer"]]
    values = {
        name: [{"text": text} for text in value] if prompt.roles.get(name) == "sources" else value
        for name, value in item["values"].items()
    }
    grades: dict[str, JsonValue] = {}
    for place, grade in item["grades"].items():
        if isinstance(grade, list):  # one grade for each numbered item of the reply
            grades |= {f"{item['id']}/{place}[{number}]": value for number, value in enumerate(grade, 1)}
        else:
            grades[f"{item['id']}/{place}"] = grade
    return CanaryItem(item["id"], Payload(prompt.render(**values), answer_schema(answer)), answer, grades)


def _value(answer: Mapping[str, Any], field: str) -> JsonValue:
    """The value at `score`, `correctness.score` or `verdict[2]`, which is that of the item with index 2."""
    field, _, place = field.rstrip("]").partition("[")
    value: Any = answer
    if place:
        numbered = [item for item in answer.get("verdicts", ()) if item.get("index") == int(place)]
        value = numbered[0] if len(numbered) == 1 else {}
    for key in field.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return MISSING
        value = value[key]
    return sorted(value) if isinstance(value, list) else value


def is_right(value: JsonValue, grade: JsonValue) -> bool:
    """Whether a verdict is the one that the set's authors give: equal, or within their range."""
    if isinstance(grade, dict):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and grade["low"] <= value <= grade["high"]  # type: ignore[operator]
    return same_value(value, grade)


def same_value(a: JsonValue, b: JsonValue) -> bool:
    """Whether two values are the same JSON; 4 and 4.0 are one number, true is none."""
    if isinstance(a, list | dict) or isinstance(b, list | dict):
        return canonical_json(a) == canonical_json(b)
    return a == b and isinstance(a, bool) == isinstance(b, bool)
