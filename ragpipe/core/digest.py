"""Content hashes: the same content has the same hash on every machine, in every process, in every version.

Questions, templates, data sets and runs are recognised by these hashes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

DIGEST = re.compile(r"[0-9a-f]{64}")
"""The form of a hex sha256."""
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces and no NaN: equal values give equal text.

    Raises ValueError for NaN and infinities, TypeError for anything that is not plain JSON.
    """
    return _ENCODER.encode(value)


def sha256(value: Any) -> str:
    """Hex sha256 of a text (as UTF-8), of bytes, or of any JSON value in canonical form. Raises as `canonical_json`."""
    if not isinstance(value, bytes):
        value = (value if isinstance(value, str) else canonical_json(value)).encode("utf-8")
    return hashlib.sha256(value).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in blocks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


DIGEST_BYTES = 16
"""Bytes of a digest: two of a billion names have the same one with a probability below 1e-20."""


def name_digest(*parts: str) -> bytes:
    """The digest of some texts: other texts, or other borders between them, give another one."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()


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
