"""Lines of a UTF-8 file, split on b"\\n" only.

`str.splitlines` also cuts at U+2028, U+0085, \\x0b, \\x0c and \\x1c, which stand inside real answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragpipe.datasets.fault_list import Faults

MAX_LINE = 64 << 20
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


def text_lines(file: DataFile, faults: Faults) -> Iterator[tuple[int, str]]:
    """(line number from 1, text with its line end). A line that is not UTF-8 or too long is a fault and is left out."""
    with open(file.path, "rb") as stream:
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
                faults.add(file.at(number), *not_utf8(raw, error))
                continue
            yield number, text


def not_utf8(raw: bytes, error: UnicodeDecodeError) -> tuple[str, str, str, str]:
    """Key, found, expected and fix of bytes that are not UTF-8."""
    actual = f"byte 0x{raw[error.start]:02x} at column {error.start + 1} ({error.reason})"
    return (
        "encoding",
        actual,
        "UTF-8",
        "save the file as UTF-8, e.g. `iconv -f cp1252 -t utf-8 FILE > NEW` (cp1252: as Excel saves CSV)",
    )
