"""Prompt templates: versioned Jinja files, sandboxed and strict, in which every value is fenced.

A template is `<folder>/<step>.v<N>.jinja`: YAML front matter between two `---` lines, then blocks that open with a line
`[[system]]` or `[[user]]`. The front matter declares `roles` (what each variable is: text, claims, sources, question,
reference, ...) and `optional` (variables with the value they have when not given; optional parts render nothing when
off). Comments `{# ... #}` change neither the rendered messages nor the hash.

Every text value is fenced without the author doing anything: it is printed between tags named by the first 12 hex
digits of the sha256 of *that value alone*. A text cannot hold its own hash, so it cannot close its own fence, and the
same value has the same fence wherever it recurs, so that steps on one case share their prefix.
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
import jinja2.sandbox
import yaml
from jinja2.runtime import LoopContext
from pydantic import BaseModel

from ragpipe.digest import canonical_json, sha256
from ragpipe.errors import Problem, PromptError
from ragpipe.schema.call import Message
from ragpipe.schema.references import AnyReference

MAX_RENDERED = 4_000_000  # characters; a longer question fits no judge and is a mistake in the data
LOOPS_DEEP = 2  # a loop walks over what a case holds; deeper ones could run for ever without printing a character
_BLOCK = re.compile(r"^\[\[(system|user)\]\][ \t]*\n", re.M)
_COMMENT = re.compile(r"[ \t]*\{#.*?#\}(?:[ \t]*\n)?", re.S)
_FENCE = re.compile(r"<([0-9a-f]{12})>\n")
_INSTRUCTIONS = ("examples", "anchors")  # optional variables whose texts are the user's own, not the data's
_NAME = re.compile(r"(?P<step>[a-z][a-z0-9_]*)\.(?P<version>v\d+[a-z0-9_]*)\.jinja\Z")


@lru_cache(maxsize=512)
def fence(value: str) -> str:
    """The value between tags that it cannot contain."""
    tag = sha256(value)[:12]
    return f"<{tag}>\n{value}\n</{tag}>"


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


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """No attribute tricks, no globals, no operators that blow a string up."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The fields of our own nouns directly: they are data, and the sandbox's checks cost more than the rendering."""
        if attribute == "index" and type(obj) is LoopContext:
            return obj.index
        if isinstance(obj, BaseModel) and attribute in type(obj).model_fields:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        raise jinja2.exceptions.SecurityError(f"the operator {operator!r} is not allowed in a prompt")


def _environment(folders: Sequence[Path]) -> jinja2.Environment:
    env = _Sandbox(
        loader=jinja2.FileSystemLoader([str(f) for f in folders]), undefined=jinja2.StrictUndefined, autoescape=False,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False, finalize=_finalize,
        auto_reload=False,
    )  # fmt: skip
    env.globals.clear()  # range, lipsum, cycler, joiner, namespace: a prompt only walks over what it is given
    return env


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

        Chunks and other models are given as they are; a template reads their attributes. Raises PromptError when a
        variable is missing, unknown or None, or when the text grows over `MAX_RENDERED` characters.
        """
        unknown = set(values) - self.variables - set(self.roles)
        if unknown:
            raise self._problem(f"a value for {sorted(unknown)}", f"only {sorted(self.variables)}")
        messages = []
        for role, template in self.blocks:
            if isinstance(template, str):
                messages.append({"role": role, "content": template})
                continue
            size, pieces = 0, []
            try:
                for piece in template.generate({**self.optional, **values}):
                    size += len(piece)
                    if size > MAX_RENDERED:
                        raise self._problem(f"more than {MAX_RENDERED:,} characters", "a question that fits a judge")
                    pieces.append(piece)
            except jinja2.TemplateError as error:
                raise self._problem(str(error), f"values for {sorted(self.variables)}") from error
            messages.append({"role": role, "content": "".join(pieces).strip()})
        return tuple(m for m in messages if m["content"])

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


class PromptLibrary:
    """Finds templates in the given folders, the first that has one wins (the user's folders, then the shipped one)."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = tuple(folders)
        self._env = _environment(self.folders)

    def load(self, folder: str, step: str, version: str) -> Prompt:
        """Load `<folder>/<step>.<version>.jinja`. Raises PromptError naming the file, the line and the versions there are."""
        name = f"{folder}/{step}.{version}.jinja"
        for root in self.folders:
            path = root / name
            if path.is_file():
                return self._parse(path, f"{folder}/{step}", version)
        there = self.versions(folder, step)
        raise PromptError("a prompt is missing", [Problem(
            str(self.folders[0] / name), f"prompts.{step}", f"no template {name}",
            f"one of the versions {', '.join(there)}" if there else f"a file in {', '.join(str(f) for f in self.folders)}",
            "set the version in the metric's YAML or add the file",
        )])  # fmt: skip

    def versions(self, folder: str, step: str) -> list[str]:
        """All versions of a step, over all folders, sorted."""
        found = (_NAME.match(p.name) for root in self.folders for p in (root / folder).glob(f"{step}.*.jinja"))
        return sorted({m["version"] for m in found if m and m["step"] == step})

    def _parse(self, path: Path, name: str, version: str) -> Prompt:
        raw = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        head, front, body = self._split(path, raw)
        offset = head.count("\n")
        parts = _BLOCK.split(body)
        if len(parts) < 3 or parts[0].strip():
            raise _bad(
                path, offset + 1, "no [[system]] or [[user]] block", "blocks that open with [[system]] or [[user]]"
            )
        roles, optional = front["roles"], front["optional"]
        blocks, variables, includes = [], set[str](), dict[str, str]()
        for role, source in zip(parts[1::2], parts[2::2], strict=True):
            try:
                tree = self._env.parse(source)
                deep, used = _loop_depth(tree) > LOOPS_DEEP, self._used(path, tree, includes)
                template = self._env.from_string(tree)  # last: compiling folds constants in the tree
            except jinja2.TemplateSyntaxError as error:
                line = offset + body[: body.index(source)].count("\n") + error.lineno
                raise _bad(path, line, str(error.message), "a valid Jinja template") from error
            blocks.append((role, template if used else template.render().strip()))
            variables |= used
            if deep:
                raise _bad(path, 1, f"loops nested more than {LOOPS_DEEP} deep", "a template that ends in time")
        if undeclared := variables - set(roles) - set(optional):
            expected = "every variable under roles: or optional:"
            raise _bad(path, 1, f"the variables {sorted(undeclared)} without a role", expected)
        if not variables & set(roles):
            raise _bad(path, 1, "no variable of roles: is used", "a template that shows the judge some of the case")
        digest = sha256(
            "".join(_COMMENT.sub("", text) for text in (raw, *(includes[name] for name in sorted(includes))))
        )
        known = frozenset(variables | set(optional))
        return Prompt(name, version, path, raw, digest, roles, optional, tuple(blocks), known, includes)

    def _used(self, path: Path, tree: jinja2.nodes.Template, includes: dict[str, str]) -> set[str]:
        """The variables that a template shows, itself or through what it includes, whose text is added to `includes`."""
        found = set(jinja2.meta.find_undeclared_variables(tree))
        for name in jinja2.meta.find_referenced_templates(tree):
            if name is None:
                raise _bad(
                    path, 1, "an include whose name is computed", 'a literal name, such as "shared/preamble.v1.jinja"'
                )
            if name not in includes:
                includes[name] = self._source(path, name)
                found |= self._used(path, self._env.parse(includes[name]), includes)
        return found

    def _source(self, path: Path, include: str) -> str:
        try:
            return self._env.loader.get_source(self._env, include)[0]  # type: ignore[union-attr]
        except jinja2.TemplateNotFound as error:
            raise _bad(path, 1, f"include of {include!r}", "a template inside the prompt folders") from error

    def _split(self, path: Path, raw: str) -> tuple[str, dict[str, Any], str]:
        found = re.match(r"(?:\{#.*?#\}\s*)?---\n(.*?)\n---\n", raw, re.S)
        if not found:
            raise _bad(path, 1, repr(raw[:40]), "YAML front matter between two --- lines")
        try:
            front = yaml.safe_load(found[1]) or {}
        except yaml.YAMLError as error:
            raise _bad(path, 2, str(error).split("\n")[0], "YAML") from error
        front = {"roles": {}, "optional": {}, **front} if isinstance(front, dict) else {}
        if set(front) != {"roles", "optional"} or not all(isinstance(v, dict) for v in front.values()):
            raise _bad(path, 2, f"front matter {sorted(front)}", "the mappings `roles` and, if needed, `optional`")
        return found[0], front, raw[found.end() :]


def _loop_depth(node: jinja2.nodes.Node) -> int:
    own = isinstance(node, jinja2.nodes.For)
    return own + max((_loop_depth(child) for child in node.iter_child_nodes()), default=0)


def _bad(path: Path, line: int, found: str, expected: str) -> PromptError:
    return PromptError("a prompt template is wrong", [Problem(f"{path}:{line}", path.name, found, expected)])
