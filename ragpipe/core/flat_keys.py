"""Two nested mappings compared key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.core.digest import DIGEST

MISSING_KEY = object()
"""The value of a key that a mapping does not have."""
_CHARS = 60


def changed_keys(old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, old value, new value) of every key that differs, in the order of the keys; `MISSING_KEY` where a side has none.

    An empty mapping that got keys is not listed beside them, and neither is one that lost all of its keys.
    """
    before, after = dict(_flattened(old)), dict(_flattened(new))
    for key in sorted(before.keys() | after.keys()):
        values = before.get(key, MISSING_KEY), after.get(key, MISSING_KEY)
        other = after if values[0] == {} else before
        was_filled = {} in values and MISSING_KEY in values and any(name.startswith(f"{key}.") for name in other)
        if values[0] != values[1] and not was_filled:
            yield key, *values


def short_value(value: object) -> str:
    """A value of `changed_keys` in at most 60 characters; a digest by its first 12."""
    text = "(absent)" if value is MISSING_KEY else str(value)
    if DIGEST.fullmatch(text):
        return text[:12]
    return text if len(text) <= _CHARS else text[: _CHARS - 3] + "..."


def _flattened(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping) or not value:
        return [(prefix, value)]
    return [pair for key, item in value.items() for pair in _flattened(item, f"{prefix}.{key}" if prefix else str(key))]
