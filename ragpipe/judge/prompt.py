"""One prompt: a loaded template, and the messages that it makes of a case's values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
import yaml
from jinja2.runtime import LoopContext
from pydantic import BaseModel

from ragpipe.core.call import Message
from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.errors import Problem, PromptError, PromptTooLong
from ragpipe.core.fences import OnOneLine, fenced_values, print_value, printable_texts, text_length
from ragpipe.core.yaml_files import FastLoader, check_text, named_bytes

_ABSENT = re.compile(r"'(\w+)' is undefined")
_INSTRUCTIONS = ("examples", "anchors")  # optional variables with the user's own texts, not the data's


@dataclass(frozen=True)
class Prompt:
    """One template, loaded and checked.

    `name` is `<folder>/<step>`. `sha256` is the hash of its text and of everything it includes, without comments. `blocks`
    are its messages as (role, template); a block that shows no value is plain text. `answer_type` names the type that the
    template asks for, of a step that has several; empty for the step's first.
    """

    name: str
    version: str
    path: Path
    text: str
    sha256: str
    roles: Mapping[str, str]
    optional: Mapping[str, Any]
    blocks: tuple[tuple[str, jinja2.Template | str], ...] = field(repr=False)
    variables: frozenset[str]
    includes: Mapping[str, str] = field(repr=False)
    answer_type: str = ""

    @property
    def step(self) -> str:
        """The step's name, without the folder."""
        return self.name.rsplit("/", 1)[1]

    @cached_property
    def signature(self) -> str:
        """`faithfulness/verify.v1@1a2b3c4d`: recorded beside every number measured with this template."""
        return f"{self.name}.{self.version}@{self.sha256[:8]}"

    @property
    def sources(self) -> dict[str, str]:
        """The text of the template and of everything it includes, by path below a prompt folder."""
        return {f"{self.name}.{self.version}.jinja": self.text, **self.includes}

    def render(self, **values: Any) -> tuple[Message, ...]:
        """The messages of the question.

        Pass chunks and other models as they are; a template reads their attributes. Raises PromptTooLong when the values exceed
        `MAX_RENDERED` characters, PromptError when a variable is missing, unknown or None.
        """
        unknown = set(values) - self.variables - set(self.roles)
        if unknown:
            value = f"nothing for {sorted(unknown)}, which the step gives"
            raise self._problem(value, "every value of the step under roles: or optional:", r"roles\s*:")
        messages: list[Message] = []
        context = {**self.optional, **values}
        for role, template in self.blocks:
            if isinstance(template, str):
                messages.append({"role": role, "content": template})
                continue
            try:
                text = render_block(template, context)
            except TooMuch as error:
                raise PromptTooLong(self._longest_value(values, str(error))) from error
            except jinja2.UndefinedError as error:
                raise self._undefined(str(error), values) from error
            except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
                raise self._problem(str(error), f"values for {sorted(self.variables)}") from error
            except (RecursionError, MemoryError, AssertionError) as error:
                raise self._problem(type(error).__name__, "a template that can be rendered") from error
            messages.append({"role": role, "content": text})
        return tuple(message for message in messages if message["content"])

    def length(self, values: Mapping[str, Any]) -> int:
        """The number of characters of all texts among the values."""
        return sum(map(text_length, values.values()))

    def material(self, messages: Iterable[Message], values: Mapping[str, Any]) -> list[str]:
        """The texts under test that the rendered messages show: the fenced values without worked examples, anchors of a
        rubric and rules."""
        rules = (name for name, role in self.roles.items() if role == "rules")
        instructions = {text for name in (*_INSTRUCTIONS, *rules) for text in printable_texts(values.get(name))}
        return [text for text in fenced_values(messages) if text not in instructions]

    def _longest_value(self, values: Mapping[str, Any], reason: str) -> str:
        """Which value makes a question too long: the variable with the most characters, and how many."""
        lengths = {name: text_length(value) for name, value in values.items()}
        name = max(lengths, key=lambda name: lengths[name], default="-")
        count = lengths.get(name, 0)
        return f"{self.step}: the variable {name} has {count:,} characters ({reason}); a question may have {MAX_RENDERED:,}"

    def _undefined(self, message: str, values: Mapping[str, Any]) -> PromptError:
        """A value that a template uses and does not get: a variable that the step does not give, or a part of one."""
        absent = _ABSENT.match(message)
        if absent is None or absent[1] not in self.variables:
            return self._problem(message, f"values for {sorted(self.variables)}")
        value = f"the variable {absent[1]}, which the step does not give"
        return self._problem(value, f"only {sorted(values)}", used_in_template(absent[1]))

    def _problem(self, value: str, expected: str, pattern: str = "") -> PromptError:
        """A fault of the template, with the line where the pattern first matches."""
        place = f"{self.path}:{line_of(self.text, pattern)}" if pattern else str(self.path)
        problem = Problem(place, f"{self.name}.{self.version}", value, expected)
        return PromptError("a prompt cannot be rendered", [problem])


def render_block(template: jinja2.Template, values: dict[str, Any]) -> str:
    """The text of one block. Raises TooMuch as soon as it is too long."""
    size, pieces = 0, []
    for piece in template.generate(values):
        size += len(piece)
        if size > MAX_RENDERED:
            raise TooMuch(f"more than {MAX_RENDERED:,} characters in the question")
        pieces.append(piece)
    return "".join(pieces).strip()


MAX_RENDERED = 4_000_000  # characters; a longer question fits no judge and is a mistake in the data


class TooMuch(jinja2.exceptions.SecurityError):
    """The values are too long for this template: an error of the case, not of the template."""


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """No private attributes, no methods, no globals."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Fields of our own models directly: they are data, and the sandbox's checks cost more than the rendering."""
        if attribute == "index" and type(obj) is LoopContext:
            return obj.index
        if isinstance(obj, BaseModel) and attribute in type(obj).model_fields:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of a model only its fields: some methods of pydantic read files and unpickle."""
        if isinstance(obj, BaseModel) and attr not in type(obj).model_fields:
            return False
        return super().is_safe_attribute(obj, attr, value)


def environment(folders: Sequence[Path]) -> jinja2.Environment:
    """A Jinja environment that reads templates below the folders and knows only their values."""
    env = _Sandbox(
        loader=jinja2.FileSystemLoader([str(f) for f in folders]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        finalize=print_value,
        auto_reload=False,
    )
    env.globals.clear()  # range, lipsum, cycler, joiner, namespace: a prompt only needs its values
    del env.filters["random"]  # the same values make the same question
    env.filters["tojson"] = canonical_json
    env.filters["on_one_line"] = lambda value: OnOneLine(value) if isinstance(value, str) else value
    return env


MAX_BYTES = 64_000  # of one template file; the largest shipped one has 2,500
_FRONT_MATTER = re.compile(r"(?:\{#.*?#\}\s*)?---\n(.*?)\n---\n", re.S)
_BLOCK = re.compile(r"^\[\[(system|user)\]\][ \t]*\n", re.M)
_FRONT_KEYS = {"roles", "optional", "answer_type"}
_HEADING = re.compile(r"^[ \t]*\[\[[^\[\]\n]*\]\][ \t]*$", re.M)
_LINE_END = re.compile(r"[ \t]*\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One message of a template: its role, its source, and how many lines of the file come before it."""

    role: str
    source: str
    lines_before: int


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """A template file taken apart; nothing in its blocks is checked yet."""

    path: Path
    text: str
    roles: Mapping[str, str]
    optional: Mapping[str, Any]
    answer_type: str
    blocks: tuple[Block, ...]


def read_template_file(path: Path) -> TemplateFile:
    """Read a file with front matter and blocks. Raises PromptError with the line of what is wrong."""
    text = read_text(path)
    match = _FRONT_MATTER.match(text)
    if not match:
        raise template_error(path, 1, repr(text[:40]), "YAML front matter between two --- lines")
    front = _front_matter(path, match[1], lines_before=text.count("\n", 0, match.start(1)))
    body = text[match.end() :]
    parts = _BLOCK.split(body)
    if len(parts) < 3 or parts[0].strip():
        line = match[0].count("\n") + 1
        expected = "blocks that open with [[system]] or [[user]]"
        raise template_error(path, line, "no [[system]] or [[user]] block", expected)
    if heading := next((found for part in parts[2::2] if (found := _HEADING.search(part))), None):
        line = line_of(text, re.escape(heading[0]))
        raise template_error(path, line, f"the block {heading[0].strip()}", "[[system]] or [[user]]")
    blocks = tuple(
        Block(role, source, text.count("\n", 0, match.end() + body.index(source)))
        for role, source in zip(parts[1::2], parts[2::2], strict=True)
    )
    return TemplateFile(path, text, front["roles"], front["optional"], front["answer_type"], blocks)


def line_of(text: str, pattern: str) -> int:
    """The number of the line in which a regular expression first matches, from 1; 1 where it matches nowhere."""
    match = re.search(pattern, text)
    return 1 + text.count("\n", 0, match.start() if match else 0)


def used_in_template(variable: str) -> str:
    """A regular expression for the place where a template uses a variable."""
    return rf"\{{[{{%][^}}]*\b{re.escape(variable)}\b"


def read_text(path: Path) -> str:
    """A template's text. Raises PromptError for one that is too large or not UTF-8."""
    try:
        content = named_bytes(path, MAX_BYTES)
    except OSError as error:
        raise template_error(path, 1, str(error.strerror), f"a file of at most {MAX_BYTES:,} bytes") from error
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise template_error(path, line, f"byte 0x{content[error.start]:02x}", "UTF-8") from error


def template_hash(text: str, includes: Mapping[str, str]) -> str:
    """The sha256 of a template's text and of what it includes (text by name), without comments."""
    texts = (text, *(includes[name] for name in sorted(includes)))
    return sha256("".join(map(without_comments, texts)))


def template_error(path: Path, line: int, value: str, expected: str) -> PromptError:
    """A template that is wrong at this line."""
    return PromptError("a prompt template is wrong", [Problem(f"{path}:{line}", path.name, value, expected)])


def _front_matter(path: Path, source: str, *, lines_before: int) -> dict[str, Any]:
    if problems := check_text(source, str(path), lines_before=lines_before):
        raise PromptError("a prompt template is wrong", problems)
    front = yaml.load(source, Loader=FastLoader) or {}
    front = {"roles": {}, "optional": {}, "answer_type": "", **front} if isinstance(front, dict) else {}
    mappings: list[Any] = [front.get("roles"), front.get("optional")]
    if set(front) != _FRONT_KEYS or not all(isinstance(part, dict) for part in mappings):
        expected = "the mappings `roles` and, if needed, `optional`, and the name `answer_type` where the step has several"
        raise template_error(path, 2, f"front matter {sorted(map(str, front))}", expected)
    names = [front["answer_type"] or "_", *(name for part in mappings for name in part)]
    if invalid := [name for name in names if not (isinstance(name, str) and name.isidentifier())]:
        raise template_error(path, 2, f"the name {invalid[0]!r}", "names of variables, and of an answer type")
    return front


def without_comments(text: str) -> str:
    """The text without `{# ... #}`, the blanks before them, and a line end that follows. Takes linear time."""
    kept, start = [], 0
    while (opening := text.find("{#", start)) >= 0 and (closing := text.find("#}", opening + 2)) >= 0:
        kept.append(text[start:opening].rstrip(" \t"))
        line_end = _LINE_END.match(text, closing + 2)
        start = line_end.end() if line_end else closing + 2
    return "".join(kept) + text[start:]
