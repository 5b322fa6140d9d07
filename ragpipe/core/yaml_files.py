"""YAML files: checked before they are used (size, depth, aliases, tags, duplicate keys, tabs, secrets), and the line of every key.

A few lines can expand to a billion values through aliases. The parser's nodes share what an alias repeats, so the expanded
size is counted on them, where it costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import yaml

from ragpipe.core.errors import Problem
from ragpipe.core.secret_detection import FIX, looks_secret, secret_at, secrets_of_environment

FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where it is installed: ten times as fast, and a run's config.yaml has a thousand lines."""
FastDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MAX_BYTES = 1_000_000
MAX_NODES = 20_000  # expanded; the largest shipped composition has some hundreds
MAX_DEPTH = 64
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")} | {"!"}


def check_yaml(path: Path, where: str | None = None) -> list[Problem]:
    """The problems of the file as YAML, before its content is looked at; empty when there are none."""
    text, problems = yaml_text(path, where)
    return problems or check_text(text, where or str(path))


def yaml_text(path: Path, where: str | None = None) -> tuple[str, list[Problem]]:
    """The text of a YAML file, not checked yet, and why it cannot be read. Raises OSError."""
    where = where or str(path)
    size = path.stat().st_size
    if size > MAX_BYTES:
        return "", [Problem(where, "the file", f"{size:,} bytes", f"at most {MAX_BYTES:,}")]
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        what = f"byte 0x{raw[error.start]:02x}"
        return "", [Problem(f"{where}:{line}", "the file", what, "UTF-8", "save it as UTF-8")]


def check_text(text: str, where: str, *, lines_before: int = 0) -> list[Problem]:
    """As `check_yaml` for a text, which may be a part of a file that begins after `lines_before` lines."""
    check = _Check(where, lines_before)
    try:
        _check_events(text, check)
        if not check.problems and (tree := yaml.compose(text, Loader=FastLoader)) is not None:
            check.size(tree, "")
    except yaml.YAMLError as error:
        check.problems.append(yaml_problem(error, where, text, lines_before))
    return check.problems


def yaml_problem(error: yaml.YAMLError, where: str, text: str = "", lines_before: int = 0) -> Problem:
    """A parser's error as a problem with file and line."""
    mark = getattr(error, "problem_mark", None)
    message = str(getattr(error, "problem", None) or error).split("\n")[0]
    if mark is None:
        return Problem(where, "the file", message, "valid YAML")
    where = f"{where}:{lines_before + mark.line + 1}"
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return Problem(where, "the file", "a tab as indentation", "spaces", "replace the tab")
    fix = "put the value in quotes" if ": " in line.partition(":")[2] else ""
    return Problem(where, "the file", f"{message} (column {mark.column + 1})", "valid YAML", fix)


def lines_of(path: Path) -> dict[str, int]:
    """`lines_in` a file; empty when it cannot be read."""
    try:
        return lines_in(path.read_text(encoding="utf-8-sig"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return {}


def lines_in(text: str) -> dict[str, int]:
    """Dotted key -> line (from 1) of every key in a YAML text, list items by their index; of equal keys the first counts. A
    defaults list is left out. Raises yaml.YAMLError."""
    lines: dict[str, int] = {}
    for name, line in _lines(yaml.compose(text, Loader=FastLoader), ""):
        lines.setdefault(name, line)
    return lines


def _lines(node: yaml.Node | None, above: str) -> Iterator[tuple[str, int]]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    if isinstance(node, yaml.SequenceNode):
        pairs = [(yaml.ScalarNode("", str(index), item.start_mark), item) for index, item in enumerate(node.value)]
    for key, value in pairs:
        name = f"{above}{key.value}"
        if name != "defaults":
            yield name, key.start_mark.line + 1
            yield from _lines(value, f"{name}.")


def key_path(path: Path) -> str:
    """A path as it is printed: relative to the working directory where it is below it."""
    try:
        return os.fspath(path.resolve().relative_to(Path.cwd().resolve()))
    except (ValueError, OSError):
        return os.fspath(path)


class _Check:
    """One pass over a document's nodes."""

    def __init__(self, where: str, lines_before: int):
        self.where, self.lines_before = where, lines_before
        self.problems: list[Problem] = []
        self.sizes: dict[int, int] = {}  # of each node that was visited, by its id
        self.visited: set[int] = set()
        self.known = secrets_of_environment()

    def _add(self, line: int, key: str, what: str, expected: str, fix: str = "") -> None:
        self.problems.append(
            Problem(f"{self.where}:{self.lines_before + line + 1}", key or "the file", what, expected, fix)
        )

    def size(self, node: yaml.Node, key: str) -> int:
        """Check a node and what is below it, once each; returns how many values it expands to."""
        line = node.start_mark.line
        if id(node) in self.visited:
            self._add(line, key, "an alias inside of what it stands for", "values that end")
            return 0
        if id(node) not in self.sizes:
            self.visited.add(id(node))
            if isinstance(node, yaml.ScalarNode):
                parts = []
                self.scalar(line, key, node.value)
            else:
                is_mapping = isinstance(node, yaml.MappingNode)
                parts = self.pairs(node, key) if is_mapping else [self.size(item, key) for item in node.value]
            self.visited.discard(id(node))
            self.sizes[id(node)] = 1 + sum(parts)
            if self.sizes[id(node)] > MAX_NODES and not self.problems:
                what = f"more than {MAX_NODES:,} values once the aliases are expanded"
                self._add(line, key, what, "a configuration", "write the values out, or keep data in a data file")
        return self.sizes[id(node)]

    def pairs(self, node: yaml.MappingNode, above: str) -> list[int]:
        """The sizes of a mapping's values, its keys checked."""
        first: dict[str, int] = {}
        sizes = []
        for name, value in node.value:
            line, key = name.start_mark.line, f"{above}.{name.value}".lstrip(".")
            if not isinstance(name, yaml.ScalarNode):
                self._add(line, above, "a key that is a list or a mapping", "a text as key")
                continue
            if name.value in first:
                self._add(
                    line, key, f"the key {name.value!r} twice, first in line {first[name.value]}", "every key once"
                )
            first.setdefault(name.value, self.lines_before + line + 1)
            if secret := looks_secret(name.value, self.known):
                self._add(line, above, f"{secret} as a key (not shown)", "no secret in a file", FIX)
                key = f"{above}....".lstrip(".")
            if name.value == "_target_":
                expected = "nothing that is called by the configuration"
                self._add(line, key, "`_target_`", expected, "name a class with `class:`")
            sizes.append(1 + self.size(value, key))
        return sizes

    def scalar(self, line: int, key: str, value: str) -> None:
        if "\0" in value:
            self._add(line, key, "a text with a NUL character", "a text without one")
        if secret := secret_at(key, value, self.known):
            self._add(line, key, f"{secret} (not shown)", "no secret in a file", FIX)


def _check_events(text: str, check: _Check) -> None:
    """Depth, tags and the number of documents: what must be known before the nodes are made."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=FastLoader):
        line = event.start_mark.line if event.start_mark else 0
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents == 2:
                return check._add(line, "", "a second document (---)", "one document per file")
        elif isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent):
            tag = event.tag
            if tag is not None and tag not in _TAGS:
                name = tag.replace("tag:yaml.org,2002:", "!!")
                check._add(line, "", f"the tag {name}", "plain YAML without tags", "remove the tag")
            if depth == 0 and not isinstance(event, yaml.MappingStartEvent) and getattr(event, "value", True):
                what = "a list" if isinstance(event, yaml.SequenceStartEvent) else f"the text {event.value[:40]!r}"
                return check._add(line, "", what, "a mapping (key: value)")
            depth += isinstance(event, yaml.CollectionStartEvent)
            if depth > MAX_DEPTH:
                return check._add(line, "", f"more than {MAX_DEPTH} levels", "a configuration")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None
