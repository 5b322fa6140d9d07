"""Graded examples: files of worked examples for one step, each with the values shown and the reply that they deserve.

A file is `<folder>/<step>.examples.v<N>.yaml` in a prompt folder, beside the templates of its step. Like a template it has a
version that never changes once it is published, a hash, and a copy in the folder of every run that uses it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ragpipe.core.digest import sha256
from ragpipe.core.errors import Problem, PromptError
from ragpipe.core.yaml_files import FastLoader, check_text, lines_of
from ragpipe.prompting.prompt import Prompt
from ragpipe.prompting.template_files import read_text
from ragpipe.schema.judge_answers.answer_type import Answer

EXAMPLES_NAME = re.compile(r"(?P<step>[a-z][a-z0-9_]*)\.examples\.(?P<version>v\d+[a-z0-9_]*)\.yaml\Z")
_REASONS = ("reason", "reasoning")
_SOURCE_NUMBER, _ITEM_NUMBER = "[{}]", "{}."


@dataclass(frozen=True)
class GradedExamples:
    """The worked examples of one file.

    `name` is that of the step, `<folder>/<step>`. `sha256` is the hash of what the examples say: comments and layout are not in
    it. `examples` has the values and the reply of each, `lines` the line of each key of the file.
    """

    name: str
    version: str
    path: Path
    text: str
    sha256: str
    examples: tuple[Mapping[str, Any], ...]
    lines: Mapping[str, int] = field(repr=False)

    @property
    def signature(self) -> str:
        """`faithfulness/verify.examples.v1@1a2b3c4d`: recorded beside every number measured with these examples."""
        return f"{self.name}.examples.{self.version}@{self.sha256[:8]}"

    @property
    def sources(self) -> dict[str, str]:
        """The text of the file by its path below a prompt folder."""
        return {f"{self.name}.examples.{self.version}.yaml": self.text}

    def texts(self, prompt: Prompt) -> list[str]:
        """The examples as the judge sees them, one text each; the template fences every one of them as material."""
        return [_text(example, prompt.roles) for example in self.examples]

    def check(self, prompt: Prompt, answer: type[Answer]) -> None:
        """Raises PromptError, with file and line, for values that the step does not show or lacks, and for a reply that the step
        would not read, that grades another number of items, or that gives no reason where the answer has a place for one."""
        problems = [
            problem
            for number, example in enumerate(self.examples)
            for problem in (
                *self._value_problems(number, example["values"], prompt),
                *self._reply_problems(number, example, prompt, answer),
            )
        ]
        if problems:
            raise PromptError("graded examples are wrong", problems)

    def _value_problems(self, number: int, values: Any, prompt: Prompt) -> Iterator[Problem]:
        key = f"examples.{number}.values"
        known = [name for name, role in prompt.roles.items() if role != "numbers"]
        needed = [name for name in known if name not in prompt.optional]
        if not isinstance(values, Mapping):
            yield self._problem(key, repr(values), f"a mapping of the step's values: {', '.join(known)}")
            return
        for name, value in values.items():
            if name not in known:
                yield self._problem(f"{key}.{name}", f"the value {name!r}", f"one of {', '.join(known)}")
            elif not _is_shown(value):
                yield self._problem(f"{key}.{name}", repr(value)[:80], "a text, or a list of texts")
        if missing := [name for name in needed if name not in values]:
            yield self._problem(key, f"no {missing[0]}", f"the values that the step always shows: {', '.join(needed)}")

    def _reply_problems(
        self, number: int, example: Mapping[str, Any], prompt: Prompt, answer: type[Answer]
    ) -> Iterator[Problem]:
        key, reply = f"examples.{number}.reply", example["reply"]
        try:
            parsed = _read_reply(reply, answer)
        except ValidationError as error:
            for fault in error.errors():
                place = ".".join((key, *map(str, fault["loc"])))
                expected = f"{fault['msg'].removeprefix('Value error, ')} ({answer.__name__})"
                yield self._problem(place, repr(fault["input"])[:80], expected)
            return
        except ValueError as error:
            yield self._problem(key, repr(reply)[:80], str(error))
            return
        if isinstance(reply, Mapping):
            yield from self._key_problems(key, reply, parsed.model_dump())
            if "reason" in json.dumps(answer.model_json_schema()) and not any(_reasons(reply)):
                yield self._problem(
                    key, "a reply without a reason", "one sentence why, where the answer gives its reason"
                )
        yield from self._item_problems(key, example["values"], parsed, prompt)

    def _key_problems(self, key: str, reply: Mapping[str, Any], read: Mapping[str, Any]) -> Iterator[Problem]:
        """Keys that the answer does not have, and keys in another order than the judge is asked for."""
        for name, value in reply.items():
            if name not in read:
                yield self._problem(f"{key}.{name}", f"the key {name!r}", f"one of {', '.join(read)}")
                continue
            items = value if isinstance(value, list) else [value]
            parts = read[name] if isinstance(value, list) else [read[name]]
            for place, (item, part) in enumerate(zip(items, parts, strict=True)):
                if isinstance(item, Mapping) and isinstance(part, Mapping):
                    below = f"{key}.{name}.{place}" if isinstance(value, list) else f"{key}.{name}"
                    yield from self._key_problems(below, item, part)
        order = [name for name in read if name in reply]
        if [name for name in reply if name in read] != order:
            yield self._problem(key, f"the keys in the order {', '.join(reply)}", f"the order {', '.join(order)}")

    def _item_problems(self, key: str, values: Any, parsed: Answer, prompt: Prompt) -> Iterator[Problem]:
        """Items of the values that do not have exactly one verdict."""
        for name, verdicts in parsed:
            items = [item for item in verdicts if isinstance(item, Answer)] if isinstance(verdicts, list) else []
            role = items[0].numbered_items.get("index") if items else None
            variable = next(
                (v for v, r in prompt.roles.items() if r == role and isinstance(values, Mapping) and v in values), None
            )
            if role is None or variable is None:
                continue
            shown = values[variable] if isinstance(values[variable], list) else [values[variable]]
            numbers, wanted = [getattr(item, "index", 0) for item in items], list(range(1, len(shown) + 1))
            if numbers != wanted:
                yield self._problem(f"{key}.{name}", f"the indices {numbers}", f"one for each of {variable}: {wanted}")

    def _problem(self, key: str, value: str, expected: str) -> Problem:
        parts = key.split(".")
        line = next((self.lines[k] for n in range(len(parts), 0, -1) if (k := ".".join(parts[:n])) in self.lines), 1)
        return Problem(f"{self.path}:{line}", f"{self.path.name}: {key}", value, expected)


def read_graded_examples(path: Path, name: str, version: str) -> GradedExamples:
    """Read a file of graded examples for the step `name`. Raises PromptError, with the line, for what is not of its form; `check`
    compares it with its step."""
    text = read_text(path)
    if problems := check_text(text, str(path)):
        raise PromptError("graded examples are wrong", problems)
    content, lines = yaml.load(text, Loader=FastLoader), lines_of(path)
    examples = content.get("examples") if isinstance(content, dict) and set(content) == {"examples"} else None
    if not isinstance(examples, list) or not examples:
        raise _form_error(path, 1, f"the keys {sorted(map(str, content or ()))}", "one key `examples` with a list")
    for number, example in enumerate(examples):
        if not isinstance(example, dict) or set(example) != {"values", "reply"}:
            line = lines.get(f"examples.{number}", 1)
            keys = sorted(map(str, example)) if isinstance(example, dict) else repr(example)[:80]
            raise _form_error(path, line, f"the example {number + 1} with {keys}", "the keys `values` and `reply`")
    return GradedExamples(name, version, path, text, sha256(examples), tuple(examples), lines)


def _form_error(path: Path, line: int, value: str, expected: str) -> PromptError:
    return PromptError("graded examples are wrong", [Problem(f"{path}:{line}", path.name, value, expected)])


def _text(example: Mapping[str, Any], roles: Mapping[str, str]) -> str:
    parts = [f"{_heading(name)}:\n{_items(value, roles.get(name, ''))}" for name, value in example["values"].items()]
    reply = example["reply"]
    parts.append(f"Reply:\n{reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)}")
    return "\n\n".join(parts)


def _heading(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _items(value: Any, role: str) -> str:
    if not isinstance(value, list):
        return str(value)
    number = _SOURCE_NUMBER if role == "sources" else _ITEM_NUMBER
    return "\n".join(f"{number.format(place)} {item}" for place, item in enumerate(value, 1))


def _is_shown(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return bool(texts) and all(isinstance(text, str) and text.strip() for text in texts)


def _read_reply(reply: Any, answer: type[Answer]) -> Answer:
    """The reply as the step reads it. Raises ValueError (pydantic's among them)."""
    if answer.form == "json":
        return answer.model_validate(reply)
    if not isinstance(reply, str):
        raise ValueError(f"a text, as the step reads ({answer.__name__})")
    parsed = answer.from_text(reply)
    if getattr(parsed, "verdict", None) == "NEITHER":
        raise ValueError("a text that begins with YES or NO, in quotes: YAML reads the bare word as a truth value")
    return parsed


def _reasons(reply: Any) -> Iterator[str]:
    """The reasons in a reply that say something."""
    if isinstance(reply, Mapping):
        for name, value in reply.items():
            if name in _REASONS and isinstance(value, str) and value.strip():
                yield value
            yield from _reasons(value)
    elif isinstance(reply, list):
        for item in reply:
            yield from _reasons(item)
