"""Checks a YAML file before it is composed: size, aliases, tags, duplicate keys, tabs, secrets.

A few lines of YAML can expand to a billion values through aliases, and composing only 59,049 of them took 37 s. So the
expanded size is counted on the parser's events, where it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ragpipe.core.errors import Problem
from ragpipe.core.secret_detection import FIX, looks_secret, secret_at, secrets_of_environment
from ragpipe.core.yaml_lines import FastLoader

MAX_BYTES = 1_000_000
MAX_NODES = 20_000  # expanded; the largest shipped composition has some hundreds
MAX_DEPTH = 64
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")} | {"!"}


@dataclass
class _Frame:
    """An open mapping or list: its keys so far, and how many nodes it has expanded to."""

    mapping: bool
    anchor: str | None
    line: int
    size: int = 1
    keys: dict[str, int] = field(default_factory=dict)
    key: str | None = None  # the key whose value comes next; None when a key comes next
    at_value: bool = False


class _YamlScan:
    """One pass over the parser's events."""

    def __init__(self, where: str, lines_before: int = 0):
        self.where, self.lines_before = where, lines_before
        self.problems: list[Problem] = []
        self.frames: list[_Frame] = []
        self.sizes: dict[str, int] = {}
        self.documents = 0
        self.known = secrets_of_environment()

    def add_problem(self, line: int, content: str, expected: str, fix: str = "") -> None:
        where = f"{self.where}:{self.lines_before + line + 1}"
        self.problems.append(Problem(where, self._key() or "the file", content, expected, fix))

    def _key(self) -> str:
        """The dotted key of the current place."""
        return ".".join(frame.key for frame in self.frames if frame.mapping and frame.key)

    def event(self, event: yaml.events.Event) -> bool:
        """Take one event; False when the rest need not be looked at."""
        line = event.start_mark.line if event.start_mark else 0
        if isinstance(event, yaml.DocumentStartEvent):
            return self.start_document(line)
        self.check_tag(line, getattr(event, "tag", None))
        if isinstance(event, yaml.AliasEvent):
            return self.leaf(line, None, self.sizes.get(event.anchor or "", 1))
        if isinstance(event, yaml.ScalarEvent):
            if event.anchor:
                self.sizes[event.anchor] = 1
            return self.leaf(line, event.value, 1)
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            return self.open(line, isinstance(event, yaml.MappingStartEvent), event.anchor)
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            return self.close(line)
        return True

    def start_document(self, line: int) -> bool:
        self.documents += 1
        if self.documents == 2:
            self.add_problem(line, "a second document (---)", "one document per file")
            return False
        return True

    def check_tag(self, line: int, tag: str | None) -> None:
        if tag is not None and tag not in _TAGS:
            name = tag.replace("tag:yaml.org,2002:", "!!")
            self.add_problem(line, f"the tag {name}", "plain YAML without tags", "remove the tag")

    def open(self, line: int, mapping: bool, anchor: str | None) -> bool:
        if not self.frames and not mapping:
            self.add_problem(line, "a list", "a mapping (key: value)")
            return False
        self.frames.append(_Frame(mapping, anchor, line))
        if len(self.frames) > MAX_DEPTH:
            self.add_problem(line, f"more than {MAX_DEPTH} levels", "a configuration")
            return False
        return True

    def leaf(self, line: int, value: str | None, size: int) -> bool:
        """A key or a value; None for an alias."""
        if not self.frames:
            if value:
                self.add_problem(line, f"the text {value[:40]!r}", "a mapping (key: value)")
            return False
        frame = self.frames[-1]
        if frame.mapping and not frame.at_value and value is not None:
            self.name(frame, line, value)
            frame.size += size
            return True
        if value is not None and "\0" in value:
            self.add_problem(line, "a text with a NUL character", "a text without one")
        if secret := secret_at(self._key(), value, self.known):
            self.add_problem(line, f"{secret} (not shown)", "no secret in a file", FIX)
        return self.grow(line, size)

    def name(self, frame: _Frame, line: int, key: str) -> None:
        frame.key, frame.at_value = key, True
        if key in frame.keys:
            self.add_problem(line, f"the key {key!r} twice, first in line {frame.keys[key] + 1}", "every key once")
        frame.keys[key] = line
        if secret := looks_secret(key, self.known):
            frame.key = None
            self.add_problem(line, f"{secret} as a key (not shown)", "no secret in a file", FIX)
            frame.key = "..."
        if key == "_target_":
            self.add_problem(
                line, "`_target_`", "nothing that is called by the configuration", "name a class with `class:`"
            )

    def grow(self, line: int, size: int) -> bool:
        frame = self.frames[-1]
        frame.size += size
        frame.at_value, frame.key = False, None
        if sum(f.size for f in self.frames) > MAX_NODES:
            self.add_problem(
                line,
                f"more than {MAX_NODES:,} values once the aliases are expanded",
                "a configuration",
                "write the values out, or keep data in a data file",
            )
            return False
        return True

    def close(self, line: int) -> bool:
        frame = self.frames.pop()
        if frame.anchor:
            self.sizes[frame.anchor] = frame.size
        return self.grow(line, frame.size) if self.frames else True


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
        found = f"byte 0x{raw[error.start]:02x}"
        return "", [Problem(f"{where}:{line}", "the file", found, "UTF-8", "save it as UTF-8")]


def check_text(text: str, where: str, *, lines_before: int = 0) -> list[Problem]:
    """As `check_yaml` for a text, which may be a part of a file that begins after `lines_before` lines."""
    scan = _YamlScan(where, lines_before)
    try:
        for event in yaml.parse(text, Loader=FastLoader):
            if not scan.event(event):
                break
    except yaml.YAMLError as error:
        scan.problems.append(yaml_problem(error, where, text, lines_before))
    return scan.problems


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
