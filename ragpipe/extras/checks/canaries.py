"""The canary set: questions with known verdicts, as payloads to ask and as verdicts to read from the replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, JsonValue

from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, Problem, PromptError
from ragpipe.core.resources import data_path, prompts_dir
from ragpipe.core.validation import NoOrigins, validated
from ragpipe.core.yaml_files import FastLoader
from ragpipe.judging.replies.answer_parsing import Unparsable, read_answer
from ragpipe.prompting.fences import fenced_values
from ragpipe.prompting.library import PromptLibrary
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.all_answers import ANSWER_TYPES
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.settings import Settings

Verdicts = dict[str, JsonValue]
"""Values by name: `item/field`, or `item/field[2]` for the second numbered item of the reply."""
UNREADABLE = "(unreadable)"
MISSING = "(missing)"
_TITLE = "the canary set cannot be used"
_FORM = "a canary set: version, items with id, prompt, answer, values and grades (docs/extras/checks.md)"


class _ItemSettings(Settings):
    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    prompt: str = Field(pattern=r"^[a-z_]+/[a-z_]+\.v\d+$")
    answer: str
    values: dict[str, JsonValue]
    grades: dict[str, JsonValue] = Field(min_length=1)


class _FileSettings(Settings):
    """The whole file; `sources` is a place for texts that several items share."""

    version: int = Field(ge=1)
    sources: JsonValue = None
    items: list[_ItemSettings] = Field(min_length=1)


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


def read_canaries(path: str) -> CanarySet:
    """Read a canary set. Its templates are those that ragpipe ships, whatever `prompt_dirs` says.

    Raises ConfigError for a file that is not there or not of this form, for an unknown answer type or template, and for two items
    of one name.
    """

    def refused(key: str, found: str, expected: str) -> ConfigError:
        return ConfigError(_TITLE, [Problem(path, key, found, expected)])

    def canary(item: _ItemSettings) -> CanaryItem:
        if (answer := ANSWER_TYPES.get(item.answer)) is None:
            raise refused(f"items.{item.id}.answer", item.answer, f"one of {', '.join(sorted(ANSWER_TYPES))}")
        folder, _, name = item.prompt.partition("/")
        step, _, version = name.partition(".")
        try:
            prompt = library.load(folder, step, version)
            values = {
                name: [{"text": text} for text in value] if prompt.roles.get(name) == "sources" else value  # type: ignore[union-attr]
                for name, value in item.values.items()
            }
            payload = Payload(prompt.render(**values), answer_schema(answer))
        except PromptError as error:
            expected = "a shipped template, with a value for each variable"
            raise refused(f"items.{item.id}", str(error), expected) from error
        return CanaryItem(item.id, payload, answer, dict(_grades(item)))

    try:
        content = yaml.load(data_path(path).read_text(encoding="utf-8"), Loader=FastLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise refused("drift.canaries", str(error).partition("\n")[0], _FORM) from error
    problems: list[Problem] = []
    settings = validated(_FileSettings, content, "canaries", NoOrigins(), problems)
    if settings is None:
        raise ConfigError(_TITLE, [Problem(path, p.key, p.found, p.expected, p.fix) for p in problems])
    library = PromptLibrary([prompts_dir()])
    items = tuple(map(canary, settings.items))
    names = [item.name for item in items]
    if twice := sorted(name for name in names if names.count(name) > 1):
        raise refused("items", f"the id {twice[0]} twice", "an id of its own for each item")
    digest = sha256([[item.name, item.payload.id, dict(item.grades)] for item in items])
    return CanarySet(Path(path.rpartition(":")[2]).name, settings.version, digest, items)


def _grades(item: _ItemSettings) -> Iterator[tuple[str, JsonValue]]:
    for field, grade in item.grades.items():
        if isinstance(grade, list):
            yield from ((f"{item.id}/{field}[{place}]", value) for place, value in enumerate(grade, 1))
        else:
            yield f"{item.id}/{field}", grade


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
