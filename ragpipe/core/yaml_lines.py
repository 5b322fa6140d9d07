"""The line of every key of a YAML file, and how a path is printed."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where it is installed: ten times as fast, and a run's config.yaml has a thousand lines."""
FastDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def lines_of(path: Path) -> dict[str, int]:
    """Dotted key -> line (from 1) of every key in a YAML file, list items by their index.

    Empty when the file cannot be read.
    """
    try:
        tree = yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=FastLoader)
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return {}
    lines: dict[str, int] = {}
    if tree is not None:
        _add_lines(tree, "", lines)
    return lines


def _add_lines(node: yaml.Node, prefix: str, lines: dict[str, int]) -> None:
    """Add the keys below `node`; of equal keys the first counts."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            if name == "defaults" or name in lines:
                continue
            lines[name] = key.start_mark.line + 1
            _add_lines(value, f"{name}.", lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[f"{prefix}{index}"] = value.start_mark.line + 1
            _add_lines(value, f"{prefix}{index}.", lines)


def key_path(path: Path) -> str:
    """A path as it is printed: relative to the working directory where it is below it."""
    try:
        return os.fspath(path.resolve().relative_to(Path.cwd().resolve()))
    except (ValueError, OSError):
        return os.fspath(path)
