"""Lines of a UTF-8 file, split on b"\\n" only.

`str.splitlines` also cuts at U+2028, U+0085, \\x0b, \\x0c and \\x1c, which stand inside real answers.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from ragpipe.data.faults import Faults

MAX_LINE = 64 << 20
MAX_UNPACKED = 16 << 30
"""Bytes that a packed file may have when it is unpacked; nothing of it is written to disk."""
_PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
"""What reading a packed file raises where it is cut or damaged."""
NAN_IS_NULL = "dataset.nan=null reads NaN as no value"
"""The fix where NaN keeps a file from being read."""
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class DataFile:
    """A file of a data set. `display_path` is how the user named it, `name` its name within the data set's folder.

    `nan_is_null`: NaN in it is no value; otherwise it is a fault. `empty_is_null`: so is an empty cell of a CSV file; otherwise
    it is an empty text.
    """

    path: Path
    display_path: str
    name: str
    format: str
    delimiter: str = ","
    nan_is_null: bool = False
    empty_is_null: bool = False

    def at(self, line: int) -> str:
        return f"{self.display_path}:{line}"


class _Unpacked(io.RawIOBase):
    """The bytes of a packed file, at most `MAX_UNPACKED` of them: EOFError after that."""

    def __init__(self, stream: BinaryIO):
        self._stream, self._left = stream, MAX_UNPACKED

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._stream.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise EOFError(f"more than {MAX_UNPACKED >> 30} GiB when it is unpacked")
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file; of one that gzip, bzip2 or xz packed, told by its first bytes, those within. Raises OSError; a damaged one
    raises one of `DAMAGED` while it is read."""
    with open(path, "rb") as stream:
        head = stream.read(8)
    unpack = next((unpack for magic, unpack in _PACKED.items() if head.startswith(magic)), None)
    if unpack is None:
        return open(path, "rb")
    return cast(BinaryIO, io.BufferedReader(_Unpacked(cast(BinaryIO, unpack(path, "rb"))), 1 << 16))


def add_damage(display_path: str, error: Exception, faults: Faults) -> None:
    """Add the fault of a packed file that cannot be read to its end."""
    expected, fix = "a whole gzip, bzip2 or xz file", "pack or download it again"
    faults.add(display_path, "packed file", str(error)[:200], expected, fix)


def text_lines(file: DataFile, faults: Faults) -> Iterator[tuple[int, str]]:
    """(line number from 1, text with its line end). A line that is not UTF-8 or too long is a fault and is left out."""
    with open_bytes(file.path) as stream:
        number = 0
        while raw := stream.readline(MAX_LINE + 1):
            number += 1
            if number == 1 and raw.startswith(BOM):
                raw = raw[len(BOM) :]
            if len(raw) > MAX_LINE:
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(MAX_LINE)
                faults.add(file.at(number), "line", f"more than {MAX_LINE >> 20} MiB", "a record of a sane size")
                continue
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                actual = f"byte 0x{raw[error.start]:02x} at column {error.start + 1} ({error.reason})"
                fix = "save the file as UTF-8, e.g. `iconv -f cp1252 -t utf-8 FILE > NEW` (cp1252: as Excel saves CSV)"
                faults.add(file.at(number), "encoding", actual, "UTF-8", fix)
                continue
            yield number, text
