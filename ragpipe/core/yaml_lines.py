"""Where the keys of a YAML file stand, and how a path is printed."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where there is one: ten times as fast, and a run's config.yaml has a thousand lines."""
FastDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def lines_of(path: Path) -> dict[str, int]:
    """Dotted key -> line (from 1) of every key in a YAML file, list items by their index. Empty when it cannot be read."""
    try:
        tree = yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=FastLoader)
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return {}
    found: dict[str, int] = {}

    def walk(node: yaml.Node, prefix: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = f"{prefix}{key.value}"
                if name == "defaults" or name in found:
                    continue
                found[name] = key.start_mark.line + 1
                walk(value, f"{name}.")
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                found[f"{prefix}{index}"] = value.start_mark.line + 1
                walk(value, f"{prefix}{index}.")

    if tree is not None:
        walk(tree, "")
    return found


def key_path(path: Path) -> str:
    """A path as it is printed: relative to the working directory where it lies below it."""
    try:
        return os.fspath(path.resolve().relative_to(Path.cwd().resolve()))
    except (ValueError, OSError):
        return os.fspath(path)
