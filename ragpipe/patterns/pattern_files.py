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

_NAME = re.compile(r"[a-z][a-z0-9_]*\.v\d+\Z")


def pattern_files() -> list[str]:
    """The names that can be given, sorted."""
    return sorted(path.stem for path in (conf_dir() / "patterns").glob("*.yaml"))


@lru_cache(maxsize=64)
def read_patterns(name: str) -> dict[str, Any]:
    """What the file of this name holds. Raises ValueError naming the files there are.

    A name is no path: a configuration from a stranger cannot point anywhere else.
    """
    path = conf_dir() / "patterns" / f"{name}.yaml"
    if not _NAME.match(name) or not path.is_file():
        there = pattern_files()
        raise ValueError(f"one of {', '.join(there)} or patterns written out; {did_you_mean(name, there)}".rstrip("; "))
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    for other in found.pop("include", ()):
        found = _joined(read_patterns(other), found)
    return found


def _joined(included: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The included keys with the file's own: lists one after the other, each item once; of other values its own."""
    both = {**included, **own}
    for key in included.keys() & own.keys():
        if isinstance(own[key], list):
            both[key] = [*included[key], *(item for item in own[key] if item not in included[key])]
    return both


def pattern_hashes(given: Iterable[Any]) -> dict[str, str]:
    """The sha256 of what each named file holds; patterns written out have no name and are left out."""
    return {name: sha256(read_patterns(name)) for name in given if isinstance(name, str)}
