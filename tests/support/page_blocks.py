"""The data blocks of a page, read back as its script reads them."""

import base64
import gzip
import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {"f4": "<f4", "u1": "u1"}


def block_bytes(html: str, name: str) -> bytes:
    match = re.search(rf'<script type="text/plain" id="block-{name}">([A-Za-z0-9+/=]*)</script>', html)
    assert match, f"no block {name}"
    return gzip.decompress(base64.b64decode(match[1]))


def block_json(html: str, name: str) -> Any:
    return json.loads(block_bytes(html, name))


def page_columns(html: str) -> dict[str, NDArray[Any]]:
    index, raw = block_json(html, "index"), block_bytes(html, "cols")
    rows = len(index["rows"] if "rows" in index else index["sample"])
    return {column["name"]: np.frombuffer(raw, _TYPES[column["type"]], rows, column["offset"]) for column in index["columns"]}
