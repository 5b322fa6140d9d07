"""YAML files: checked before they are used (size, depth, aliases, tags, duplicate keys, tabs, secrets), and the line of every key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import yaml

from ragpipe.core.errors import Problem
from ragpipe.core.named_files import named_bytes
from ragpipe.core.secret_detection import FIX, looks_secret, secret_at, secrets_of_environment

FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where it is installed: ten times as fast, and a run's config.yaml has a thousand lines."""
FastDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MAX_BYTES = 1_000_000
MAX_NODES = 20_000  # expanded; the largest shipped composition has some hundreds
MAX_DEPTH = 64
_TAG = "tag:yaml.org,2002:"
_PLAIN = {_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp", "merge", "value")}


def check_yaml(path: Path, where: str | None = None) -> list[Problem]:
    """The problems of the file as YAML, before its content is looked at; empty when there are none."""
    text, problems = yaml_text(path, where)
    return problems or check_text(text, where or str(path))


def yaml_text(path: Path, where: str | None = None) -> tuple[str, list[Problem]]:
    """The text of a YAML file, not checked yet, and why it cannot be read. Raises OSError."""
    where = where or str(path)
    if (size := path.stat().st_size) > MAX_BYTES:
        return "", [Problem(where, "the file", f"{size:,} bytes", f"at most {MAX_BYTES:,}")]
    raw = named_bytes(path, MAX_BYTES)
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
        tree = yaml.compose(text, Loader=FastLoader)
    except yaml.YAMLError as error:
        return [yaml_problem(error, where, text, lines_before)]
    except RecursionError:  # of the parser in Python; libyaml has a limit of its own
        return [Problem(where, "the file", f"more than {MAX_DEPTH} levels", "a configuration")]
    if tree is not None:
        check.document(tree)
    return check.problems


def yaml_problem(error: yaml.YAMLError, where: str, text: str = "", lines_before: int = 0) -> Problem:
    """A parser's error as a problem with file and line."""
    mark = getattr(error, "problem_mark", None)
    message = str(getattr(error, "problem", None) or error).split("\n")[0].removeprefix("but ")
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
    """Dotted key -> line (from 1) of every key in a YAML text, list items by their index; of equal keys the first counts. Raises
    yaml.YAMLError."""
    lines: dict[str, int] = {}
    for name, line in _lines(yaml.compose(text, Loader=FastLoader), ""):
        lines.setdefault(name, line)
    return lines


def _lines(node: yaml.Node | None, above: str) -> Iterator[tuple[str, int]]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    if isinstance(node, yaml.SequenceNode):
        pairs = [(yaml.ScalarNode("", str(index), item.start_mark), item) for index, item in enumerate(node.value)]
    for key, value in pairs:
        yield f"{above}{key.value}", key.start_mark.line + 1
        yield from _lines(value, f"{above}{key.value}.")


def key_path(path: Path) -> str:
    """A path as it is printed: relative to the working directory where it is below it."""
    try:
        return os.fspath(path.resolve().relative_to(Path.cwd().resolve()))
    except (ValueError, OSError):
        return os.fspath(path)


class _Check:
    """One pass over a document's nodes, which share what an alias repeats: each is checked once, and its size is known."""

    def __init__(self, where: str, lines_before: int):
        self.where, self.lines_before = where, lines_before
        self.problems: list[Problem] = []
        self.sizes: dict[yaml.Node, int] = {}
        self.known = secrets_of_environment()

    def line(self, node: yaml.Node) -> int:
        return int(self.lines_before + node.start_mark.line + 1)

    def _add(self, node: yaml.Node, key: str, what: str, expected: str, fix: str = "") -> None:
        self.problems.append(Problem(f"{self.where}:{self.line(node)}", key or "the file", what, expected, fix))

    def document(self, tree: yaml.Node) -> None:
        if isinstance(tree, yaml.MappingNode):
            self.size(tree)
        elif tree.value:
            what = "a list" if isinstance(tree, yaml.SequenceNode) else f"the text {tree.value[:40]!r}"
            self._add(tree, "", what, "a mapping (key: value)")

    def size(self, node: yaml.Node, key: str = "", depth: int = 0) -> int:
        """Check a node and what is below it; returns how many values it expands to."""
        if node in self.sizes:
            if not self.sizes[node]:
                self._add(node, key, "an alias inside of what it stands for", "values that end")
            return self.sizes[node]
        self.sizes[node] = 0  # until it is counted
        size = 1
        self.tag(node, key)
        if depth > MAX_DEPTH:
            self._add(node, key, f"more than {MAX_DEPTH} levels", "a configuration")
        elif isinstance(node, yaml.MappingNode):
            size += self.pairs(node, key, depth + 1)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(self.size(item, key, depth + 1) for item in node.value)
        elif "\0" in node.value:
            self._add(node, key, "a text with a NUL character", "a text without one")
        elif secret := secret_at(key, node.value, self.known):
            self._add(node, key, f"{secret} (not shown)", "no secret in a file", FIX)
        if size > MAX_NODES and not self.problems:
            what = f"more than {MAX_NODES:,} values once the aliases are expanded"
            self._add(node, key, what, "a configuration", "write the values out, or keep data in a data file")
        self.sizes[node] = size
        return size

    def pairs(self, node: yaml.MappingNode, above: str, depth: int) -> int:
        """The size of a mapping's values, its keys checked."""
        first: dict[str, int] = {}
        size = 0
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                self._add(name, above, "a key that is a list or a mapping", "a text as key")
                continue
            key = f"{above}.{name.value}".lstrip(".")
            if name.value in first:
                what = f"the key {name.value!r} twice, first in line {first[name.value]}"
                self._add(name, key, what, "every key once")
            first.setdefault(name.value, self.line(name))
            self.tag(name, key)
            if secret := looks_secret(name.value, self.known):
                self._add(name, above, f"{secret} as a key (not shown)", "no secret in a file", FIX)
                key = f"{above}....".lstrip(".")
            if name.value == "_target_":
                expected = "nothing that is called by the configuration"
                self._add(name, key, "`_target_`", expected, "name a class with `class:`")
            size += 1 + self.size(value, key, depth)
        return size

    def tag(self, node: yaml.Node, key: str) -> None:
        if node.tag not in _PLAIN:
            self._add(node, key, f"the tag {node.tag.replace(_TAG, '!!')}", "plain YAML without tags", "remove the tag")
