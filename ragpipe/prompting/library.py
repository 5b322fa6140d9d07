"""Prompt templates: versioned Jinja files, sandboxed and strict, in which every value is fenced.

A template is `<folder>/<step>.v<N>.jinja`: YAML front matter between two `---` lines, then blocks that open with a line
`[[system]]` or `[[user]]`. The front matter declares `roles` (what each variable is: text, claims, sources, question,
reference, ...) and `optional` (variables with the value they have when not given; optional parts render nothing when
off). Comments `{# ... #}` change neither the rendered messages nor the hash.

Every text value is fenced without the author doing anything: it is printed between tags named by the first 12 hex
digits of the sha256 of *that value alone*. To close its own fence a text would have to hold the beginning of its own hash:
2^48 tries on average, which a graphics card makes in hours and no honest text in all time. The same value has the same fence
wherever it recurs, so that steps on one case share their prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes
import yaml
from pydantic import BaseModel

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.errors import Problem, PromptError, TooLong
from ragpipe.core.yaml_check import check_text
from ragpipe.core.yaml_lines import FastLoader
from ragpipe.prompting.template_language import (
    LOOPS_DEEP,
    MAX_PARTS,
    MAX_RENDERED,
    METER,
    Meter,
    TooMuch,
    environment,
    included,
    loops_deep,
    template_parts,
)
from ragpipe.schema.call import Message
from ragpipe.schema.reference_answers import AnyReference

MAX_BYTES = 64_000  # of one template file; the largest shipped one has 2,500
_BLOCK = re.compile(r"^\[\[(system|user)\]\][ \t]*\n", re.M)
_AFTER_COMMENT = re.compile(r"[ \t]*\n")
_FENCE = re.compile(r"<([0-9a-f]{12})>\n")
_INSTRUCTIONS = ("examples", "anchors")  # optional variables whose texts are the user's own, not the data's
_NAME = re.compile(r"(?P<step>[a-z][a-z0-9_]*)\.(?P<version>v\d+[a-z0-9_]*)\.jinja\Z")
_FOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_INCLUDED = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]*/)*[A-Za-z0-9_][A-Za-z0-9_.\-]*\Z")


def fence(value: str) -> str:
    """The value between tags that it does not contain: no honest text holds the beginning of its own hash."""
    return _remembered(value) if len(value) <= 100_000 else _fenced(value)


def _fenced(value: str) -> str:
    tag = sha256(value)[:12]
    return f"<{tag}>\n{value}\n</{tag}>"


_remembered = lru_cache(maxsize=512)(_fenced)


def fenced_values(messages: Iterable[Message]) -> list[str]:
    """The values that stand between tags in the messages, in order; what stands between tags inside a value is part of it."""
    values = []
    for message in messages:
        content, start = message["content"], 0
        while opening := _FENCE.search(content, start):
            closing = f"\n</{opening[1]}>"
            start, end = opening.end(), content.find(closing, opening.end())
            if end >= 0:
                values.append(content[start:end])
                start = end + len(closing)
    return values


def _texts(value: Any) -> Iterator[str]:
    """The texts that a template can print of a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel | Mapping):
        for item in value.values() if isinstance(value, Mapping) else vars(value).values():
            yield from _texts(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item)


def _finalize(value: Any) -> Any:
    if isinstance(value, bool | int | float | jinja2.Undefined):
        return value
    if isinstance(value, AnyReference):
        return value.laid_out(fence)
    if isinstance(value, str):
        return fence(value)
    if value is None:
        raise jinja2.UndefinedError("a value is None: guard it with {% if %}")
    return fence(canonical_json(value))


@dataclass(frozen=True)
class Prompt:
    """One template, loaded and checked.

    `name` is `<folder>/<step>`, `sha256` the hash of its text and of what it includes, without comments. A block that shows
    no value is a plain text.
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

    @property
    def step(self) -> str:
        return self.name.rsplit("/", 1)[1]

    @cached_property
    def signature(self) -> str:
        """`faithfulness/verify.v1@1a2b3c4d`: stands beside every number that rests on this template."""
        return f"{self.name}.{self.version}@{self.sha256[:8]}"

    @property
    def sources(self) -> dict[str, str]:
        """The text of the template and of everything it includes, by path below a prompt folder."""
        return {f"{self.name}.{self.version}.jinja": self.text, **self.includes}

    def render(self, **values: Any) -> tuple[Message, ...]:
        """The messages of the logical question.

        Chunks and other models are given as they are; a template reads their attributes. Raises TooLong when the values are
        longer than a question may be (`MAX_RENDERED` characters), PromptError when a variable is missing, unknown or None.
        """
        unknown = set(values) - self.variables - set(self.roles)
        if unknown:
            raise self._problem(f"a value for {sorted(unknown)}", f"only {sorted(self.variables)}")
        messages: list[Message] = []
        given = {**self.optional, **values, METER: Meter()}
        for role, template in self.blocks:
            if isinstance(template, str):
                messages.append({"role": role, "content": template})
                continue
            try:
                text = _rendered(template, given)
            except TooMuch as error:
                raise TooLong(self._which(values, str(error))) from error
            except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
                raise self._problem(str(error), f"values for {sorted(self.variables)}") from error
            except (RecursionError, MemoryError, AssertionError) as error:
                raise self._problem(type(error).__name__, "a template that can be rendered") from error
            messages.append({"role": role, "content": text})
        return tuple(m for m in messages if m["content"])

    def length(self, values: Mapping[str, Any]) -> int:
        """The characters of all texts among the values."""
        return sum(sum(map(len, _texts(value))) for value in values.values())

    def _which(self, values: Mapping[str, Any], why: str) -> str:
        """Which values make a question too long: the variable that has most characters, and how many."""
        lengths = {name: sum(map(len, _texts(value))) for name, value in values.items()}
        name = max(lengths, key=lambda name: lengths[name], default="-")
        count = lengths.get(name, 0)
        return (
            f"{self.step}: the variable {name} has {count:,} characters ({why}); a question may have {MAX_RENDERED:,}"
        )

    def material(self, messages: Iterable[Message], values: Mapping[str, Any]) -> list[str]:
        """The texts under test that the rendered messages show.

        These are the fenced values without the user's own instructions: worked examples, anchors of a rubric, and
        variables of the role `rules`.
        """
        rules = (name for name, role in self.roles.items() if role == "rules")
        instructions = {text for name in (*_INSTRUCTIONS, *rules) for text in _texts(values.get(name))}
        return [text for text in fenced_values(messages) if text not in instructions]

    def _problem(self, found: str, expected: str) -> PromptError:
        return PromptError(
            "a prompt cannot be rendered", [Problem(str(self.path), f"{self.name}.{self.version}", found, expected)]
        )


def _rendered(template: jinja2.Template, values: dict[str, Any]) -> str:
    """The text of one block. Raises TooMuch as soon as it is too long."""
    size, pieces = 0, []
    for piece in template.generate(values):
        size += len(piece)
        if size > MAX_RENDERED:
            raise TooMuch(f"more than {MAX_RENDERED:,} characters in the question")
        pieces.append(piece)
    return "".join(pieces).strip()


class PromptLibrary:
    """Finds templates in the given folders, the first that has one wins (the user's folders, then the shipped one)."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = tuple(folders)
        self._env = environment(self.folders, _finalize)
        self._includes: dict[str, jinja2.nodes.Template] = {}

    def load(self, folder: str, step: str, version: str) -> Prompt:
        """Load `<folder>/<step>.<version>.jinja`. Raises PromptError naming the file, the line and the versions there are."""
        name = f"{folder}/{step}.{version}.jinja"
        if not (_FOLDER.match(folder) and _NAME.match(f"{step}.{version}.jinja")):
            expected = "a version such as v1 or v2_short: v, a number, then lower case letters, digits and _"
            raise PromptError(
                "a prompt is missing",
                [Problem(str(self.folders[0]), f"prompts.{step}", f"{version!r} of {folder}/{step}"[:200], expected)],
            )
        for root in self.folders:
            path = root / name
            if path.is_file():
                return self._parse(path, f"{folder}/{step}", version)
        there = self.versions(folder, step)
        raise PromptError(
            "a prompt is missing",
            [
                Problem(
                    str(self.folders[0] / name),
                    f"prompts.{step}",
                    f"no template {name}",
                    f"one of the versions {', '.join(there)}"
                    if there
                    else f"a file in {', '.join(str(f) for f in self.folders)}",
                    "set the version in the metric's YAML or add the file",
                )
            ],
        )

    def versions(self, folder: str, step: str) -> list[str]:
        """All versions of a step, over all folders, sorted; none of what can name no step."""
        if not (_FOLDER.match(folder) and _NAME.match(f"{step}.v1.jinja")):
            return []
        found = (_NAME.match(p.name) for root in self.folders for p in (root / folder).glob(f"{step}.*.jinja"))
        return sorted({m["version"] for m in found if m and m["step"] == step})

    def _parse(self, path: Path, name: str, version: str) -> Prompt:
        raw = _read(path)
        head, front, body = self._split(path, raw)
        offset = head.count("\n")
        parts = _BLOCK.split(body)
        if len(parts) < 3 or parts[0].strip():
            raise _bad(
                path, offset + 1, "no [[system]] or [[user]] block", "blocks that open with [[system]] or [[user]]"
            )
        roles, optional = front["roles"], front["optional"]
        blocks: list[tuple[str, jinja2.Template | str]] = []
        variables, includes = set[str](), dict[str, str]()
        line = offset + 1
        for role, source in zip(parts[1::2], parts[2::2], strict=True):
            line = raw.count("\n", 0, len(head) + body.index(source)) + 1
            tree = self._tree(path, source, line - 1)
            used = self._used(path, tree, includes)
            if self._deep(path, tree) > LOOPS_DEEP:
                raise _bad(path, line, f"loops nested more than {LOOPS_DEEP} deep", "a template that ends in time")
            if self._parts(tree) > MAX_PARTS:
                raise _bad(path, line, f"more than {MAX_PARTS:,} parts with all that is included", "a prompt")
            blocks.append((role, self._block(path, tree, line, used)))
            variables |= used
        if undeclared := variables - set(roles) - set(optional):
            expected = "every variable under roles: or optional:"
            raise _bad(path, 1, f"the variables {sorted(undeclared)} without a role", expected)
        if not variables & set(roles):
            raise _bad(path, 1, "no variable of roles: is used", "a template that shows the judge some of the case")
        digest = sha256(
            "".join(_without_comments(text) for text in (raw, *(includes[name] for name in sorted(includes))))
        )
        known = frozenset(variables | set(optional))
        return Prompt(name, version, path, raw, digest, roles, optional, tuple(blocks), known, includes)

    def _tree(self, path: Path, source: str, above: int) -> jinja2.nodes.Template:
        """The syntax tree of a template's text, of which `above` lines stand before it in its file."""
        try:
            return self._env.parse(source)
        except jinja2.TemplateSyntaxError as error:
            found, _, expected = str(error.message).partition(": not in ")
            raise _bad(path, above + (error.lineno or 1), found, expected or "a valid Jinja template") from error
        except (RecursionError, MemoryError, ValueError) as error:
            raise _bad(path, above + 1, f"{type(error).__name__}: {error}"[:200], "a valid Jinja template") from error

    def _block(self, path: Path, tree: jinja2.nodes.Template, line: int, used: set[str]) -> jinja2.Template | str:
        """The block compiled, or its text where it shows no value."""
        try:
            template = self._env.from_string(tree)  # compiling folds constants in the tree
            if used:
                return template
            return _rendered(template, {METER: Meter()})
        except (
            jinja2.TemplateError,
            SyntaxError,
            RecursionError,
            MemoryError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            AssertionError,
        ) as error:
            raise _bad(path, line, f"{type(error).__name__}: {error}"[:200], "a valid Jinja template") from error

    def _used(self, path: Path, tree: jinja2.nodes.Template, includes: dict[str, str]) -> set[str]:
        """The variables that a template shows, itself or through what it includes, whose text is added to `includes`."""
        try:
            found = set(jinja2.meta.find_undeclared_variables(tree))
        except (RecursionError, jinja2.TemplateError) as error:
            raise _bad(path, 1, f"{type(error).__name__}: {error}"[:200], "a valid Jinja template") from error
        for name in included(tree):
            if name not in includes:
                includes[name] = self._source(path, name)
                found |= self._used(path, self._included(path, name), includes)
        return found

    def _included(self, path: Path, name: str) -> jinja2.nodes.Template:
        """The syntax tree of a template that another one includes."""
        if name not in self._includes:
            file = next((root / name for root in self.folders if (root / name).is_file()), path)
            source = self._source(path, name)
            self._block(file, self._tree(file, source, 0), 1, {""})  # its faults are told now, not at the first case
            self._includes[name] = self._tree(file, source, 0)
        return self._includes[name]

    def _deep(self, path: Path, tree: jinja2.nodes.Template) -> int:
        """How deep its loops are nested with those of what it includes. Raises PromptError for one that includes itself."""
        depths: dict[str, int | None] = {}  # None: being looked at

        def inside(name: str) -> int:
            if name not in depths:
                depths[name] = None
                depths[name] = loops_deep(self._included(path, name), inside)
            found = depths[name]
            if found is None:
                raise _bad(path, 1, f"{name!r}, which includes itself", "a template that ends")
            return found

        return loops_deep(tree, inside)

    def _parts(self, tree: jinja2.nodes.Template) -> int:
        """How many parts a template has once everything that it includes is unfolded."""
        counts: dict[str, int] = {}

        def inside(name: str) -> int:
            if name not in counts:
                found = self._includes[name]
                counts[name] = template_parts(found) + sum(map(inside, included(found)))
            return counts[name]

        return template_parts(tree) + sum(map(inside, included(tree)))

    def _source(self, path: Path, include: str) -> str:
        if not _INCLUDED.match(include):
            raise _bad(
                path, 1, f"include of {include!r}", 'a name below a prompt folder, such as "shared/preamble.v1.jinja"'
            )
        found = next((root / include for root in self.folders if (root / include).is_file()), None)
        if found is None:
            raise _bad(path, 1, f"include of {include!r}", "a template inside the prompt folders")
        return _read(found)

    def _split(self, path: Path, raw: str) -> tuple[str, dict[str, Any], str]:
        found = re.match(r"(?:\{#.*?#\}\s*)?---\n(.*?)\n---\n", raw, re.S)
        if not found:
            raise _bad(path, 1, repr(raw[:40]), "YAML front matter between two --- lines")
        if problems := check_text(found[1], str(path), above=raw.count("\n", 0, found.start(1))):
            raise PromptError("a prompt template is wrong", problems)
        front = yaml.load(found[1], Loader=FastLoader) or {}
        front = {"roles": {}, "optional": {}, **front} if isinstance(front, dict) else {}
        if set(front) != {"roles", "optional"} or not all(isinstance(v, dict) for v in front.values()):
            raise _bad(
                path, 2, f"front matter {sorted(map(str, front))}", "the mappings `roles` and, if needed, `optional`"
            )
        if odd := [
            name for part in front.values() for name in part if not (isinstance(name, str) and name.isidentifier())
        ]:
            raise _bad(path, 2, f"the name {odd[0]!r}", "names of variables")
        return found[0], front, raw[found.end() :]


def _read(path: Path) -> str:
    """A template's text. Raises PromptError for one that is too large or no UTF-8."""
    raw = path.read_bytes()
    if len(raw) > MAX_BYTES:
        raise _bad(path, 1, f"{len(raw):,} bytes", f"at most {MAX_BYTES:,}")
    try:
        return raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise _bad(path, line, f"byte 0x{raw[error.start]:02x}", "UTF-8") from error


def _without_comments(text: str) -> str:
    """The text without `{# ... #}`, the blanks before them, and a line's end that follows: in time that grows with its length."""
    kept, start = [], 0
    while (opening := text.find("{#", start)) >= 0 and (closing := text.find("#}", opening + 2)) >= 0:
        kept.append(text[start:opening].rstrip(" \t"))
        after = _AFTER_COMMENT.match(text, closing + 2)
        start = after.end() if after else closing + 2
    return "".join(kept) + text[start:]


def _bad(path: Path, line: int, found: str, expected: str) -> PromptError:
    return PromptError("a prompt template is wrong", [Problem(f"{path}:{line}", path.name, found, expected)])
