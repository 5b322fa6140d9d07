"""The prompt library: finds versioned templates in prompt folders, checks them and compiles them.

A template is `<folder>/<step>.v<N>.jinja`: YAML front matter between two `---` lines, then blocks that open with a line
`[[system]]` or `[[user]]`. The front matter declares `roles` (what each variable is: text, claims, sources, question,
reference, ...) and `optional` (variables with a default; optional parts render nothing when off). Comments `{# ... #}`
change neither the rendered messages nor the hash.

Graded examples: files of worked examples for one step, each with the values shown and the reply that they deserve.

A file is `<folder>/<step>.examples.v<N>.yaml` in a prompt folder, beside the templates of its step. Like a template it has a
version that never changes once it is published, a hash, and a copy in the folder of every run that uses it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes
import yaml
from pydantic import ValidationError

from ragpipe.core.digest import sha256
from ragpipe.core.errors import Problem, PromptError
from ragpipe.core.yaml_files import FastLoader, check_text, lines_of
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.prompt import (
    Prompt,
    TemplateFile,
    environment,
    line_of,
    read_template_file,
    read_text,
    render_block,
    template_error,
    template_hash,
    used_in_template,
)

_NAME = re.compile(r"(?P<step>[a-z][a-z0-9_]*)\.(?P<version>v\d+[a-z0-9_]*)\.jinja\Z")
_FOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_INCLUDE_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]*/)*[A-Za-z0-9_][A-Za-z0-9_.\-]*\Z")
ROLES = frozenset(
    ("text", "main_point", "claims", "sources", "numbers", "question", "reference", "existing", "citations", "rules")
)
"""What a variable can be. The rules judge answers by roles; `numbers` are those under which the sources are shown, `rules`
the user's own words, not material."""
_VALID_TEMPLATE = "a valid Jinja template"


_LOADED: dict[tuple[tuple[Path, ...], Path, str], Prompt] = {}
"""What was parsed in this process, by the folders, the file and its text: a sweep and a notebook load the same templates again."""
_MOST_LOADED = 500


class PromptLibrary:
    """Finds templates in the folders; the first folder with the file wins (the user's folders, then the shipped one)."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = tuple(folders)
        self._env = environment(self.folders)
        self._includes: dict[str, jinja2.nodes.Template] = {}

    def load(self, folder: str, step: str, version: str) -> Prompt:
        """Load `<folder>/<step>.<version>.jinja`. Raises PromptError naming the file, the line and the known versions."""
        name = f"{folder}/{step}.{version}.jinja"
        if not (_FOLDER.match(folder) and _NAME.match(f"{step}.{version}.jinja")):
            place, value = str(self.folders[0]), f"{version!r} of {folder}/{step}"[:200]
            expected = "a version such as v1 or v2_short: v, a number, then lower case letters, digits and _"
            raise PromptError("a prompt is missing", [Problem(place, f"prompts.{step}", value, expected)])
        path = self._find(name)
        if path is not None:
            return self._load_file(path, f"{folder}/{step}", version)
        versions = self.versions(folder, step)
        folders = ", ".join(str(root) for root in self.folders)
        expected = f"one of the versions {', '.join(versions)}" if versions else f"a file in {folders}"
        fix = "set the version in the metric's YAML or add the file"
        place = str(self.folders[0] / name)
        raise PromptError("a prompt is missing", [Problem(place, f"prompts.{step}", f"no template {name}", expected, fix)])

    def versions(self, folder: str, step: str) -> list[str]:
        """All versions of a step, over all folders, sorted. Empty for names that no step can have."""
        if not (_FOLDER.match(folder) and _NAME.match(f"{step}.v1.jinja")):
            return []
        matches = (_NAME.match(path.name) for root in self.folders for path in (root / folder).glob(f"{step}.*.jinja"))
        return sorted({match["version"] for match in matches if match and match["step"] == step})

    def load_examples(self, prompt: Prompt, version: str) -> GradedExamples:
        """Load `<folder>/<step>.examples.<version>.yaml` for the step of this prompt. Raises PromptError naming the file, the line
        and the known versions."""
        name = f"{prompt.name}.examples.{version}.yaml"
        path = self._find(name) if EXAMPLES_NAME.match(name.rpartition("/")[2]) else None
        if path is not None:
            return read_graded_examples(path, prompt.name, version)
        folder, step = prompt.name.split("/")
        files = (EXAMPLES_NAME.match(path.name) for root in self.folders for path in (root / folder).glob("*.yaml"))
        known = sorted({match["version"] for match in files if match and match["step"] == step})
        expected = f"one of the versions {', '.join(known)}" if known else f"a file in {', '.join(map(str, self.folders))}"
        fix = "name a version that there is, add the file, or write the examples out as a list of texts"
        problem = Problem(str(self.folders[0] / name), f"examples.{step}", f"no file {name}", expected, fix)
        raise PromptError("graded examples are missing", [problem])

    def _find(self, name: str) -> Path | None:
        return next((root / name for root in self.folders if (root / name).is_file()), None)

    def _load_file(self, path: Path, name: str, version: str) -> Prompt:
        known = (self.folders, path, read_text(path))
        cached = _LOADED.get(known)
        if cached is not None and all(self._include_text(path, name) == text for name, text in cached.includes.items()):
            return cached
        file = read_template_file(path)
        compiled: list[tuple[str, jinja2.Template | str]] = []
        variables, includes = set[str](), dict[str, str]()
        for block in file.blocks:
            line = block.lines_before + 1
            tree = self._tree(path, block.source, block.lines_before)
            block_variables = self._variables(path, tree, includes)
            compiled.append((block.role, self._compile(path, tree, line, block_variables)))
            variables |= block_variables
        _check_variables(file, variables)
        digest = template_hash(file.text, includes)
        while len(_LOADED) >= _MOST_LOADED:
            _LOADED.pop(next(iter(_LOADED)), None)
        _LOADED[known] = Prompt(
            name,
            version,
            path,
            file.text,
            digest,
            file.roles,
            file.optional,
            tuple(compiled),
            frozenset(variables | set(file.optional)),
            includes,
            file.answer_type,
        )
        return _LOADED[known]

    def _tree(self, path: Path, source: str, lines_before: int) -> jinja2.nodes.Template:
        try:
            tree = self._env.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise template_error(path, lines_before + (error.lineno or 1), str(error.message), _VALID_TEMPLATE) from error
        except (RecursionError, MemoryError, ValueError) as error:
            raise template_error(path, lines_before + 1, _named(error), _VALID_TEMPLATE) from error
        for node in tree.find_all((jinja2.nodes.Call, jinja2.nodes.Filter, jinja2.nodes.Test)):
            if fault := _unknown(node, self._env):
                raise template_error(path, lines_before + node.lineno, *fault)
        return tree

    def _compile(self, path: Path, tree: jinja2.nodes.Template, line: int, variables: set[str]) -> jinja2.Template | str:
        """The block compiled, or its text where it shows no value."""
        try:
            template = self._env.from_string(tree)  # compiling folds constants in the tree
            return template if variables else render_block(template, {})
        except Exception as error:  # constants in it are computed: any of their operators may fail
            raise template_error(path, line, _named(error), _VALID_TEMPLATE) from error

    def _variables(
        self, path: Path, tree: jinja2.nodes.Template, includes: dict[str, str], above: tuple[str, ...] = ()
    ) -> set[str]:
        try:
            variables = set(jinja2.meta.find_undeclared_variables(tree))
        except (RecursionError, jinja2.TemplateError) as error:
            raise template_error(path, 1, _named(error), _VALID_TEMPLATE) from error
        for name in jinja2.meta.find_referenced_templates(tree):
            if name is None:
                expected = 'a literal name, such as "shared/preamble.v1.jinja"'
                raise template_error(path, 1, "an include whose name is computed", expected)
            if name in above:
                raise template_error(path, 1, f"{name!r}, which includes itself", "a template that ends")
            if name not in includes:
                includes[name] = self._include_text(path, name)
                variables |= self._variables(path, self._include_tree(path, name), includes, (*above, name))
        return variables

    def _include_tree(self, path: Path, name: str) -> jinja2.nodes.Template:
        if name not in self._includes:
            file = self._find(name) or path
            source = self._include_text(path, name)
            self._compile(file, self._tree(file, source, 0), 1, {""})  # reports its faults now, not at the first case
            self._includes[name] = self._tree(file, source, 0)
        return self._includes[name]

    def _include_text(self, path: Path, name: str) -> str:
        if not _INCLUDE_NAME.match(name):
            expected = 'a name below a prompt folder, such as "shared/preamble.v1.jinja"'
            raise template_error(path, 1, f"include of {name!r}", expected)
        file = self._find(name)
        if file is None:
            raise template_error(path, 1, f"include of {name!r}", "a template inside the prompt folders")
        return read_text(file)


def _check_variables(file: TemplateFile, variables: set[str]) -> None:
    """Raises PromptError, with the line, for an unknown role, a variable without one, and a template that shows nothing."""
    for name, role in file.roles.items():
        if role not in ROLES:
            line = line_of(file.text, rf"\b{name}['\"]?\s*:")
            expected = f"one of the roles {', '.join(sorted(ROLES))}"
            raise template_error(file.path, line, f"the role {role!r} of {name}", expected)
    if undeclared := sorted(variables - set(file.roles) - set(file.optional)):
        line = line_of(file.text, used_in_template(undeclared[0]))
        expected = "every variable under roles: or optional:"
        raise template_error(file.path, line, f"the variables {undeclared} without a role", expected)
    if not variables & set(file.roles):
        expected = "a template that shows the judge some of the case"
        raise template_error(file.path, 1, "no variable of roles: is used", expected)


def _unknown(node: jinja2.nodes.Node, env: jinja2.Environment) -> tuple[str, str] | None:
    """What a call, a filter or a test is that templates do not have, and what they have; None for one that they have."""
    if isinstance(node, jinja2.nodes.Filter):
        return None if node.name in env.filters else (f"the filter {node.name!r}", f"one of {', '.join(sorted(env.filters))}")
    if isinstance(node, jinja2.nodes.Test):
        return None if node.name in env.tests else (f"the test {node.name!r}", f"one of {', '.join(sorted(env.tests))}")
    return "a call", "values, filters and tests"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


EXAMPLES_NAME = re.compile(r"(?P<step>[a-z][a-z0-9_]*)\.examples\.(?P<version>v\d+[a-z0-9_]*)\.yaml\Z")
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
        would not read or that grades another number of items."""
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
        if isinstance(reply, Mapping) and (unknown := [name for name in reply if name not in type(parsed).model_fields]):
            yield self._problem(
                f"{key}.{unknown[0]}", f"the key {unknown[0]!r}", f"one of {', '.join(type(parsed).model_fields)}"
            )
        yield from self._item_problems(key, example["values"], parsed, prompt)

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
    parts = []
    for name, value in example["values"].items():
        number = _SOURCE_NUMBER if roles.get(name) == "sources" else _ITEM_NUMBER
        items = (
            [f"{number.format(place)} {item}" for place, item in enumerate(value, 1)] if isinstance(value, list) else [value]
        )
        parts.append("\n".join((f"{name.replace('_', ' ').capitalize()}:", *map(str, items))))
    reply = example["reply"]
    parts.append(f"Reply:\n{reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)}")
    return "\n\n".join(parts)


def _is_shown(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return bool(texts) and all(isinstance(text, str) and text.strip() for text in texts)


def _read_reply(reply: Any, answer: type[Answer]) -> Answer:
    if answer.form == "json":
        return answer.model_validate(reply)
    if not isinstance(reply, str):
        raise ValueError(f"a text, as the step reads ({answer.__name__})")
    parsed = answer.from_text(reply)
    if getattr(parsed, "verdict", None) == "NEITHER":
        raise ValueError("a text that begins with YES or NO, in quotes: YAML reads the bare word as a truth value")
    return parsed
