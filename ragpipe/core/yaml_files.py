"""YAML files: checked before they are used (size, depth, aliases, tags, duplicate keys, tabs, secrets), and the line of every key."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ragpipe.core.errors import Problem
from ragpipe.core.secrets import FIX, looks_secret, secret_at, secrets_of_environment

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
    try:
        tree = yaml.compose(text, Loader=FastLoader)
    except yaml.YAMLError as error:
        return [yaml_problem(error, where, text, lines_before)]
    return [
        Problem(f"{where}:{lines_before + node.start_mark.line + 1}", ".".join(path) or "the file", *fault)
        for node, path, fault in _faults(tree, lines_before)
    ]


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
    for path, name, _ in _walk(yaml.compose(text, Loader=FastLoader)):
        lines.setdefault(".".join(path), name.start_mark.line + 1)
    return lines


def key_path(path: Path) -> str:
    """A path as it is printed: relative to the working directory where it is below it."""
    try:
        return os.fspath(path.resolve().relative_to(Path.cwd().resolve()))
    except (ValueError, OSError):
        return os.fspath(path)


def _walk(node: yaml.Node | None, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], yaml.Node, yaml.Node]]:
    """All keys and list items below a node: path, the node of the key (of an item the item itself), that of the value."""
    below = node.value if isinstance(node, yaml.MappingNode) else ()
    if isinstance(node, yaml.SequenceNode):
        below = [(item, item) for item in node.value]
    for index, (name, value) in enumerate(below if len(above) <= MAX_DEPTH else ()):
        path = (*above, str(index) if name is value or not isinstance(name, yaml.ScalarNode) else name.value)
        yield path, name, value
        yield from _walk(value, path)


def _faults(tree: yaml.Node | None, lines_before: int) -> Iterator[tuple[yaml.Node, tuple[str, ...], tuple[Any, ...]]]:
    """Where something is wrong in a document, and what: found, expected, fix."""
    if not isinstance(tree, yaml.MappingNode) or tree.tag not in _PLAIN:
        if tree is not None and tree.value:
            what = f"the text {tree.value[:40]!r}" if isinstance(tree, yaml.ScalarNode) else f"a {tree.id}: {tree.tag}"
            yield tree, (), ("a list" if isinstance(tree, yaml.SequenceNode) else what, "a mapping (key: value)")
        return
    known = secrets_of_environment()
    first: dict[tuple[str, ...], int] = {}
    for count, (path, name, value) in enumerate(_walk(tree)):
        if path in first:
            yield name, path, (f"the key {path[-1]!r} twice, first in line {first[path]}", "every key once")
        first.setdefault(path, lines_before + name.start_mark.line + 1)
        if count >= MAX_NODES or len(path) > MAX_DEPTH:
            what = f"more than {MAX_NODES:,} values or {MAX_DEPTH} levels once the aliases are expanded"
            yield name, (), (what, "a configuration", "write the values out, or keep data in a data file")
            return
        if name is not value and (not isinstance(name, yaml.ScalarNode) or name.tag == f"{_TAG}null"):
            yield (
                name,
                path[:-1],
                (f"a key that is {'empty' if isinstance(name, yaml.ScalarNode) else 'a list or a mapping'}", "a text as key"),
            )
        elif name is not value and (secret := looks_secret(name.value, known)):
            yield name, path[:-1], (f"{secret} as a key (not shown)", "no secret in a file", FIX)
            return  # what is below it would show it
        for node in dict.fromkeys((name, value)):
            if node.tag not in _PLAIN:
                what = f"the tag {node.tag.replace(_TAG, '!!')}"
                yield node, path, (what, "plain YAML without tags", "remove the tag")
        if path[-1] == "_target_":
            yield (name, path, ("`_target_`", "nothing that is called by the configuration", "name a class with `class:`"))
        if isinstance(value, yaml.ScalarNode) and (secret := secret_at(".".join(path), value.value, known)):
            yield value, path, (f"{secret} (not shown)", "no secret in a file", FIX)


MOST_BYTES = 256 << 20


def named_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises OSError, also for a device, a pipe and a larger file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
    return content


def named_text(path: Path, most: int = MOST_BYTES, encoding: str = "utf-8") -> str:
    """As `named_bytes`, decoded, with every line end as `\\n`. Raises UnicodeDecodeError too."""
    return named_bytes(path, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
