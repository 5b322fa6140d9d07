"""The shipped pattern files, `conf/patterns/<name>.v<N>.yaml`. A published version never changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import yaml

from ragpipe.core.digest import sha256
from ragpipe.core.resources import conf_dir
from ragpipe.core.validation import did_you_mean
from ragpipe.core.yaml_files import FastLoader

_NAME = re.compile(r"[a-z][a-z0-9_]*\.v\d+\Z")


def pattern_files() -> list[str]:
    """The names of the shipped files, sorted."""
    return sorted(path.stem for path in (conf_dir() / "patterns").glob("*.yaml"))


@lru_cache(maxsize=64)
def read_patterns(name: str) -> dict[str, Any]:
    """The content of the file of this name, includes merged. Raises ValueError naming the known files.

    A name is not a path: a configuration from elsewhere cannot read any other file.
    """
    path = conf_dir() / "patterns" / f"{name}.yaml"
    if not _NAME.match(name) or not path.is_file():
        names = pattern_files()
        raise ValueError(f"one of {', '.join(names)} or patterns written out; {did_you_mean(name, names)}".rstrip("; "))
    content: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=FastLoader)
    for include in content.pop("include", ()):
        content = _merge(read_patterns(include), content)
    return content


def _merge(included: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """The included keys with the file's content: lists are joined, each item once, and mappings; other
    values are the file's."""
    merged = {**included, **content}
    for key in included.keys() & content.keys():
        if isinstance(content[key], list):
            merged[key] = [*included[key], *(item for item in content[key] if item not in included[key])]
        elif isinstance(content[key], dict):
            merged[key] = {**included[key], **content[key]}
    return merged


def pattern_hashes(patterns: Iterable[Any]) -> dict[str, str]:
    """The sha256 of the content of each named file. Patterns written out have no name and are left out."""
    return {name: sha256(read_patterns(name)) for name in patterns if isinstance(name, str)}
