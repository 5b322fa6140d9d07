"""Content hashes: the same content has the same hash on every machine, in every process, in every version.

Questions, templates, data sets and runs are recognised by these hashes.
"""

from __future__ import annotations

import hashlib
import json
import re
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
    if isinstance(value, bytes):
        data = value
    else:
        data = (value if isinstance(value, str) else canonical_json(value)).encode("utf-8")
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
