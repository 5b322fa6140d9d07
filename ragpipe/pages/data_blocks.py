"""Data blocks: what a page shows, packed into the page and decoded by its script when it is needed.

A block is gzip, then base64, inside `<script type="text/plain" id="block-NAME">`: neither has a `<`, so nothing in it can end
the element, and nothing has to be escaped. `assets/blocks.js` reads it. The names in use:

- `index`: JSON: the names of the rows, and the layout of `cols`.
- `cols`: numbers and codes, column after column: Float32 (NaN is missing) and Uint8.
- `text`: JSON: one lower-case text per row, for the search.
- `d<n>`: JSON: the rows `ROWS_PER_BLOCK * n` and on in full.
- `t<n>`: JSON: long texts that several rows share, each once (`TextPool`), `TEXTS_PER_BLOCK` per block; `p<n>` the same for prompts.
- `files`: JSON: where the blocks are that the page does not hold itself (`side_files`).
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.safe_text import printable

ROWS_PER_BLOCK = 64
TEXTS_PER_BLOCK = 128
_LEVEL = 1  # of gzip: a third of the time of level 6 for 17 % more bytes
_ESCAPED = re.compile(r"\\[bfru]")  # in JSON: perhaps a control character
_TYPES = {"float32": "f4", "uint8": "u1"}


@dataclass(frozen=True)
class DataBlock:
    """A packed block: its name, and its text in base64."""

    name: str
    text: str


def pack(name: str, content: bytes) -> DataBlock:
    """The bytes as a block. The same bytes give the same block: no time is stored."""
    return DataBlock(name, base64.b64encode(gzip.compress(content, _LEVEL, mtime=0)).decode("ascii"))


def json_block(name: str, value: Any) -> DataBlock:
    """A JSON value as a block. Control characters of its texts are shown as escapes (`safe_text.printable`)."""
    return pack(name, _printable_json(value).encode())


class JsonList:
    """A JSON list that is packed while it grows: memory holds it compressed."""

    def __init__(self) -> None:
        self._gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._pieces: list[bytes] = []
        self._length = 0

    def append(self, value: Any) -> None:
        """Add a value, with its control characters shown as escapes."""
        text = ("," if self._length else "[") + _printable_json(value)
        self._pieces.append(self._gzip.compress(text.encode()))
        self._length += 1

    def block(self, name: str) -> DataBlock:
        """The list as a block, at the end."""
        end = b"]" if self._length else b"[]"
        packed = b"".join([*self._pieces, self._gzip.compress(end), self._gzip.flush()])
        return DataBlock(name, base64.b64encode(packed).decode("ascii"))


def _printable_json(value: Any) -> str:
    text = _json(value)
    if _ESCAPED.search(text) or printable(text) != text:  # few texts have any: the others are encoded once
        text = _json(_shown(value))
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def column_block(columns: Mapping[str, NDArray[Any]]) -> tuple[DataBlock, list[dict[str, Any]]]:
    """The block `cols` and its layout (`name`, `type`, `offset` in bytes), which goes into `index`.

    Columns are float32 or uint8 and equally long. Float columns come first, so that each begins at a multiple of four.
    Raises ValueError for another type or length.
    """
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("the columns of a page are not equally long")
    parts, layout, offset = [], [], 0
    for name, column in sorted(columns.items(), key=lambda item: item[1].dtype != np.float32):
        if column.dtype.name not in _TYPES:
            raise ValueError(f"column {name} is {column.dtype}; a page has float32 and uint8")
        content = column.astype(column.dtype.newbyteorder("<")).tobytes()
        layout.append({"name": name, "type": _TYPES[column.dtype.name], "offset": offset})
        parts.append(content)
        offset += len(content)
    return pack("cols", b"".join(parts)), layout


class TextPool:
    """Texts that several rows share, each kept once under a number. Full blocks are packed at once: memory holds the last
    one, and a hash of each text. `prefix` begins the names of its blocks."""

    def __init__(self, prefix: str = "t") -> None:
        self._prefix = prefix
        self._numbers: dict[bytes, int] = {}
        self._texts: list[str] = []
        self._blocks: list[DataBlock] = []
        self._closed = 0

    def number(self, text: str) -> int:
        """The number of a text: block `<prefix><number // TEXTS_PER_BLOCK>`, place `number % TEXTS_PER_BLOCK`."""
        digest = _digest(text)
        if digest not in self._numbers:
            self._numbers[digest] = len(self._numbers)
            self._texts.append(text)
            if len(self._texts) == TEXTS_PER_BLOCK:
                self._close()
        return self._numbers[digest]

    def full_blocks(self) -> Iterator[DataBlock]:
        """The blocks that are full and were not taken yet: whoever takes them between texts keeps memory small."""
        while self._blocks:
            yield self._blocks.pop(0)

    def blocks(self) -> Iterator[DataBlock]:
        """The blocks that were not taken yet, at the end."""
        if self._texts:
            self._close()
        yield from self.full_blocks()

    def _close(self) -> None:
        self._blocks.append(json_block(f"{self._prefix}{self._closed}", self._texts))
        self._closed += 1
        self._texts = []


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list | tuple) else value
