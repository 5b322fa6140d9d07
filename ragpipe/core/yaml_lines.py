"""The line of every key of a YAML file, and how a path is printed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import yaml

FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where it is installed: ten times as fast, and a run's config.yaml has a thousand lines."""
FastDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


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
