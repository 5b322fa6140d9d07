"""The canary set: questions with known verdicts, as payloads to ask and as verdicts to read from the replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from pydantic import JsonValue

from ragpipe.core.digest import sha256
from ragpipe.core.resources import data_path, prompts_dir
from ragpipe.core.yaml_files import FastLoader
from ragpipe.judging.replies.answer_parsing import Unparsable, read_answer
from ragpipe.prompting.fences import fenced_values
from ragpipe.prompting.library import PromptLibrary
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.all_answers import ANSWER_TYPES
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.judge_answers.answer_type import Answer

Verdicts = dict[str, JsonValue]
"""Values by name: `item/field`, or `item/field[2]` for the second numbered item of the reply."""
UNREADABLE = "(unreadable)"
MISSING = "(missing)"
SHIPPED = "package:canaries.v1.yaml"


@dataclass(frozen=True)
class CanaryItem:
    """One question of the set. `grades` are the verdicts that its authors give, by the name of the verdict."""

    name: str
    payload: Payload
    answer: type[Answer]
    grades: Mapping[str, JsonValue]

    def verdicts(self, text: str) -> Verdicts:
        """The graded verdicts in a reply: what stands there, `(missing)` where the reply leaves one out, and `(unreadable)` for
        all of them where it is no answer at all."""
        try:
            answer = read_answer(text, self.answer, fenced_values(self.payload.messages))[0].model_dump(mode="json")
        except Unparsable:
            return dict.fromkeys(self.grades, UNREADABLE)
        return {name: _value(answer, name.partition("/")[2]) for name in self.grades}


@dataclass(frozen=True)
class CanarySet:
    """The questions. `digest` changes with every message, schema and grade."""

    name: str
    version: int
    digest: str
    items: tuple[CanaryItem, ...]

    @property
    def grades(self) -> dict[str, JsonValue]:
        """The grades of all items by the name of the verdict."""
        return {name: grade for item in self.items for name, grade in item.grades.items()}

    def document(self) -> dict[str, Any]:
        """What identifies the set in a file."""
        return {"name": self.name, "version": self.version, "digest": self.digest}


@cache
def read_canaries() -> CanarySet:
    """The shipped set. Its templates are those that ragpipe ships, whatever `prompt_dirs` says."""
    content = yaml.load(data_path(SHIPPED).read_text(encoding="utf-8"), Loader=FastLoader)
    library = PromptLibrary([prompts_dir()])
    items = tuple(_item(item, library) for item in content["items"])
    digest = sha256([[item.name, item.payload.id, dict(item.grades)] for item in items])
    return CanarySet(SHIPPED.rpartition(":")[2], content["version"], digest, items)


def _item(item: Mapping[str, Any], library: PromptLibrary) -> CanaryItem:
    folder, _, name = item["prompt"].partition("/")
    step, _, version = name.partition(".")
    prompt, answer = library.load(folder, step, version), ANSWER_TYPES[item["answer"]]
    values = {
        name: [{"text": text} for text in value] if prompt.roles.get(name) == "sources" else value
        for name, value in item["values"].items()
    }
    grades: dict[str, JsonValue] = {}
    for field, grade in item["grades"].items():
        if isinstance(grade, list):  # one grade for each numbered item of the reply
            grades |= {f"{item['id']}/{field}[{place}]": value for place, value in enumerate(grade, 1)}
        else:
            grades[f"{item['id']}/{field}"] = grade
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
    return value == grade and isinstance(value, bool) == isinstance(grade, bool)
